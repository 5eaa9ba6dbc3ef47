package sqlite

import (
	"context"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"

	"github.com/tenure-go/tenure/core/driver"
)

// asserted is a connector that checks the settings of each new connection. The data source name
// only requests these settings.
type asserted struct {
	sqldriver.Connector
	path string
	durability
	intact func() error // nil if nothing is known about the files
}

// Connect returns a connection, or ErrUnsupported if a setting is wrong.
func (a asserted) Connect(ctx context.Context) (sqldriver.Conn, error) {
	if a.intact != nil { // otherwise SQLite would create a new log
		if err := a.intact(); err != nil {
			return nil, err
		}
	}
	conn, err := a.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	if err := a.check(ctx, conn); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return conn, nil
}

func (a asserted) check(ctx context.Context, conn sqldriver.Conn) error {
	for _, s := range []struct{ name, want, advice string }{
		{"journal_mode", "wal", "end whatever changed it and open the backend again"},
		{"synchronous", fmt.Sprint(int(a.durability)), "use a release of the SQLite driver that sets it as it is asked to"},
	} {
		got, err := pragma(ctx, conn, s.name)
		if err != nil {
			return fmt.Errorf("tenure: reading %s of %s: %w", s.name, a.path, err)
		}
		if got != s.want {
			return fmt.Errorf("tenure: %w: a connection to %s uses %s %s, want %s: %s",
				driver.ErrUnsupported, a.path, s.name, got, s.want, s.advice)
		}
	}
	return nil
}

func pragma(ctx context.Context, conn sqldriver.Conn, name string) (string, error) {
	query, ok := conn.(sqldriver.QueryerContext)
	if !ok {
		return "", fmt.Errorf("tenure: %w: the SQLite driver's connections take no queries", driver.ErrUnsupported)
	}
	rows, err := query.QueryContext(ctx, "PRAGMA "+name, nil)
	if err != nil {
		return "", err
	}
	value := make([]sqldriver.Value, len(rows.Columns()))
	err = rows.Next(value)
	if err = errors.Join(err, rows.Close()); err != nil {
		return "", err
	}
	return fmt.Sprint(value[0]), nil
}
