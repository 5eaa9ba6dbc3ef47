package main

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenure-go/tenure/backends/memory"
	"github.com/tenure-go/tenure/core"
)

// TestZombie checks that a superseded leader can no longer set a rate, and that no follower sees
// such a rate.
func TestZombie(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New()
		leases := make(chan *core.Lease, 2)
		member := func(node string) (*core.Elector, func()) {
			b, err := memory.Open(t.Context(), store, "rates", nil)
			if err != nil {
				t.Fatal(err)
			}
			e, err := core.NewElector(b, &core.Options{Node: node, TTL: time.Second})
			if err != nil {
				t.Fatal(err)
			}
			if err := e.Contend(func(ctx context.Context, lease *core.Lease) error {
				leases <- lease
				<-ctx.Done()
				return nil
			}, shard); err != nil {
				t.Fatal(err)
			}
			ctx, stop := context.WithCancel(context.Background())
			done := make(chan error, 1)
			go func() { done <- e.Run(ctx) }()
			return e, func() {
				stop()
				if err := <-done; err != nil {
					t.Error(err)
				}
				b.Close()
			}
		}
		a, stopA := member("a")
		first := <-leases
		if err := set(t.Context(), first, map[string]float64{"EUR/USD": 1.1, "GBP/USD": 1.3}); err != nil {
			t.Fatal(err)
		}

		b, err := memory.Open(t.Context(), store, "rates", nil)
		if err != nil {
			t.Fatal(err)
		}
		defer b.Close()
		d := &board{b: b}
		if _, err := d.rate("EUR/USD", time.Hour); err == nil {
			t.Error("served before anything was read")
		}
		check := func(want float64) {
			t.Helper()
			if err := d.refresh(t.Context()); err != nil {
				t.Fatal(err)
			}
			if got, err := d.rate("EUR/USD", time.Second); err != nil || got != want {
				t.Errorf("got %v, %v, want %v", got, err, want)
			}
		}
		check(1.1)

		_, stopB := member("b")
		time.Sleep(time.Second)
		if err := a.Withdraw(t.Context(), shard); err != nil {
			t.Fatal(err)
		}
		second := <-leases
		if err := set(t.Context(), second, map[string]float64{"EUR/USD": 1.2}); err != nil {
			t.Fatal(err)
		}
		if err := set(t.Context(), first, map[string]float64{"EUR/USD": 9.9}); !core.NotApplied(err) {
			t.Errorf("the former leader's write: %v", err)
		}
		check(1.2)
		if got, err := d.rate("GBP/USD", time.Second); err != nil || got != 1.3 {
			t.Errorf("the rates of the former leader: %v, %v", got, err)
		}
		time.Sleep(10 * time.Second)
		if _, err := d.rate("EUR/USD", 5*time.Second); err == nil || !strings.Contains(err.Error(), "10s old") {
			t.Errorf("an old copy was served: %v", err)
		}
		stopA()
		stopB()
	})
}

// TestStoreWentBack checks that a board refuses an older table.
func TestStoreWentBack(t *testing.T) {
	d := &board{t: &table{Token: 7}}
	store := memory.New()
	b, err := memory.Open(t.Context(), store, "rates", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	d.b = b
	if err := d.refresh(t.Context()); err == nil || !strings.Contains(err.Error(), "went back") {
		t.Errorf("got %v", err)
	}
}
