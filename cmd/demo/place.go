package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/tenure-go/tenure/core"
)

// A place is a new namespace for a run's logs. The namespace is in a temporary database, on a
// server that was started for the run, or in a given database.
type place struct {
	store     store
	dsn       string
	namespace string
	backend   core.Backend
	server    *server  // a server that the run started and ends; otherwise nil
	dir       string   // the temporary directory, which is removed at the end unless it is kept; otherwise empty
	created   []string // the files of a database that did not exist before the run
	keep      bool
}

// openPlace creates the run's namespace. After a failure, openPlace removes whatever it created.
func openPlace(ctx context.Context, o *options) (*place, error) {
	s, _ := storeNamed(stores(), o.backend)
	p := &place{store: s, dsn: o.dsn, namespace: o.namespace + "/" + runName(), keep: o.keep}
	if err := p.provide(ctx); err != nil {
		return nil, err
	}
	err := p.open(ctx, o)
	if err == nil {
		return p, nil
	}
	err = errors.Join(err, p.remove())
	return nil, fmt.Errorf("demo: cannot use the %s database: %w", s.opener.Name, err)
}

// provide creates a temporary directory or starts a server, unless a place is given.
func (p *place) provide(ctx context.Context) (err error) {
	switch {
	case p.dsn != "":
	case p.store.server != nil:
		if p.server, err = p.store.server.start(ctx); err != nil {
			return err
		}
		p.dsn = p.server.dsn
	default:
		if p.dir, err = os.MkdirTemp("", "tenure-demo-"); err != nil {
			return fmt.Errorf("demo: no temporary directory: %w: set TMPDIR, or name a database with -dsn", err)
		}
		p.dsn = p.store.temporary(p.dir)
	}
	p.created = p.absent()
	return nil
}

func (p *place) open(ctx context.Context, o *options) (err error) {
	ctx, cancel := context.WithTimeout(ctx, p.store.limit)
	defer cancel()
	if p.store.migrate != nil {
		err = p.store.migrate(ctx, p.dsn)
	}
	if err == nil {
		p.backend, err = p.store.open(ctx, p.dsn, p.namespace, true)
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("%w: not opened within %v; %s", err, p.store.limit, p.store.late)
	} else if err != nil {
		return err
	}
	if err := o.validateTTL(p.backend.Info().Limits); err != nil {
		return errors.Join(err, p.backend.Close())
	}
	return nil
}

// absent returns the files that the store will create, or nil if the database already exists. The
// run must not remove an existing database.
func (p *place) absent() []string {
	if p.store.files == nil {
		return nil
	}
	if _, err := os.Lstat(p.dsn); !errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return p.store.files(p.dsn)
}

// Closing a place removes a temporary database, unless the database is kept. After a failed run,
// closing also removes a database that the run created.
func (p *place) close(failed bool) error {
	err := p.backend.Close()
	if !p.keep && (p.dir != "" || p.server != nil || failed) {
		err = errors.Join(err, p.remove())
	}
	if err != nil {
		return fmt.Errorf("demo: close the database: %w", err)
	}
	return nil
}

func (p *place) remove() error {
	if p.server != nil {
		return p.server.close()
	}
	if p.dir != "" {
		return os.RemoveAll(p.dir)
	}
	var errs []error
	for _, f := range p.created {
		if _, err := os.Lstat(f); err == nil {
			errs = append(errs, os.Remove(f))
		}
	}
	return errors.Join(errs...)
}

// describe returns the database's location and a command to inspect it.
func (p *place) describe() string {
	return fmt.Sprintf("kept: %s\n  %s", p.dsn, p.store.look(p.dsn, p.namespace))
}
