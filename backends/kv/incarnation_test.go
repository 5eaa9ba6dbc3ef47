package kv_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tenure-go/tenure/backends/kv"
	"github.com/tenure-go/tenure/backends/memory"
	"github.com/tenure-go/tenure/core/driver"
)

// under opens a backend on a store that has an incarnation.
func under(t *testing.T, s *memory.Store, incarnation string) *fixture {
	t.Helper()
	f := &fixture{t: t, ctx: t.Context(), store: s}
	var err error
	if f.b, err = openUnder(f.ctx, s, incarnation, time.Now()); err != nil {
		t.Fatal(err)
	}
	b := f.b
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	return f
}

func openUnder(ctx context.Context, s *memory.Store, incarnation string, now time.Time) (*kv.Backend, error) {
	return kv.Open(ctx, s.Client(), kv.Options{
		Backend: "test", Namespace: "test", Create: true, Incarnation: incarnation, Now: now,
		Limits: driver.Limits{BatchItems: 10, WriteOps: 100, WriteBytes: 1 << 20},
	})
}

// I2: the first process under a new incarnation raises the base, and earlier backends are refused.
func TestOtherIncarnationRaisesTokens(t *testing.T) {
	t.Parallel()
	s := memory.New()
	older := under(t, s, "") // as before incarnations were recorded
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
		if _, err := f.b.Join(t.Context(), driver.Member{Session: "late", Node: "late", TTL: 5e9}); !errors.Is(err, driver.ErrStoreChanged) {
			t.Errorf("a join under the former incarnation: %v, want ErrStoreChanged", err)
		}
	}
	again := under(t, s, "two")
	if fourth := again.acquire(again.join("again"), "v", driver.Owner{}); fourth.Token <= third.Token || fourth.Token > third.Token+1000 {
		t.Errorf("token %d after %d in one incarnation", fourth.Token, third.Token)
	}
}

// I2: after two failovers from the same state, the stores do not know of each other. The later
// failover has the greater tokens, even if it is only slightly later.
func TestTwoForksOfOneState(t *testing.T) {
	t.Parallel()
	at := time.Now()
	var newest driver.Token
	for n := range 30 {
		s := memory.New()
		first := under(t, s, "first")
		first.acquire(first.join("first"), "s", driver.Owner{})
		b, err := openUnder(t.Context(), s, "another", at.Add(time.Duration(n)*100*time.Microsecond))
		if err != nil {
			t.Fatal(err)
		}
		defer b.Close()
		f := &fixture{t: t, ctx: t.Context(), store: s, b: b}
		for i := range 3 {
			shard := driver.ShardID(fmt.Sprint("t", i))
			fence := f.acquire(f.join(driver.SessionID(fmt.Sprint("n", i))), shard, driver.Owner{})
			if fence.Token <= newest {
				t.Fatalf("failover %d granted token %d; token %d had been granted by the one before", n, fence.Token, newest)
			}
			newest = fence.Token
		}
	}
}

// I2: if the clock is behind the tokens after a failover, processes halt until an operator raises
// the floor.
func TestForkWithClockBehind(t *testing.T) {
	t.Parallel()
	s := memory.New()
	first := under(t, s, "one")
	first.acquire(first.join("n1"), "s", driver.Owner{})
	second := under(t, s, "two")
	newest := second.acquire(second.join("n2"), "t", driver.Owner{})
	_, err := openUnder(t.Context(), s, "three", time.Now().Add(-time.Hour))
	if !errors.Is(err, driver.ErrStoreChanged) || !strings.Contains(err.Error(), "clock") {
		t.Fatalf("a failover an hour before the one before: %v; want ErrStoreChanged, and what the clock says", err)
	}
	raise := func(to driver.Token) {
		if err := kv.RaiseFloor(t.Context(), s.Client(), "test", to); err != nil {
			t.Fatal(err)
		}
	}
	raise(newest.Token) // not beyond the operator's clock, which is right
	if _, err := openUnder(t.Context(), s, "three", time.Now().Add(-time.Hour)); !errors.Is(err, driver.ErrStoreChanged) {
		t.Errorf("with a floor that is behind the clock: %v; want ErrStoreChanged", err)
	}
	newest.Token = driver.Token(time.Now().Add(time.Minute).UnixMicro())
	raise(newest.Token + 1000)
	b, err := openUnder(t.Context(), s, "three", time.Now().Add(-time.Hour))
	if err != nil {
		t.Fatalf("after the floor was raised: %v", err)
	}
	defer b.Close()
	third := &fixture{t: t, ctx: t.Context(), store: s, b: b}
	if fence := third.acquire(third.join("n3"), "u", driver.Owner{}); fence.Token <= newest.Token+1000 {
		t.Errorf("token %d after the floor was raised above %d", fence.Token, newest.Token+1000)
	}
}
