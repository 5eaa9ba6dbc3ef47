package sharding

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/tenure-go/tenure/core"
)

// caches are the in-memory caches of a namespace's members, by node and shard.
type caches struct {
	*world
	warmUp time.Duration // how long Prepare takes

	cache  sync.Mutex
	warm   map[string]bool // node and shard
	cold   []string        // shards whose handler began cold, after the first handler
	began  map[string]int  // handlers, by shard
	asked  map[string]int  // calls of Prepare, by shard
	now    int             // in progress
	most   int
	last   time.Time     // when a handler last began
	failed bool          // Prepare fails
	fails  string        // node and shard for which it fails
	hangs  chan struct{} // Prepare returns when this channel is closed, even if its context has ended
}

func newCaches(w *world, warmUp time.Duration) *caches {
	return &caches{world: w, warmUp: warmUp, warm: map[string]bool{}, began: map[string]int{}, asked: map[string]int{}}
}

func (c *caches) start(node string, change func(*Options)) *member {
	return c.member(node, func(m *member, o *Options) {
		o.Prepare = func(ctx context.Context, shard string) error { return c.prepare(ctx, node, shard) }
		o.PrepareAtOnce = 30
		if change != nil {
			change(o)
		}
		m.handler = func(ctx context.Context, l *core.Lease) error {
			c.cache.Lock()
			if c.began[l.Shard()]++; c.began[l.Shard()] > 1 && !c.warm[node+l.Shard()] {
				c.cold = append(c.cold, node+" "+l.Shard())
			}
			c.warm[node+l.Shard()], c.last = true, time.Now()
			c.cache.Unlock()
			err := m.hold(ctx, l)
			c.cache.Lock()
			defer c.cache.Unlock()
			delete(c.warm, node+l.Shard())
			return err
		}
	})
}

func (c *caches) prepare(ctx context.Context, node, shard string) error {
	c.cache.Lock()
	c.asked[shard]++
	c.now++
	c.most = max(c.most, c.now)
	failed := c.failed || c.fails == node+shard
	c.cache.Unlock()
	defer func() {
		c.cache.Lock()
		defer c.cache.Unlock()
		c.now--
	}()
	if c.hangs != nil {
		<-c.hangs
		return ctx.Err()
	}
	if failed {
		return errors.New("the copy failed")
	}
	if !pause(ctx, c.warmUp) {
		return context.Cause(ctx)
	}
	c.cache.Lock()
	defer c.cache.Unlock()
	c.warm[node+shard] = true
	return nil
}

// A planned move waits until the new owner is prepared, while the old owner continues to serve.
// During a join, a drain and a rolling restart, no handler begins cold.
func TestPrepare(t *testing.T) {
	bubble(t, func(w *world) {
		c := newCaches(w, 3*ttl)
		c.start("a", nil)
		w.shares(2*ttl, map[string]int{"a": 30})
		c.start("b", nil)
		time.Sleep(2 * ttl)
		w.shares(0, map[string]int{"a": 30}) // b is still preparing
		w.shares(3*ttl, map[string]int{"a": 15, "b": 15})
		c.start("c", func(o *Options) { o.PrepareAtOnce = 4 })
		w.shares(20*ttl, map[string]int{"a": 10, "b": 10, "c": 10})
		if err := w.members[0].leaveNow(); err != nil {
			w.Error(err)
		}
		c.cache.Lock()
		defer c.cache.Unlock()
		if len(c.cold) > 0 {
			w.Errorf("%d handlers began cold: %v", len(c.cold), c.cold)
		}
		for shard, n := range c.asked {
			if n > 3 {
				w.Errorf("%s was prepared %d times", shard, n)
			}
		}
	})
}

// A preparation that takes too long or fails delays its shard only for the budget. Then, the
// preparation's context ends. Up to PrepareAtOnce preparations run concurrently.
func TestPrepareBudget(t *testing.T) {
	for _, failed := range []bool{false, true} {
		t.Run(fmt.Sprint("failed=", failed), func(t *testing.T) {
			bubble(t, func(w *world) {
				c := newCaches(w, time.Hour)
				c.failed = failed
				change := func(o *Options) {
					o.PrepareBudget, o.PrepareAtOnce, o.Logger = 4*ttl, 15, slog.New(slog.DiscardHandler)
				}
				c.start("a", change)
				w.shares(2*ttl, map[string]int{"a": 30})
				c.start("b", change)
				from := time.Now()
				w.shares(8*ttl, map[string]int{"a": 15, "b": 15})
				took := time.Since(from)
				if failed != (took < 3*ttl) {
					w.Errorf("b had its shards after %v", took)
				}
				time.Sleep(5 * ttl)
				c.cache.Lock()
				defer c.cache.Unlock()
				if c.now > 0 || c.most > 15 {
					w.Errorf("%d preparations go on; at most %d did at once", c.now, c.most)
				}
			})
		})
	}
}

// A preparation that ignores its context delays its shard for the budget, but no longer.
func TestPrepareHangs(t *testing.T) {
	bubble(t, func(w *world) {
		c := newCaches(w, 0)
		c.hangs = make(chan struct{})
		defer close(c.hangs) // before the end of the members, which waits for the preparation
		change := func(o *Options) { o.PrepareBudget, o.Logger = 4*ttl, slog.New(slog.DiscardHandler) }
		c.start("a", change)
		w.shares(2*ttl, map[string]int{"a": 30})
		c.start("b", change)
		time.Sleep(3 * ttl)
		w.shares(0, map[string]int{"a": 30})
		w.shares(5*ttl, map[string]int{"a": 15, "b": 15})
	})
}

// A plan that is made while a member's preparation hangs does not prolong the wait.
func TestPrepareHangsBesideAJoin(t *testing.T) {
	bubble(t, func(w *world) {
		c := newCaches(w, 0)
		c.hangs = make(chan struct{})
		defer close(c.hangs)
		plans := 0
		change := func(o *Options) {
			o.Penalty, o.PrepareBudget, o.Logger = 2*interval, 10*ttl, slog.New(slog.DiscardHandler)
			o.OnPlan = func(*Outcome) { plans++ }
		}
		c.start("a", change)
		w.shares(2*ttl, map[string]int{"a": 30})
		c.start("b", change)
		time.Sleep(2 * ttl)
		c.start("c", change)
		w.shares(14*ttl, map[string]int{"a": 10, "b": 10, "c": 10})
		if plans > 10 {
			w.Errorf("%d plans were written", plans)
		}
	})
}

// With PrepareRequired, a shard that a member cannot prepare goes to another member, and the member
// gets other shards.
func TestPrepareRequired(t *testing.T) {
	for _, hangs := range []bool{false, true} {
		t.Run(fmt.Sprint("hangs=", hangs), func(t *testing.T) {
			bubble(t, func(w *world) {
				c := newCaches(w, ttl)
				change := func(o *Options) {
					o.PrepareRequired, o.PrepareBudget, o.Logger = true, 4*ttl, slog.New(slog.DiscardHandler)
					o.LeaveBudget = time.Hour // after half of this time, a shard moves regardless
				}
				c.start("a", change)
				w.shares(2*ttl, map[string]int{"a": 30})
				if hangs {
					c.hangs = make(chan struct{})
					defer close(c.hangs)
				} else {
					c.failed = true
				}
				c.start("b", change)
				time.Sleep(30 * ttl)
				w.shares(0, map[string]int{"a": 30})
				back := false // the plans show that b could not prepare any shard
				for range 50 {
					time.Sleep(interval)
					back = back || !slices.ContainsFunc(w.members[0].Assignments(), func(a Assignment) bool { return a.Owner.Node == "b" })
				}
				if !back {
					w.Error("the plans give shards to b all the time")
				}
				if hangs {
					return
				}
				c.cache.Lock()
				c.failed, c.fails = false, "borders-07"
				c.cache.Unlock()
				if err := w.members[1].leaveNow(); err != nil {
					w.Error(err)
				}
				c.start("b", change)
				time.Sleep(interval / 2) // the member has joined
				w.members[0].Drain(true)
				time.Sleep(12 * ttl)
				w.shares(0, map[string]int{"a": 1, "b": 29})
				c.start("c", change)
				w.shares(30*ttl, map[string]int{"b": 15, "c": 15})
				c.cache.Lock()
				defer c.cache.Unlock()
				if len(c.cold) > 0 {
					w.Errorf("%d handlers began cold: %v", len(c.cold), c.cold)
				}
			})
		})
	}
}

// A member that leaves waits at most half of its budget for a preparation that fails.
func TestPrepareRequiredOfALeaver(t *testing.T) {
	bubble(t, func(w *world) {
		c := newCaches(w, ttl)
		c.failed = true
		change := func(o *Options) {
			o.PrepareRequired, o.LeaveBudget, o.Logger = true, 40*ttl, slog.New(slog.DiscardHandler)
		}
		c.start("a", change)
		w.shares(2*ttl, map[string]int{"a": 30})
		c.start("b", change)
		time.Sleep(10 * ttl)
		from := time.Now()
		if err := w.members[0].leaveNow(); err != nil {
			w.Error(err)
		}
		if took := time.Since(from); took < 20*ttl || took > 22*ttl {
			w.Errorf("the member left after %v, of 40 s", took)
		}
		w.shares(2*ttl, map[string]int{"b": 30})
	})
}

// With Standby, the heir of each shard is prepared before the owner dies. After a crash, a prepared
// successor owns the shard after the TTL and one call.
func TestStandby(t *testing.T) {
	bubble(t, func(w *world) {
		c := newCaches(w, 2*ttl)
		for _, node := range []string{"a", "b", "c"} {
			c.start(node, func(o *Options) { o.Standby = 1 })
		}
		w.shares(20*ttl, map[string]int{"a": 10, "b": 10, "c": 10})
		time.Sleep(5 * ttl) // the shards' heirs are prepared
		c.cache.Lock()
		c.cold = nil
		c.cache.Unlock()
		from := time.Now()
		w.members[0].crash()
		w.shares(3*ttl, map[string]int{"b": 15, "c": 15})
		c.cache.Lock()
		defer c.cache.Unlock()
		took := c.last.Sub(from)
		if len(c.cold) > 0 || took > ttl+ttl/4 {
			w.Errorf("after %v, with %d handlers that began cold: %v", took, len(c.cold), c.cold)
		}
		w.Logf("every shard is served from a warm cache %v after the crash; the TTL is %v", took, ttl)
	})
}

// Members with and without Prepare hand shards over to one another.
func TestPrepareHereOnly(t *testing.T) {
	bubble(t, func(w *world) {
		c := newCaches(w, 2*ttl)
		c.start("a", nil)
		w.shares(2*ttl, map[string]int{"a": 30})
		w.member("b")
		w.shares(2*ttl, map[string]int{"a": 15, "b": 15})
		if err := w.members[1].leaveNow(); err != nil {
			w.Error(err)
		}
		w.shares(ttl, map[string]int{"a": 30})
	})
}
