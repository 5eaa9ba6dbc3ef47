package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tenure-go/tenure/internal/proof/servers"
)

// A store is a kind of server, with the contenders that use it.
type store struct {
	name, title string
	start       func(ctx context.Context) (*running, error) // returns ErrUnavailable if there is no such server
	contenders  []contender                                 // Tenure first
}

type running struct {
	dsn     string
	counted string // address for members whose calls are counted; empty: dsn
	prepare func(ctx context.Context) error
	version func(ctx context.Context) (string, error)
	// If nothing counts the calls to the server, this function is nil.
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

const startLimit = time.Minute

// served returns a function that starts a server from package servers. The fields that depend on
// the kind of server are set by fill.
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
