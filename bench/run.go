package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/tenure-go/tenure/internal/proof/servers"
)

type plan struct {
	stores []*store
	rows   []row
	rounds int
	quick  bool
	log    io.Writer // progress
}

type key struct{ store, row, contender string }

type cell struct {
	samples [][]float64 // figures by round
	err     error
}

type results struct {
	mu       sync.Mutex
	cells    map[key]*cell
	seen     map[key]conditions // by store and row
	versions map[string]string  // by store
	missing  map[string]error   // by store
}

func (r *results) add(k key, sample []float64, err error, counts bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.cells[k]
	if c == nil {
		c = &cell{}
		r.cells[k] = c
	}
	if err != nil {
		c.err = err
	} else if counts {
		c.samples = append(c.samples, sample)
	}
}

// If a store is not measured, lacks returns the reason.
func (r *results) lacks(store string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.missing[store]
}

func (r *results) see(ctx context.Context, store string, on *running) error {
	v, err := on.version(ctx)
	if err != nil {
		return fmt.Errorf("version: %w", err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.versions[store] = v
	return nil
}

func (r *results) failed(k key) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.cells[k] != nil && r.cells[k].err != nil
}

// The rows are measured in sequence. Each row uses a new server for each store, so that no row
// finds another row's data. The contenders take turns.
func (p *plan) run(ctx context.Context) (*results, error) {
	r := &results{cells: map[key]*cell{}, seen: map[key]conditions{}, versions: map[string]string{}, missing: map[string]error{}}
	for _, w := range p.rows {
		var all sync.WaitGroup
		errs := make([]error, len(p.stores))
		for i, s := range p.stores {
			if r.lacks(s.name) != nil {
				continue
			}
			one := func() { errs[i] = p.onStore(ctx, r, w, s) }
			if w.counts {
				all.Go(one)
			} else {
				one()
			}
		}
		all.Wait()
		if err := errors.Join(errs...); err != nil {
			return nil, err
		}
	}
	return r, context.Cause(ctx)
}

func (p *plan) onStore(ctx context.Context, r *results, w row, s *store) error {
	start := time.Now()
	err := p.between(ctx, r, w, s)
	if errors.Is(err, servers.ErrUnavailable) {
		p.say("%s: %v\n", s.name, err)
		r.mu.Lock()
		defer r.mu.Unlock()
		r.missing[s.name] = err
		return nil
	}
	if err != nil {
		return fmt.Errorf("%s on %s: %w", w.name, s.name, err)
	}
	p.say("%s %s: %s: %v\n", time.Now().Format(time.TimeOnly), w.name, s.name,
		time.Since(start).Round(time.Second/10))
	return nil
}

// The machine's load is measured before and after each row. If a row measures no time, the load
// does not matter.
func (p *plan) between(ctx context.Context, r *results, w row, s *store) (err error) {
	if p.quick || w.counts {
		return p.onServer(ctx, r, w, s)
	}
	var c conditions
	if c.before, err = calm(ctx); err != nil {
		return err
	}
	c.flush = syncTime()
	if err := p.onServer(ctx, r, w, s); err != nil {
		return err
	}
	if c.after, err = others(ctx); err != nil {
		return err
	}
	if why := c.busy(); why != "" {
		p.say("%s: %s: %s\n", w.name, s.name, why)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seen[key{store: s.name, row: w.name}] = c
	return nil
}

func (p *plan) onServer(ctx context.Context, r *results, w row, s *store) (err error) {
	on, err := s.start(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, on.close()) }()
	if err := r.see(ctx, s.name, on); err != nil {
		return err
	}
	rounds, warm := p.rounds, 1
	if w.rounds > 0 {
		rounds = min(rounds, w.rounds)
	}
	if w.cold || p.quick {
		warm = 0
	}
	var all sync.WaitGroup
	for i := range rounds + warm {
		order := slices.Clone(s.contenders)
		if i%2 == 1 {
			slices.Reverse(order)
		}
		for _, c := range order {
			b := &bout{store: s, on: on, contender: c, quick: p.quick, serve: on.dsn,
				name: fmt.Sprintf("bench-%s-%d", w.name, time.Now().UnixNano())}
			one := func() { p.one(ctx, r, w, b, i >= warm) }
			if w.together {
				all.Go(one)
			} else {
				one()
			}
		}
	}
	all.Wait()
	return context.Cause(ctx)
}

// A contender that has failed is not measured again.
func (p *plan) one(ctx context.Context, r *results, w row, b *bout, counts bool) {
	k := key{b.store.name, w.name, b.contender.name}
	if r.failed(k) {
		return
	}
	ctx, cancel := context.WithTimeoutCause(ctx, w.limit, fmt.Errorf("not done within %v", w.limit))
	defer cancel()
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	b.fail = fail
	sample, err := []float64(nil), errNone
	if !(w.locks && b.onlyShards || !w.locks && b.onlyLocks) {
		sample, err = w.measure(ctx, b)
	}
	if err != nil && !errors.Is(err, errNone) {
		p.say("%s: %s: %s: %v\n", w.name, b.store.name, b.contender.name, err)
	}
	r.add(k, sample, err, counts)
}

// Write errors are ignored.
func (p *plan) say(format string, args ...any) { _, _ = fmt.Fprintf(p.log, format, args...) }
