package kv_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tenure-go/tenure/backends/kv"
	"github.com/tenure-go/tenure/backends/kv/kvfault"
	"github.com/tenure-go/tenure/backends/memory"
	"github.com/tenure-go/tenure/conformance"
	"github.com/tenure-go/tenure/core/driver"
)

// mutant is a Plain that breaks its contract, or hides what a reader of lanes must
// heed.
type mutant struct {
	kv.Plain
	bug     string
	readers *readers
}

// readers is what the processes on one store read.
type readers struct {
	follow atomic.Bool // one follows the lanes
	next   atomic.Pointer[look]
}

// look is a read that is waited for, of what a batch will write.
type look struct {
	b    *kv.Batch
	once sync.Once
	seen chan struct{}
}

func (r *readers) await(ctx context.Context, b *kv.Batch) {
	// With a detail in the lane nothing is read.
	if !r.follow.Load() || strings.Contains(string(b.Rider.Ops[0].Value), " =") {
		return
	}
	l := &look{b: b, seen: make(chan struct{})}
	r.next.Store(l)
	select {
	case <-l.seen:
	case <-time.After(time.Second): // nobody wants to know
	case <-ctx.Done():
	}
}

func (m *mutant) Get(ctx context.Context, keys ...string) (*kv.Page, error) {
	l := m.readers.next.Load()
	p, err := m.Plain.Get(ctx, keys...)
	if l != nil && slices.ContainsFunc(l.b.Txns, func(t kv.Txn) bool {
		return slices.ContainsFunc(t.Ops, func(op kv.Op) bool { return slices.Contains(keys, op.Key) })
	}) {
		l.once.Do(func() { close(l.seen) })
	}
	return p, err
}

func (m *mutant) Apply(ctx context.Context, b *kv.Batch) (*kv.Outcome, error) {
	if b.Rider == nil {
		return m.Plain.Apply(ctx, b)
	}
	bare, rider := *b, kv.Batch{Txns: []kv.Txn{*b.Rider}}
	bare.Rider = nil
	switch m.bug {
	case "drops hints":
		out, err := m.Plain.Apply(ctx, &bare)
		if err == nil && !out.Refused {
			out.Rider.OK = true
		}
		return out, err
	case "writes hints apart":
		if out, err := m.Plain.Apply(ctx, &rider); err != nil || !out.Results[0].OK {
			return &kv.Outcome{RiderRefused: true}, err
		}
		m.readers.await(ctx, b)
		out, err := m.Plain.Apply(ctx, &bare)
		if err == nil {
			out.Rider.OK = true
		}
		return out, err
	case "applies without hints":
		return m.Plain.Apply(ctx, &bare)
	}
	return m.Plain.Apply(ctx, b)
}

func (m *mutant) Follow(ctx context.Context, prefixes []string, fn func(*kv.Page) error) error {
	m.readers.follow.Store(true)
	return m.Plain.Follow(ctx, prefixes, func(p *kv.Page) error {
		if m.bug == "hides gaps" {
			for i, r := range p.Pairs {
				words := strings.Split(string(r.Value), " ")
				if strings.Contains(r.Key, "/!feed/") {
					words[2] = "0"                     // the floor
					words = words[:min(len(words), 5)] // all but the latest name
					p.Pairs[i].Value = []byte(strings.Join(words, " "))
				}
			}
		}
		if m.bug == "promises too much" {
			p.Rev += 1 << 20
		}
		return fn(p)
	})
}

func mutantHarness(bug string) conformance.Harness {
	return conformance.Harness{Name: "feeds", New: func(conformance.T) *conformance.Store {
		store, readers := memory.New(), new(readers)
		open := func(ctx context.Context) (driver.Backend, error) {
			s := kv.Feeds(&mutant{kvfault.Plain(store.Client()), bug, readers}, kv.FeedOptions{Namespace: "test"})
			b, err := kv.Open(ctx, s, kv.Options{
				Backend: "feeds", Namespace: "test", Create: true,
				Limits: driver.Limits{BatchItems: 60, WriteOps: 256, WriteBytes: 1 << 20, MinTTL: 10 * time.Millisecond},
			})
			if err != nil {
				return nil, errors.Join(err, s.Close())
			}
			return b, nil
		}
		return &conformance.Store{Open: open}
	}}
}

// TestFeedMutantsAreKilled: a store that gives lanes less than they need fails the
// suite, in a case that says so.
func TestFeedMutantsAreKilled(t *testing.T) {
	t.Parallel()
	for _, m := range []struct{ bug, killer string }{
		{"drops hints", "Views/FullThenDelta"},
		{"drops hints", "Log/TailBlocksAndWakes"},
		{"writes hints apart", "Views/FullThenDelta"},
		{"applies without hints", "Acquire/Exclusive"},
		{"hides gaps", "Views/NoLostFinalState"},
		{"promises too much", "Views/FullThenDelta"},
	} {
		t.Run(m.bug+"/"+m.killer, func(t *testing.T) {
			t.Parallel()
			report, err := conformance.Check(t.Context(), mutantHarness(m.bug), m.killer)
			if err != nil {
				t.Fatal(err)
			}
			if len(report.With(conformance.Failed)) != 1 {
				t.Errorf("a store that %s passes %s:\n%v", m.bug, m.killer, report)
			}
			sound, err := conformance.Check(t.Context(), mutantHarness(""), m.killer)
			if err != nil || len(sound.With(conformance.Passed)) != 1 {
				t.Errorf("a sound store does not pass %s: %v\n%v", m.killer, err, sound)
			}
		})
	}
}
