package changelog_test

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
	"github.com/tenure-go/tenure/backends/memory"
	"github.com/tenure-go/tenure/conformance"
	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/changelog"
	"github.com/tenure-go/tenure/internal/proof/mutate"
	"github.com/tenure-go/tenure/internal/proof/watchless"
)

// mutant is a Store that breaks the contract, or hides changes that a reader of change logs needs.
type mutant struct {
	changelog.Store
	bug     string
	readers *readers
}

// readers are the reads of the processes on one store.
type readers struct {
	follow atomic.Bool // one follows the change logs
	next   atomic.Pointer[look]
}

// look is a read of the records that a batch will write. The batch waits for this read.
type look struct {
	b    *changelog.Batch
	once sync.Once
	seen chan struct{}
}

func (r *readers) await(ctx context.Context, b *changelog.Batch) {
	// An entry with an inline value causes no read.
	if !r.follow.Load() || strings.Contains(string(b.Piggyback.Ops[0].Value), " =") {
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

func (m *mutant) Get(ctx context.Context, names ...string) (*kv.Page, error) {
	l := m.readers.next.Load()
	p, err := m.Store.Get(ctx, names...)
	if l != nil && slices.ContainsFunc(l.b.Txns, func(t kv.Txn) bool {
		return slices.ContainsFunc(t.Ops, func(op kv.Op) bool { return slices.Contains(names, op.Key) })
	}) {
		l.once.Do(func() { close(l.seen) })
	}
	return p, err
}

func (m *mutant) Apply(ctx context.Context, b *changelog.Batch) (*changelog.Outcome, error) {
	if b.Piggyback == nil {
		return m.Store.Apply(ctx, b)
	}
	bare, logged := *b, changelog.Batch{Batch: kv.Batch{Txns: []kv.Txn{*b.Piggyback}}}
	bare.Piggyback = nil
	switch m.bug {
	case "drops entries":
		out, err := m.Store.Apply(ctx, &bare)
		if err == nil && !out.Refused {
			out.Piggyback.OK = true
		}
		return out, err
	case "writes entries apart":
		if out, err := m.Store.Apply(ctx, &logged); err != nil || !out.Results[0].OK {
			return &changelog.Outcome{PiggybackRefused: true}, err
		}
		m.readers.await(ctx, b)
		out, err := m.Store.Apply(ctx, &bare)
		if err == nil {
			out.Piggyback.OK = true
		}
		return out, err
	case "applies without entries":
		return m.Store.Apply(ctx, &bare)
	}
	return m.Store.Apply(ctx, b)
}

func (m *mutant) Follow(ctx context.Context, prefixes []string, fn func(*kv.Page) error) error {
	m.readers.follow.Store(true)
	return m.Store.Follow(ctx, prefixes, func(p *kv.Page) error {
		if m.bug == "hides gaps" {
			for i, r := range p.Pairs {
				words := strings.Split(string(r.Value), " ")
				if strings.HasPrefix(r.Key, keys.ChangeLogs()) {
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
	return conformance.Harness{Name: "changelog", New: func(conformance.T) *conformance.Store {
		store, readers := memory.New(), new(readers)
		open := func(ctx context.Context) (driver.Backend, error) {
			s := changelog.New(&mutant{watchless.New(store.Client()), bug, readers}, string(keys), changelog.Options{})
			b, err := kv.Open(ctx, s, kv.Options{
				Backend: "changelog", Namespace: "test", Create: true,
				Limits: driver.Limits{BatchItems: 60, WriteOps: 256, WriteBytes: 1 << 20,
					MinTTL: 10 * time.Millisecond},
			})
			if err != nil {
				return nil, errors.Join(err, s.Close())
			}
			return b, nil
		}
		return &conformance.Store{Open: open}
	}}
}

// TestMutantsAreKilled: a store that breaks a rule on which change logs rely fails the suite in the
// expected case.
func TestMutantsAreKilled(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("-short: .ci/run runs it")
	}
	for _, m := range []struct{ bug, killer string }{
		{"drops entries", "Views/FullThenDelta"},
		{"drops entries", "Log/TailBlocksAndWakes"},
		{"writes entries apart", "Views/FullThenDelta"},
		{"applies without entries", "Acquire/Exclusive"},
		{"hides gaps", "Views/NoLostFinalState"},
		{"promises too much", "Views/FullThenDelta"},
	} {
		t.Run(m.bug+"/"+m.killer, func(t *testing.T) {
			t.Parallel()
			report, err := conformance.Check(t.Context(), mutantHarness(m.bug), m.killer)
			if err != nil {
				t.Fatal(err)
			}
			if report.Err() == nil {
				t.Errorf("a store that %s passes %s:\n%v", m.bug, m.killer, report)
			}
			sound, err := conformance.Check(t.Context(), mutantHarness(""), m.killer)
			if err != nil || !strings.Contains(sound.String(), ": 1 passed") {
				t.Errorf("a sound store does not pass %s: %v\n%v", m.killer, err, sound)
			}
		})
	}
}

var mutantsFlag = mutate.Flag()

func TestMutants(t *testing.T) {
	mutate.All(t, mutantsFlag, time.Minute, false, []mutate.Mutant{
		{Name: "a process removes its own change log when it was idle", Killer: "TestOwnChangeLogsStay/follows=false",
			Edits: []mutate.Edit{{File: "observer.go", In: "stale", Old: " && !mine(name) {", New: " {"}}},
		{Name: "a process knows only the last of its change logs", Killer: "TestOwnChangeLogsStay/follows=false",
			Edits: []mutate.Edit{{File: "apply.go", In: "writers.mine", Old: "func(l *writer) bool { return l.name == name })",
				New: "func(l *writer) bool { return l.name == name && l == w.all[len(w.all)-1] })"}}},
	})
}
