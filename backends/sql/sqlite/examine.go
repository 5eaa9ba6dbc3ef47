package sqlite

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/tenure-go/tenure/core/driver"
)

var _ driver.Examiner = (*Backend)(nil)

// Examine implements driver.Examiner. It checks the settings of this process's connections, which
// Open sets, and the pages and modes of both files. Other programs may use other settings.
func (b *Backend) Examine(ctx context.Context) ([]driver.Finding, error) {
	var out []driver.Finding
	for _, x := range []struct{ name, good, remedy string }{
		{"synchronous", "2", "a crash of the machine can lose acknowledged grants and writes: use a release of the SQLite driver that sets it to 2 (full)"},
		{"journal_mode", "wal", "readers would block writers: let no other program change the journal mode"},
	} {
		var value string
		if err := b.db.QueryRowContext(ctx, "PRAGMA "+x.name).Scan(&value); err != nil {
			return nil, fmt.Errorf("tenure: reading settings: %w", err)
		}
		f := driver.Finding{Name: x.name, Value: value}
		if value != x.good {
			f.Remedy = x.remedy
		}
		out = append(out, f)
	}
	pages, err := b.pages(ctx)
	if err != nil {
		return nil, err
	}
	out = append(out, pages...)
	for _, path := range []string{b.path, b.path + membersSuffix} {
		info, err := os.Stat(path)
		if err != nil {
			return nil, fmt.Errorf("tenure: reading the rights of the database file: %w", err)
		}
		f := driver.Finding{Name: "file " + path, Value: info.Mode().String()}
		if info.Mode().Perm()&0o022 != 0 {
			f.Remedy = "others may write the database without its rules: chmod go-w " + path
		}
		out = append(out, f)
	}
	return out, nil
}

// Both files are checked for damaged pages.
func (b *Backend) pages(ctx context.Context) (out []driver.Finding, err error) {
	c, err := b.db.Conn(ctx)
	if err != nil {
		return nil, fmt.Errorf("tenure: checking the pages: %w", err)
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	if _, err := c.ExecContext(ctx, "ATTACH ? AS "+membersSchema, b.path+membersSuffix); err != nil {
		return nil, fmt.Errorf("tenure: checking the pages: %w", err)
	}
	for schema, path := range map[string]string{"main": b.path, membersSchema: b.path + membersSuffix} {
		f := driver.Finding{Name: "pages of " + path}
		err := c.QueryRowContext(ctx, "PRAGMA "+schema+".quick_check(1)").Scan(&f.Value)
		if damaged(err) {
			f.Value, err = err.Error(), nil
		}
		if err != nil {
			return nil, fmt.Errorf("tenure: checking the pages of %s: %w", path, err)
		}
		if f.Value != "ok" {
			f.Remedy = "the file is damaged: " + restoreAdvice
		}
		out = append(out, f)
	}
	slices.SortFunc(out, func(x, y driver.Finding) int { return strings.Compare(x.Name, y.Name) })
	_, err = c.ExecContext(ctx, "DETACH "+membersSchema)
	return out, err
}
