package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tenure-go/tenure/internal/proof/servers"
)

// store is a kind of server, and the ways to own shards on it.
type store struct {
	name, title string
	start       func(ctx context.Context) (*running, error) // ErrUnavailable without such a server
	contenders  []contender                                 // Tenure first
}

// running is a started server.
type running struct {
	dsn     string
	counted string // address for members whose calls are counted; empty: dsn
	prepare func(ctx context.Context) error
	version func(ctx context.Context) (string, error)
	// calls returns the number of calls to the server; nil if it is not counted.
	calls   func(ctx context.Context) (int64, error)
	closers []func() error
}

func (r *running) close() error {
	var errs []error
	for _, c := range slices.Backward(r.closers) {
		errs = append(errs, c())
	}
	return errors.Join(errs...)
}

func stores() []*store {
	return []*store{etcdStore(), zookeeperStore(), consulStore(), postgresStore(), mariadbStore(), sqliteStore(),
		redisStore()}
}

// startLimit limits the start of a server.
const startLimit = time.Minute

// served returns a function that starts a server of package servers. fill adds what depends on the
// kind.
func served(kind servers.Kind, fill func(*running)) func(ctx context.Context) (*running, error) {
	return func(ctx context.Context) (_ *running, err error) {
		ctx, cancel := context.WithTimeout(ctx, startLimit)
		defer cancel()
		s, err := servers.Start(ctx, kind, nil)
		if err != nil {
			return nil, err
		}
		r := &running{dsn: s.Addr(), closers: []func() error{s.Close}}
		if kind == servers.Postgres || kind == servers.MariaDB {
			d, err := s.CreateDatabase(ctx)
			if err != nil {
				return nil, errors.Join(err, s.Close())
			}
			r.dsn = d.Reveal()
		}
		fill(r)
		if r.prepare != nil {
			if err := r.prepare(ctx); err != nil {
				return nil, errors.Join(fmt.Errorf("prepare %s: %w", kind, err), r.close())
			}
		}
		return r, nil
	}
}
