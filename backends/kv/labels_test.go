package kv_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tenure-go/tenure/backends/kv"
	"github.com/tenure-go/tenure/backends/memory"
	"github.com/tenure-go/tenure/conformance"
	"github.com/tenure-go/tenure/core/driver"
)

// labelStore shows removals of node labels to a test before they are applied. It may replace the
// writes of package kv by the writes of a backend with a bug.
type labelStore struct {
	kv.Store
	bug     string
	removal func(labels []string)
	reads   time.Duration // duration of a read
}

var limits = driver.Limits{BatchItems: 100, WriteOps: 100, WriteBytes: 1 << 20}

func isRemoved(key string) bool { return strings.HasSuffix(key, "/!node/!removed") }
func isMember(key string) bool  { return strings.Contains(key, "/!state/member/") }

// removed returns the labels that a batch removes.
func removed(b *kv.Batch) (labels []string) {
	for _, t := range b.Txns {
		for _, op := range t.Ops {
			if _, label, ok := strings.Cut(op.Key, "/!node/"); ok && op.Delete {
				labels = append(labels, label)
			}
		}
	}
	return labels
}

func (s labelStore) Apply(ctx context.Context, b *kv.Batch) (*kv.Outcome, error) {
	labels := removed(b)
	if len(labels) > 0 && s.removal != nil {
		s.removal(labels)
	}
	sent := *b
	sent.Txns = slices.Clone(b.Txns)
	for i := range sent.Txns {
		t := &sent.Txns[i]
		drop := func(key string) {
			t.If = slices.DeleteFunc(slices.Clone(t.If), func(c kv.Compare) bool { return c.Key == key })
		}
		switch {
		case s.bug == "never removes" && len(labels) > 0:
			return &kv.Outcome{Results: make([]kv.Result, len(b.Txns))}, nil
		case s.bug == "removes what has changed" && len(labels) > 0:
			t.If = slices.DeleteFunc(slices.Clone(t.If), func(c kv.Compare) bool { return !isRemoved(c.Key) })
		case s.bug == "joins whatever was removed" && len(labels) == 0,
			s.bug == "removes in silence" && len(labels) > 0:
			for _, c := range t.If {
				if isRemoved(c.Key) {
					drop(c.Key)
				}
			}
		}
		if s.bug == "removes in silence" && len(labels) > 0 {
			t.Ops = slices.DeleteFunc(slices.Clone(t.Ops), func(op kv.Op) bool { return isRemoved(op.Key) })
		}
	}
	return s.Store.Apply(ctx, &sent)
}

func (s labelStore) Get(ctx context.Context, keys ...string) (*kv.Page, error) {
	select {
	case <-time.After(s.reads):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	p, err := s.Store.Get(ctx, keys...)
	if err == nil && s.bug == "takes everybody for dead" && isMember(keys[0]) {
		p = &kv.Page{Rev: p.Rev, Pairs: slices.Clone(p.Pairs)}
		for i := range p.Pairs {
			p.Pairs[i] = kv.Pair{Key: keys[i]}
		}
	}
	return p, err
}

func (s labelStore) Range(ctx context.Context, q kv.Range) (*kv.Page, error) {
	p, err := s.Store.Range(ctx, q)
	if err == nil && s.bug == "takes everybody for dead" && isMember(q.Prefix) {
		p = &kv.Page{Rev: p.Rev}
	}
	return p, err
}

// labelHarness is a harness for a backend with a bug. Behind a wire, each read takes some time, as
// on a busy machine.
func labelHarness(bug string, reads time.Duration) conformance.Harness {
	return conformance.Harness{Name: "labels", New: func(conformance.T) *conformance.Store {
		store := memory.New()
		open := func(ctx context.Context, s kv.Store) (driver.Backend, error) {
			b, err := kv.Open(ctx, s, kv.Options{Backend: "labels", Namespace: "test", Create: true, Limits: limits})
			if err != nil {
				return nil, errors.Join(err, s.Close())
			}
			return b, nil
		}
		return &conformance.Store{
			Open: func(ctx context.Context) (driver.Backend, error) {
				return open(ctx, labelStore{Store: store.Client(), bug: bug})
			},
			OpenFaulty: func(ctx context.Context) (driver.Backend, *conformance.Wire, error) {
				wrap, wire := conformance.KVFaults()
				b, err := open(ctx, labelStore{Store: wrap(store.Client()), bug: bug, reads: reads})
				return b, wire, err
			},
		}
	}}
}

// TestLabelMutantsAreKilled: a backend that removes node labels incorrectly fails the suite's case
// for that rule.
func TestLabelMutantsAreKilled(t *testing.T) {
	t.Parallel()
	for _, m := range []struct {
		bug, killer string
		reads       time.Duration
	}{
		{"never removes", "Labels/Bounded", 0},
		{"takes everybody for dead", "Labels/OfTheLivingStay", 0},
		{"joins whatever was removed", "Labels/LateJoinFails", 0},
		{"joins whatever was removed", "Labels/LateJoinFails", 300 * time.Millisecond},
		{"removes in silence", "Labels/LateJoinFails", 0},
		{"removes in silence", "Labels/IdNeverRevived", 0},
	} {
		t.Run(fmt.Sprint(m.bug, "/", m.killer, "/", m.reads), func(t *testing.T) {
			t.Parallel()
			report, err := conformance.Check(t.Context(), labelHarness(m.bug, m.reads), m.killer)
			if err != nil {
				t.Fatal(err)
			}
			if report.Err() == nil {
				t.Errorf("a backend that %s passes %s:\n%v", m.bug, m.killer, report)
			}
			sound, err := conformance.Check(t.Context(), labelHarness("", m.reads), m.killer)
			if err != nil || !strings.Contains(sound.String(), ": 1 passed") {
				t.Errorf("a sound backend does not pass %s: %v\n%v", m.killer, err, sound)
			}
		})
	}
}

// TestRemovalRacesJoin: if a session joins under a label just before the label's removal is
// applied, the removal does not touch the record.
func TestRemovalRacesJoin(t *testing.T) {
	t.Parallel()
	for bug, want := range map[string]bool{"": true, "removes what has changed": false} {
		store := memory.New()
		rival := on(t, store, 100)
		var once sync.Once
		var label string
		b, err := kv.Open(t.Context(), labelStore{Store: store.Client(), bug: bug, removal: func(labels []string) {
			once.Do(func() {
				label = labels[0]
				_, err := rival.b.Join(t.Context(), driver.Member{Session: "rival", Node: label, TTL: limits.MinTTL + 5e9})
				if err != nil {
					t.Error(err)
				}
			})
		}}, kv.Options{Backend: "test", Namespace: "test", Create: true, Limits: limits})
		if err != nil {
			t.Fatal(err)
		}
		defer b.Close()
		for i := range 3 * driver.MaxIdleLabels {
			id := fmt.Sprint("s", i)
			s, err := b.Join(t.Context(), driver.Member{Session: driver.SessionID(id), Node: "n" + id, TTL: 5e9})
			if err != nil {
				t.Fatal(err)
			}
			if err := s.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		labels, err := b.Labels(t.Context())
		if err != nil || label == "" {
			t.Fatalf("labels %v, %v; removing %q", labels, err, label)
		}
		if got := slices.Contains(labels, label); got != want {
			t.Errorf("%q: the label of a session that joined before its removal has a record: %v, want %v", bug, got, want)
		}
	}
}

// together makes the first reads of two joins end at the same time.
type together struct {
	kv.Store
	reads *sync.WaitGroup
	once  sync.Once
}

func (s *together) wait(keys []string) {
	if slices.ContainsFunc(keys, isRemoved) {
		s.once.Do(func() {
			s.reads.Done()
			s.reads.Wait()
		})
	}
}

func (s *together) Get(ctx context.Context, keys ...string) (*kv.Page, error) {
	page, err := s.Store.Get(ctx, keys...)
	s.wait(keys)
	return page, err
}

func (s *together) Apply(ctx context.Context, b *kv.Batch) (*kv.Outcome, error) {
	out, err := s.Store.Apply(ctx, b)
	for _, t := range b.Txns {
		if len(t.Ops) == 0 {
			s.wait(t.Else)
		}
	}
	return out, err
}

// TestFirstMembersJoinTogether: two members with different labels join a new namespace together,
// and neither is refused.
func TestFirstMembersJoinTogether(t *testing.T) {
	store, reads := memory.New(), &sync.WaitGroup{}
	reads.Add(2)
	var joins sync.WaitGroup
	for _, node := range []string{"a", "b"} {
		wrap := func(s kv.Store) kv.Store { return &together{Store: s, reads: reads} }
		b, err := memory.Open(t.Context(), store, "app", &memory.Options{Wrap: wrap})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { b.Close() })
		joins.Go(func() {
			if _, err := b.Join(t.Context(), driver.Member{Session: driver.SessionID("s-" + node), Node: node, TTL: time.Minute}); err != nil {
				t.Errorf("%s: %v", node, err)
			}
		})
	}
	joins.Wait()
}
