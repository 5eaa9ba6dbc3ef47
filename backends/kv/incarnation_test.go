package kv_test

import (
	"errors"
	"testing"

	"github.com/tenure-go/tenure/backends/kv"
	"github.com/tenure-go/tenure/backends/memory"
	"github.com/tenure-go/tenure/core/driver"
)

// under opens a backend on a store that has an incarnation.
func under(t *testing.T, s *memory.Store, incarnation string) *fixture {
	t.Helper()
	f := &fixture{t: t, ctx: t.Context(), store: s}
	b, err := kv.Open(f.ctx, s.Client(), kv.Options{
		Backend: "test", Namespace: "test", Create: true, Incarnation: incarnation,
		Limits: driver.Limits{BatchItems: 10, WriteOps: 100, WriteBytes: 1 << 20},
	})
	if err != nil {
		t.Fatal(err)
	}
	f.b = b
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	return f
}

// I2: the first process under another incarnation raises the base, and those that
// were opened before are refused.
func TestOtherIncarnationRaisesTokens(t *testing.T) {
	t.Parallel()
	s := memory.New()
	older := under(t, s, "") // as from before incarnations were recorded
	m := older.join("older")
	first := older.acquire(m, "s", driver.Owner{})

	same := under(t, s, "one")
	second := same.acquire(same.join("same"), "t", driver.Owner{})
	if err := m.Beat(t.Context()); err != nil {
		t.Errorf("a heartbeat after the first incarnation was recorded: %v", err)
	}
	if second.Token <= first.Token || second.Token > first.Token+1000 {
		t.Errorf("token %d after %d in one incarnation", second.Token, first.Token)
	}

	other := under(t, s, "two")
	third := other.acquire(other.join("other"), "u", driver.Owner{})
	if third.Token < second.Token+1<<40 {
		t.Errorf("token %d in another incarnation, after %d: want 2^40 more", third.Token, second.Token)
	}
	for _, f := range []*fixture{older, same} {
		if _, err := f.b.Join(t.Context(), driver.Member{Session: "late", Node: "late", TTL: 1e9}); !errors.Is(err, driver.ErrStoreChanged) {
			t.Errorf("a join under the former incarnation: %v, want ErrStoreChanged", err)
		}
	}
	again := under(t, s, "two")
	if fourth := again.acquire(again.join("again"), "v", driver.Owner{}); fourth.Token <= third.Token || fourth.Token > third.Token+1000 {
		t.Errorf("token %d after %d in one incarnation", fourth.Token, third.Token)
	}
}
