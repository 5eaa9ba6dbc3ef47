package lock

import (
	"context"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenure-go/tenure/backends/kv"
	"github.com/tenure-go/tenure/backends/memory"
	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/internal/proof/kvfault"
)

const ttl = time.Second

// world is a store and the processes that take locks in it, in a bubble of fake time. If a
// goroutine is left at the end, the test fails.
type world struct {
	*testing.T
	store *memory.Store
}

func bubble(t *testing.T, f func(w *world)) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { f(&world{T: t, store: memory.New()}) })
}

type process struct {
	*Locks
	w    *world
	b    *kv.Backend
	link *kvfault.Link
	late atomic.Int64 // how late, in nanoseconds, the process sees changes
}

type lateViews struct {
	kv.Store
	by *atomic.Int64
}

func (s lateViews) Watch(ctx context.Context, prefixes []string, after kv.Rev, fn func(kv.Rev, []kv.Change) error) error {
	return s.Store.Watch(ctx, prefixes, after, func(rev kv.Rev, changes []kv.Change) error {
		time.Sleep(time.Duration(s.by.Load()))
		return fn(rev, changes)
	})
}

// process starts a process, waits until it has joined, and closes it when the test ends.
func (w *world) process(node string) *process {
	w.Helper()
	p := &process{w: w, link: &kvfault.Link{}}
	var err error
	if p.b, err = memory.Open(context.Background(), w.store, "test", &memory.Options{
		Wrap: func(s kv.Store) kv.Store { return lateViews{p.link.Wrap(s), &p.late} }}); err != nil {
		w.Fatal(err)
	}
	p.Locks, err = New(p.b, &core.Options{Node: node, TTL: ttl, LockDir: "none", Seed: 7, DrainBudget: time.Minute,
		Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() {
		p.link.Heal()
		if err := p.Close(); err != nil {
			w.Errorf("closing %s: %v", node, err)
		}
		if err := p.b.Close(); err != nil {
			w.Error(err)
		}
	})
	k := p.lock("joins-" + node)
	p.unlock(k)
	return p
}

func (p *process) lock(name string) *Lock {
	p.w.Helper()
	k, err := p.Lock(p.w.Context(), name)
	if err != nil {
		p.w.Fatal(err)
	}
	return k
}

func (p *process) unlock(k *Lock) {
	p.w.Helper()
	if err := k.Unlock(context.Background()); err != nil {
		p.w.Fatal(err)
	}
}

// waits begins a call of Lock, and returns once that call waits.
func (p *process) waits(ctx context.Context, name string) (had chan *Lock, failed chan error) {
	had, failed = make(chan *Lock, 1), make(chan error, 1)
	go func() {
		k, err := p.Lock(ctx, name)
		if err != nil {
			failed <- err
			return
		}
		had <- k
	}()
	synctest.Wait()
	return had, failed
}
