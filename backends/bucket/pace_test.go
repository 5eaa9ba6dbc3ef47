package bucket

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenure-go/tenure/backends/kv"
	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/sharding"
)

// far opens a store whose requests take the given time.
func far(t *testing.T, c *cloud, latency time.Duration) *store {
	conf := testConfig(c, "app", true)
	conf.bucket, conf.second, conf.Poll = c.far(latency), c.far(latency), time.Second
	s, err := prepare(t.Context(), conf)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// load keeps a store busy with several callers until ctx ends, and returns the number of writes.
func load(ctx context.Context, t *testing.T, s *store, callers int) (writes int) {
	var all sync.WaitGroup
	var mu sync.Mutex
	for i := range callers {
		all.Go(func() {
			for ctx.Err() == nil {
				out, err := s.Apply(t.Context(), put(fmt.Sprintf("app/%s/%d", s.writer, i), false))
				if err != nil || !out.Results[0].OK {
					t.Errorf("a write answers %v, %v", out, err)
					return
				}
				mu.Lock()
				writes++
				mu.Unlock()
			}
		})
	}
	all.Wait()
	return writes
}

func put(key string, beat bool) *kv.Batch {
	return &kv.Batch{Heartbeat: beat, Txns: []kv.Txn{{Ops: []kv.Op{{Key: key, Value: []byte("v")}}}}}
}

// beat sends a heartbeat about once a second until ctx ends, and returns how long each took.
func beat(ctx context.Context, t *testing.T, s *store) (took []time.Duration) {
	for ctx.Err() == nil {
		time.Sleep(500*time.Millisecond + rand.N(time.Second))
		began := time.Now()
		if _, err := s.Apply(t.Context(), put("app/beat/"+s.writer, true)); err != nil {
			t.Errorf("a heartbeat answers %v", err)
			return took
		}
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	return took
}

func closeAll(t *testing.T, stores ...*store) {
	for _, s := range stores {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestFair: a process that writes without a pause lets the heartbeats of others through, also of
// one whose requests take longer, and of several.
func TestFair(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name         string
		busy, rivals int
		near, far    time.Duration
		most         time.Duration // of 99 of 100 heartbeats
	}{
		{"one of each", 1, 1, 20 * time.Millisecond, 20 * time.Millisecond, 400 * time.Millisecond},
		// Its first object waits for a long pause of the busy process.
		{"a rival that is far away", 1, 1, 10 * time.Millisecond, 150 * time.Millisecond, 30 * time.Second},
		{"ten busy members", 10, 1, 20 * time.Millisecond, 20 * time.Millisecond, 2 * time.Second},
		{"ten members", 0, 10, 20 * time.Millisecond, 20 * time.Millisecond, 200 * time.Millisecond},
	} {
		if testing.Short() && c.busy+c.rivals > 2 {
			continue
		}
		synctest.Test(t, func(t *testing.T) {
			fake := newCloud()
			fake.latency = c.near
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			var stores []*store
			var all sync.WaitGroup
			var mu sync.Mutex
			writes, took := 0, []time.Duration(nil)
			for i := range c.busy + c.rivals {
				latency := c.near
				if i >= c.busy {
					latency = c.far
				}
				s := far(t, fake, latency)
				stores = append(stores, s)
				all.Go(func() {
					var n int
					var own []time.Duration
					if i < c.busy {
						n = load(ctx, t, s, 16)
					} else {
						own = beat(ctx, t, s)
					}
					mu.Lock()
					defer mu.Unlock()
					writes += n
					took = append(took, own...)
				})
			}
			all.Wait()
			closeAll(t, stores...)
			if slices.Sort(took); len(took) == 0 {
				t.Fatalf("%s: no heartbeat was answered", c.name)
			}
			p50, p99, longest := took[len(took)/2], took[len(took)*99/100], took[len(took)-1]
			t.Logf("%s: %d heartbeats took %v, 99 of 100 at most %v, the longest %v; %d writes in 2 min", c.name, len(took), p50, p99,
				longest, writes)
			if p99 > c.most {
				t.Errorf("%s: 99 of 100 heartbeats took up to %v, want %v", c.name, p99, c.most)
			}
			if c.busy == 1 && writes < 16*250 {
				t.Errorf("%s: the busy process made only %d writes", c.name, writes)
			}
		})
	}
}

// TestSlowBucket: processes make progress although a request takes longer than the poll period.
func TestSlowBucket(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		fake := newCloud()
		fake.latency = 1500 * time.Millisecond
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		busy, rival, watcher := far(t, fake, 0), far(t, fake, 0), far(t, fake, 0)
		var all sync.WaitGroup
		var took []time.Duration
		seen := 0
		all.Go(func() { load(ctx, t, busy, 4) })
		all.Go(func() { took = beat(ctx, t, rival) })
		all.Go(func() {
			err := watcher.Watch(ctx, []string{"app/beat/"}, 0, func(_ kv.Rev, changes []kv.Change) error {
				seen += len(changes)
				return nil
			})
			if ctx.Err() == nil {
				t.Errorf("the watch ends with %v", err)
			}
		})
		all.Wait()
		closeAll(t, busy, rival, watcher)
		longest := took[len(took)-1]
		t.Logf("%d heartbeats took %v, the longest %v; a watch saw %d", len(took), took[len(took)/2], longest, seen)
		if took[len(took)/2] > 20*time.Second || seen < len(took)/2 {
			t.Errorf("of %d heartbeats half took %v, and a watch saw %d", len(took), took[len(took)/2], seen)
		}
	})
}

// TestGroupCommit: 64 callers cost no more requests than 4.
func TestGroupCommit(t *testing.T) {
	t.Parallel()
	requests := map[int]int64{}
	for _, callers := range []int{4, 64} {
		synctest.Test(t, func(t *testing.T) {
			fake := newCloud()
			fake.latency = 20 * time.Millisecond
			s := far(t, fake, 0)
			before := fake.creates.Load()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			n := load(ctx, t, s, callers)
			requests[callers] = fake.creates.Load() - before
			t.Logf("%d callers: %d writes in %d objects a minute", callers, n, requests[callers])
			closeAll(t, s)
		})
	}
	if requests[64] > requests[4]*11/10 {
		t.Errorf("creates a minute by callers: %v", requests)
	}
}

// TestCosts prints what docs/backends/bucket.md says: requests an hour, at the default TTL.
func TestCosts(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name            string
		members, shards int
	}{
		{"one member, one leader", 1, 0},
		{"ten members, 100 shards", 10, 100},
	} {
		if testing.Short() && c.members > 1 {
			continue
		}
		synctest.Test(t, func(t *testing.T) {
			fake := newCloud()
			fake.latency = 30 * time.Millisecond
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var all sync.WaitGroup
			serve := func(ctx context.Context, _ *core.Lease) error { <-ctx.Done(); return nil }
			for i := range c.members {
				conf := testConfig(fake, "app", true)
				conf.Poll, conf.MinTTL = time.Second, 5*time.Second
				b, err := open(ctx, conf)
				if err != nil {
					t.Fatal(err)
				}
				all.Go(func() {
					o := &core.Options{Node: fmt.Sprintf("n%d", i), LockDir: "none", Logger: conf.Logger}
					if c.shards == 0 {
						err = core.RunSingleton(ctx, b, "job", serve, o)
					} else {
						err = sharding.Run(ctx, b, serve, &sharding.Options{Shards: []string{fmt.Sprintf("s0..%d", c.shards-1)}, Elector: o})
					}
					if err != nil && ctx.Err() == nil {
						t.Error(err)
					}
					if err := b.Close(); err != nil {
						t.Error(err)
					}
				})
			}
			time.Sleep(10 * time.Minute)
			figures := func() [4]int64 {
				return [4]int64{fake.creates.Load(), fake.gets.Load(), fake.lists.Load(), fake.deletes.Load()}
			}
			before, taken := figures(), fake.taken.Load()
			time.Sleep(time.Hour)
			after := figures()
			n := [4]int64{}
			for i := range n {
				n[i] = after[i] - before[i]
			}
			// S3 Standard, us-east-1: 0.005 USD for 1,000 creates or lists, 0.0004 USD for 1,000 reads.
			dollars := (float64(n[0]+n[2])*0.005 + float64(n[1])*0.0004) / 1000 * 730
			t.Logf("%s: an hour has %d creates (%d lost to another process), %d reads, %d lists, %d deletes: %.2f USD a month", c.name,
				n[0], fake.taken.Load()-taken, n[1], n[2], n[3], dollars)
			if n[0] == 0 || dollars > 1000 {
				t.Errorf("%s: %v requests in an hour", c.name, n)
			}
			cancel()
			all.Wait()
		})
	}
}
