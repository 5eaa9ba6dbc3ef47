package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/tenure-go/tenure/core"
)

// A place is where a run keeps its logs: a namespace of its own, in a temporary
// database or in the one that was named.
type place struct {
	store     store
	dsn       string
	namespace string
	backend   core.Backend
	dir       string   // temporary, removed at the end unless kept; else empty
	created   []string // the files of a database that was not there before
	keep      bool
}

const placeLimit = 5 * time.Second // for opening and probing a store

// openPlace creates the run's namespace. If that fails, what it created is
// removed.
func openPlace(ctx context.Context, o *options) (*place, error) {
	s, _ := storeNamed(stores(), o.backend)
	p := &place{store: s, dsn: o.dsn, namespace: o.namespace + "/" + runName(), keep: o.keep}
	if p.dsn == "" {
		dir, err := os.MkdirTemp("", "tenure-demo-")
		if err != nil {
			return nil, fmt.Errorf("demo: no temporary directory: %w: set TMPDIR, or name a database with -dsn", err)
		}
		p.dir, p.dsn = dir, s.temporary(dir)
	}
	p.created = p.absent()
	ctx, cancel := context.WithTimeout(ctx, placeLimit)
	defer cancel()
	b, err := s.open(ctx, p.dsn, p.namespace, true)
	if err == nil {
		if err = o.validateTTL(b.Info().Limits); err == nil {
			p.backend = b
			return p, nil
		}
		b.Close()
	} else if errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("%w: not opened within %v; another process may hold its write lock: end that, or name another database with -dsn", err, placeLimit)
	}
	err = errors.Join(err, p.remove())
	return nil, fmt.Errorf("demo: cannot use the %s database: %w", s.opener.Name, err)
}

// absent lists the store's files if its place does not exist yet. Beside a
// database that exists none is ours to remove.
func (p *place) absent() []string {
	if p.store.files == nil {
		return nil
	}
	if _, err := os.Lstat(p.dsn); !errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return p.store.files(p.dsn)
}

// close closes the store. A temporary one is removed, unless it is kept, and so
// is one that was created for a run that failed.
func (p *place) close(failed bool) error {
	err := p.backend.Close()
	if (p.dir != "" && !p.keep) || (p.dir == "" && failed) {
		err = errors.Join(err, p.remove())
	}
	if err != nil {
		return fmt.Errorf("demo: close the database: %w", err)
	}
	return nil
}

// remove removes what was created, but nothing that was there before.
func (p *place) remove() error {
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

// describe says where the database is and how to look at it.
func (p *place) describe() string {
	return fmt.Sprintf("kept: %s\n  %s", p.dsn, p.store.look(p.dsn, p.namespace))
}
