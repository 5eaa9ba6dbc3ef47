package core

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"

	"github.com/tenure-go/tenure/core/driver"
)

// forgetful is a store that loses the records and logs of some shards in a failover. It is safe for
// concurrent use.
type forgetful struct {
	driver.Backend
	mu     sync.Mutex
	floor  driver.Token
	forgot []driver.ShardID
}

func (f *forgetful) failOver(floor driver.Token, forgot ...driver.ShardID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.floor, f.forgot = floor, forgot
}

func (f *forgetful) lost() (driver.Token, []driver.ShardID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.floor, f.forgot
}

func (f *forgetful) Observe(ctx context.Context, q driver.ObserveQuery) (*driver.View, error) {
	v, err := f.Backend.Observe(ctx, q)
	if err != nil || !v.Reset {
		return v, err
	}
	floor, forgot := f.lost()
	c := *v
	c.Floor = floor
	c.Shards = slices.DeleteFunc(slices.Clone(v.Shards), func(s driver.ShardState) bool {
		return slices.Contains(forgot, s.Shard)
	})
	return &c, nil
}

func (f *forgetful) ReadLog(
	ctx context.Context, s driver.ShardID, after driver.Seq, limit int,
) (*driver.LogPage, error) {
	if _, forgot := f.lost(); slices.Contains(forgot, s) {
		return &driver.LogPage{}, nil
	}
	return f.Backend.ReadLog(ctx, s, after, limit)
}

// I2: after a failover, a lease that the store does not know is over. Lost commits are reported,
// including those of leases that ended before.
func TestFailoverIsComparedAndReported(t *testing.T) {
	bubble(t, func(w *world) {
		m := w.newMember("a")
		store := &forgetful{Backend: m.tap.Backend}
		m.tap.Backend = store
		var mu sync.Mutex
		var failedOver int
		lost := map[ShardID]*LostError{}
		m.note.h.OnEvent = func(ev Event) {
			mu.Lock()
			defer mu.Unlock()
			var e *LostError
			switch {
			case ev.Kind == SessionFailedOver:
				failedOver++
			case ev.Kind == SessionStoreLost && errors.Is(ev.Err, ErrStoreLost) && errors.As(ev.Err, &e):
				lost[e.Fence.Shard] = e
			}
		}
		m.run()
		held := map[string]*Lease{}
		for _, s := range []string{"kept", "held", "returned"} {
			var h leases
			w.must(m.Contend(h.hold, s))
			held[s] = h.await(w, 1)
			for range 2 {
				_, err := held[s].Append(w.Context(), []byte("x"))
				w.must(err)
			}
		}
		w.must(m.Withdraw(w.Context(), "returned"))
		const floor = 1 << 41
		store.failOver(floor, "held", "returned")
		w.eventually("the report", func() bool {
			mu.Lock()
			defer mu.Unlock()
			return len(lost) == 2 && failedOver == 1
		})
		for _, s := range []ShardID{"held", "returned"} {
			token := held[string(s)].fence.Token
			if e := lost[s]; e == nil || e.Acknowledged.Number != 2 || e.Found.Number != 0 || e.Fence.Token != token {
				w.Errorf("%s: reported %+v, want commits up to 2 under token %d", s, e, token)
			}
		}
		if err := held["held"].Err(); !errors.Is(err, ErrLost) {
			w.Errorf("a lease that the store forgot is %v, want lost", err)
		}
		if o, _ := m.View().Owner("held"); o.Token != floor || o.Session != "" {
			w.Errorf("a shard that the store forgot is %+v, want free with token %d", o, floor)
		}
		w.must(held["kept"].Err())
	})
}

// A failover that Open found is reported at the start.
func TestRollbackIsTold(t *testing.T) {
	bubble(t, func(w *world) {
		m := w.newMember("a")
		m.info.Rollback = "revision 7 is the last"
		var told []string
		m.note.h.OnEvent = func(ev Event) {
			if ev.Kind == SessionFailedOver {
				told = append(told, ev.Err.Error())
			}
		}
		m.run()
		var h leases
		w.must(m.Contend(h.hold, "s"))
		h.await(w, 1)
		w.must(m.end())
		if len(told) != 1 || told[0] != m.info.Rollback {
			w.Errorf("told %q", told)
		}
	})
}

// A process that starts after the failover has nothing to compare.
func TestFirstViewIsNoFailover(t *testing.T) {
	bubble(t, func(w *world) {
		m := w.newMember("a")
		store := &forgetful{Backend: m.tap.Backend}
		m.tap.Backend = store
		store.failOver(1 << 41)
		m.note.h.OnEvent = func(ev Event) {
			if ev.Kind == SessionFailedOver {
				w.Error("a first view is taken for a failover")
			}
		}
		m.run()
		var h leases
		w.must(m.Contend(h.hold, "s"))
		h.await(w, 1)
	})
}
