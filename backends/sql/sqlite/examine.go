package sqlite

import (
	"context"
	"fmt"
	"os"

	"github.com/tenure-go/tenure/core/driver"
)

var _ driver.Examiner = (*Backend)(nil)

// Examine implements driver.Examiner. The settings are those of this process's connections,
// which Open sets: other programs have theirs.
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
