package sqlite

import (
	"bytes"
	stdsql "database/sql"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tenure-go/tenure/core/driver"
)

// TestExamineFindsDamagedPages: an overwritten page is found in either file, even if no read has
// needed the page so far.
func TestExamineFindsDamagedPages(t *testing.T) {
	t.Parallel()
	for suffix, unread := range map[string]string{"": "tenure_items", membersSuffix: "tenure_departures"} {
		t.Run("file"+suffix, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "tenure.db")
			find := func() (all []driver.Finding) {
				b, err := Open(t.Context(), path, "app", nil)
				if err != nil {
					t.Fatal(err)
				}
				defer b.Close()
				found, err := b.Examine(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				for _, f := range found {
					if strings.HasPrefix(f.Name, "pages of ") {
						all = append(all, f)
					}
				}
				return all
			}
			for _, f := range find() {
				if f.Value != "ok" || f.Remedy != "" {
					t.Errorf("before: %+v", f)
				}
			}
			file, err := os.ReadFile(path + suffix)
			if err != nil {
				t.Fatal(err)
			}
			db, err := stdsql.Open("sqlite", path+suffix)
			if err != nil {
				t.Fatal(err)
			}
			defer db.Close()
			var root, size int
			err = db.QueryRowContext(t.Context(), "SELECT rootpage, page_size FROM sqlite_schema, pragma_page_size WHERE name = ?", unread).Scan(&root, &size)
			if err != nil || root*size > len(file) {
				t.Fatalf("page %d of %d bytes, in a file of %d: %v", root, size, len(file), err)
			}
			copy(file[(root-1)*size:], bytes.Repeat([]byte{0xa5}, size))
			if err := os.WriteFile(path+suffix, file, 0o600); err != nil {
				t.Fatal(err)
			}
			bad := 0
			for _, f := range find() {
				if f.Value != "ok" && f.Remedy != "" && strings.HasSuffix(f.Name, "tenure.db"+suffix) {
					bad++
				}
			}
			if bad != 1 {
				t.Errorf("a damaged page of %s: the findings are %+v", path+suffix, find())
			}
		})
	}
}
