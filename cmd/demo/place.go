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
	dir       string // temporary, removed at the end unless kept; else empty
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
	created := p.absent()
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
	for _, f := range created {
		if gone := os.Remove(f); gone != nil && !errors.Is(gone, fs.ErrNotExist) {
			err = fmt.Errorf("%w; and %w", err, gone)
		}
	}
	if p.dir != "" {
		os.RemoveAll(p.dir)
	}
	return nil, fmt.Errorf("demo: cannot use the %s database: %w", s.opener.Name, err)
}

// absent lists the store's files that do not exist.
func (p *place) absent() []string {
	var out []string
	if p.store.files == nil {
		return nil
	}
	for _, f := range p.store.files(p.dsn) {
		if _, err := os.Lstat(f); errors.Is(err, fs.ErrNotExist) {
			out = append(out, f)
		}
	}
	return out
}

// close closes the store, and removes it if it is temporary and not kept.
func (p *place) close() error {
	err := p.backend.Close()
	if p.dir != "" && !p.keep {
		err = errors.Join(err, os.RemoveAll(p.dir))
	}
	if err != nil {
		return fmt.Errorf("demo: close the database: %w", err)
	}
	return nil
}

// describe says where the database is and how to look at it.
func (p *place) describe() string {
	return fmt.Sprintf("kept: %s\n  %s", p.dsn, p.store.look(p.dsn, p.namespace))
}
