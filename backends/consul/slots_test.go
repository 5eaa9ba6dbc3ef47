package consul

import (
	"context"
	"testing"
)

// TestIdleSlots: two connections of overlapping heartbeats stay open, and are used before new
// connections. If a request ended without an answer, its slot is used next, because the cause may
// also have broken other connections (E4).
func TestIdleSlots(t *testing.T) {
	t.Parallel()
	dropped := make(map[*slot]bool)
	l, err := newSlots(1, func() (*slot, error) {
		one := new(slot)
		one.drop = func() { dropped[one] = true }
		return one, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for k := range kinds {
		clear(dropped)
		of := l.kinds[k]
		taken := make([]*slot, cap(of.free))
		for i := range taken {
			if taken[i], err = of.take(context.Background()); err != nil {
				t.Fatal(err)
			}
		}
		for _, one := range taken {
			of.give(one)
		}
		want := 0
		if k == heartbeats {
			want = len(taken) - heartbeatsIdle
		}
		if len(dropped) != want {
			t.Errorf("kind %d: %d connections were dropped, want %d", k, len(dropped), want)
		}
		one, err := of.take(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		if dropped[one] {
			t.Errorf("kind %d: a request has to connect beside open connections", k)
		}
		one.end()
		of.give(one)
		if again, err := of.take(context.Background()); err != nil || again != one {
			t.Errorf("kind %d: the request after one that ended has a connection that may be lost, %v", k, err)
		}
	}
}
