package sharding

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/lock"
)

// TestChangesOfLocks: the subscription reports that a lock is free, although the lock's record is
// gone. This does not depend on the lock's place in the order of names, or on the reader's speed.
func TestChangesOfLocks(t *testing.T) {
	bubble(t, func(w *world) {
		a, b := w.member("a"), w.member("b")
		w.shares(10*ttl, map[string]int{"a": 15, "b": 15})
		r, err := NewRouter(b.e, b.Manager)
		if err != nil {
			w.Fatal(err)
		}
		c, known := r.Changes(), map[string]Route{}
		read := func() (n int) {
			ctx, cancel := context.WithTimeout(w.Context(), ttl)
			defer cancel()
			for {
				list, err := c.Next(ctx)
				if err != nil {
					return n
				}
				for _, x := range list {
					known[x.Shard] = x
				}
				n += len(list)
			}
		}
		read()
		locks := lock.Open(a.e)
		var held []*lock.Lock
		for _, name := range []string{"a", "m", "z"} {
			k, err := locks.Lock(w.Context(), name)
			if err != nil {
				w.Fatal(err)
			}
			held = append(held, k)
		}
		if read(); known["_lock.m"].Node != "a" {
			w.Errorf("a lock that is held: %+v", known["_lock.m"])
		}
		again := known["_lock.z"].Token
		for _, k := range held {
			if err := k.Unlock(w.Context()); err != nil {
				w.Fatal(err)
			}
		}
		if held[2], err = locks.Lock(w.Context(), "z"); err != nil { // freed and taken between two reads
			w.Fatal(err)
		}
		time.Sleep(interval)
		read()
		for _, name := range []string{"a", "m"} {
			if x := known["_lock."+name]; x.Session != "" || x.Node != "" {
				w.Errorf("a lock that is free: %+v", x)
			}
		}
		if x := known["_lock.z"]; x.Node != "a" || x.Token == again {
			w.Errorf("a lock that was taken again: %+v", x)
		}
		time.Sleep(interval)
		if n := read(); n != 0 {
			w.Errorf("%d changes where nothing changes", n)
		}
		if err := held[2].Unlock(w.Context()); err != nil {
			w.Fatal(err)
		}
		if read(); known["_lock.z"].Session != "" {
			w.Errorf("the last of all is free: %+v", known["_lock.z"])
		}
		if err := locks.Close(); err != nil {
			w.Error(err)
		}
	})
}

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

func sameRoute(x, y Route) bool {
	return x.Shard == y.Shard && x.Session == y.Session && x.Token == y.Token && x.Self == y.Self
}
