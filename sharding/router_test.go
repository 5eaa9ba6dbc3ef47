package sharding

import (
	"context"
	"errors"
	"testing"

	"github.com/tenure-go/tenure/core"
)

func TestRouter(t *testing.T) {
	bubble(t, func(w *world) {
		a := w.member("a")
		w.shares(ttl, map[string]int{"a": 30})
		r, err := NewRouter(a.e, a.Manager)
		if err != nil {
			w.Fatal(err)
		}
		changes := r.Changes()
		first, err := changes.Next(w.Context())
		if err != nil || len(first) < 30 {
			w.Fatalf("%d routes at first, %v", len(first), err)
		}
		at, err := r.Owner("orders-07")
		if err != nil || at.Node != "a" || !at.Self || at.Token == 0 {
			w.Errorf("%+v, %v", at, err)
		}
		b := w.member("b")
		w.shares(2*interval, map[string]int{"a": 15, "b": 15})
		seen := map[string]Route{}
		ctx, cancel := context.WithTimeout(w.Context(), 5*interval)
		defer cancel()
		for {
			list, err := changes.Next(ctx)
			if err != nil {
				break
			}
			for _, x := range list {
				seen[x.Shard] = x
			}
		}
		n := 0
		for s, o := range w.owners() {
			if o == "b" {
				n++
				if seen[s].Node != "b" || seen[s].Self {
					w.Errorf("%s is b's; the subscription said %+v", s, seen[s])
				}
				if x, err := r.Owner(s); err != nil || !sameRoute(x, seen[s]) {
					w.Errorf("%s: %+v, %v; the subscription said %+v", s, x, err, seen[s])
				}
			}
		}
		if n != 15 {
			w.Errorf("b has %d shards", n)
		}
		if x, err := r.OwnerOfKey("customer-42"); !errors.Is(err, core.ErrInvalid) {
			w.Errorf("%+v, %v without a keyspace", x, err)
		}
		if _, err := r.Owner("nobody"); !errors.Is(err, ErrNoOwner) {
			w.Errorf("%v, want ErrNoOwner", err)
		}
		b.crash()
		a.crash()
		if _, err := changes.Next(w.Context()); err == nil {
			for err == nil {
				_, err = changes.Next(w.Context())
			}
			if !errors.Is(err, core.ErrStopped) {
				w.Errorf("%v, want ErrStopped", err)
			}
		}
	})
}

// sameRoute compares what can change.
func sameRoute(x, y Route) bool {
	return x.Shard == y.Shard && x.Session == y.Session && x.Token == y.Token && x.Self == y.Self
}
