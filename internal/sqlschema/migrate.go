package sqlschema

import (
	"context"
	stdsql "database/sql"
	"fmt"
	"io/fs"

	"github.com/tenure-go/tenure/core/driver"
)

// Migrations are the versions of a schema. The n-th file of Files, sorted by name, migrates the
// schema to version n. The table "<prefix>schema" contains the version.
type Migrations struct {
	Files  fs.FS
	Prefix string
}

// Execer is a connection or transaction.
type Execer interface {
	ExecContext(ctx context.Context, query string, args ...any) (stdsql.Result, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *stdsql.Row
}

// Migrate updates a schema from the given version to the newest one. Version 0 means that the
// database has no schema yet. If the database supports transactions for schema changes, Migrate
// must run in one.
func (m Migrations) Migrate(ctx context.Context, on Execer, from int) error {
	names, err := fs.Glob(m.Files, "*.sql")
	if err != nil {
		return err
	}
	for i := from; i < len(names); i++ {
		text, err := fs.ReadFile(m.Files, names[i])
		if err != nil {
			return err
		}
		if _, err := on.ExecContext(ctx, WithPrefix(string(text), m.Prefix)); err != nil {
			return fmt.Errorf("tenure: migration %s: %w", names[i], err)
		}
	}
	if from == len(names) {
		return nil
	}
	_, err = on.ExecContext(ctx, fmt.Sprintf("UPDATE %sschema SET version = %d", m.Prefix, len(names)))
	if err != nil {
		return fmt.Errorf("tenure: recording schema version %d: %w", len(names), err)
	}
	return nil
}

// Version reads the schema's version from its table, which must exist.
func (m Migrations) Version(ctx context.Context, on Execer) (version int, err error) {
	err = on.QueryRowContext(ctx, fmt.Sprintf("SELECT version FROM %sschema", m.Prefix)).Scan(&version)
	return version, err
}

// Check returns an error if the schema is newer than this program, or if it is older and migrate is
// false.
func (m Migrations) Check(version int, migrate bool) error {
	names, err := fs.Glob(m.Files, "*.sql")
	switch {
	case err != nil:
		return err
	case version > len(names):
		return fmt.Errorf("tenure: %w: the database has schema version %d and this program knows %d: use a newer release",
			driver.ErrUnsupported, version, len(names))
	case version < len(names) && !migrate:
		return fmt.Errorf("tenure: %w: the database has schema version %d and this program needs %d: migrate it first",
			driver.ErrUnsupported, version, len(names))
	}
	return nil
}
