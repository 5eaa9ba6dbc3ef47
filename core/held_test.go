package core

import (
	"context"
	"testing"
)

// Lease returns the lease of a shard whose handler serves it, and no other.
func TestLeaseOfAShard(t *testing.T) {
	bubble(t, func(w *world) {
		m := w.member("a")
		if m.Lease("s") != nil || m.Lease("no such\nshard") != nil {
			w.Error("there is a lease of a shard that nobody contends for")
		}
		var h leases
		finish := make(chan struct{})
		w.must(m.Contend(func(ctx context.Context, l *Lease) error {
			if m.Lease("s") != l {
				w.Error("the handler runs, and Lease is not its lease")
			}
			h.add(l)
			<-ctx.Done()
			<-finish
			return nil
		}, "s"))
		l := h.await(w, 1)
		if m.Lease("s") != l || m.Lease("t") != nil {
			w.Errorf("got %v and %v", m.Lease("s"), m.Lease("t"))
		}
		go func() { w.must(m.Withdraw(context.Background(), "s")) }()
		w.eventually("the handler is asked to stop", func() bool { return m.View().Leases[0].State == LeaseDraining })
		if l.Err() != nil || m.Lease("s") != nil {
			w.Errorf("draining, with a lease that is %v: got %v, want none", l.Err(), m.Lease("s"))
		}
		close(finish)
		w.eventually("the shard is given back", func() bool { return len(m.View().Leases) == 0 })
		if m.Lease("s") != nil {
			w.Error("there is a lease that was given back")
		}
	})
}

// A lease whose trust ran out is not returned, even if the machine has not noticed.
func TestLeaseOfALapsedShard(t *testing.T) {
	onLease(t, func(w *world, m *member, l *Lease) {
		l.trust.until.Store(int64(m.clk.now()))
		if l.Err() == nil || m.Lease("s") != nil {
			w.Errorf("the lease is %v, and Lease returns %v", l.Err(), m.Lease("s"))
		}
	})
}
