package doctest

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var goVersion = regexp.MustCompile(`(?m)^go (\S+)$`)

// TestVersions compares docs/compatibility.md with the versions in the suite's reports, and with
// the newest migrations.
func TestVersions(t *testing.T) {
	t.Parallel()
	page := pageText(t, "docs/compatibility.md")
	want := []string{"| Go | " + goVersion.FindStringSubmatch(pageText(t, "go.mod"))[1] + " |"}
	for _, backend := range []string{"sqlite", "postgres", "mysql", "etcd", "consul", "zookeeper"} {
		version, _, _ := strings.Cut(readReport(t, backend).Version, "-0+")
		want = append(want, version)
	}
	for of, dir := range map[string]string{
		"PostgreSQL": "postgres/schema", "MySQL and MariaDB": "mysql/schema", "SQLite, data": "sqlite/schema/data",
		"SQLite, members": "sqlite/schema/members",
	} {
		files, err := filepath.Glob(filepath.Join(root, "backends", "sql", dir, "*.sql"))
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %d migrations, %v", dir, len(files), err)
		}
		want = append(want, fmt.Sprintf("| %s | %d |", of, len(files)))
	}
	for _, text := range want {
		if !strings.Contains(page, text) {
			t.Errorf("docs/compatibility.md does not say %q", text)
		}
	}
}
