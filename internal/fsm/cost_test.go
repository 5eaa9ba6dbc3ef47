package fsm

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/tenure-go/tenure/core/driver"
)

// newCalmWorld returns a world without faults, in which every member wants every shard.
func newCalmWorld(members, shards int) *world { return newCalmWorldOf(1, shards, sameTTL(members)) }

// sameTTL returns the TTLs for newCalmWorldOf: a second for each member.
func sameTTL(members int) []time.Duration {
	return slices.Repeat([]time.Duration{time.Second}, members)
}

// newCalmWorldOf returns a calm world of members with the given TTLs.
func newCalmWorldOf(seed uint64, shards int, ttls []time.Duration) *world {
	var names []driver.ShardID
	for i := range shards {
		names = append(names, driver.ShardID(fmt.Sprintf("s%d", i)))
	}
	w := &world{rng: rand.New(rand.NewPCG(seed, 2)), store: newModelStore(names), quiet: true}
	if s := newScene(); s != nil {
		w.recorder = s
	}
	w.plan.writeEvery = time.Second
	for i, ttl := range ttls {
		cfg := Config{
			Member:   driver.Member{Node: fmt.Sprintf("n%d", i), TTL: ttl},
			Interval: ttl / 3, Jitter: 0.1, Margin: max(ttl/10, 50*time.Millisecond),
			DrainBudget: 400 * time.Millisecond, Resync: time.Minute, CallTimeout: max(ttl, time.Second),
			RankDelay: 20 * time.Millisecond, BackoffMin: 50 * time.Millisecond, BackoffMax: time.Second,
			WatchAll: 16, WatchFew: 3, Seed: seed<<16 + uint64(i),
		}
		w.procs = append(w.procs, &process{member: newMember(i, 1, cfg, w, w.store, nil), up: true, wakeSet: Never})
	}
	for _, q := range w.procs {
		w.observe(q)
		for _, n := range names {
			w.step(q, Input{Kind: InWant, Shard: n})
		}
	}
	return w
}

// TestDeathCostsFewCalls: a death costs one or two evictions and the claims of the dead member's
// shards, not one call per member (C9). The takeover happens shortly after the TTL (V1).
func TestDeathCostsFewCalls(t *testing.T) {
	t.Parallel()
	for _, members := range []int{2, 5, 12, 40} {
		t.Run(fmt.Sprintf("members=%d", members), func(t *testing.T) {
			t.Parallel()
			const shards = 6
			w := newCalmWorld(members, shards)
			w.run(int64(5 * time.Second))
			dead := w.owner(w.store.shards[0].owner.Session)
			if dead == nil {
				t.Fatal("nobody owns s0")
			}
			dead.up = false
			before, from := w.stats.calls, w.now
			lost := func() bool {
				for i := range w.store.shards {
					if w.owner(w.store.shards[i].owner.Session) == nil {
						return true
					}
				}
				return false
			}
			for lost() && w.now < from+int64(10*time.Second) {
				w.run(w.now + int64(time.Millisecond))
			}
			took := time.Duration(w.now - from)
			w.run(w.now + int64(3*time.Second))
			evicts := w.stats.calls[EffEvict] - before[EffEvict]
			claims := w.stats.calls[EffAcquire] - before[EffAcquire]
			t.Logf("took over after %v, with %d evictions and %d claims", took, evicts, claims)
			if took > time.Second+100*time.Millisecond {
				t.Errorf("the takeover took %v, want at most the TTL and 100ms", took)
			}
			if evicts > 3 || claims > shards+3 {
				t.Errorf("a death cost %d evictions and %d claims, want at most 3 and %d", evicts, claims, shards+3)
			}
		})
	}
}

// TestIdleIsQuiet: if there is nothing to do, each member sends only three heartbeats per TTL (V3).
func TestIdleIsQuiet(t *testing.T) {
	t.Parallel()
	w := newCalmWorld(5, 10)
	w.run(int64(5 * time.Second))
	before := w.stats.calls
	w.run(int64(35 * time.Second))
	for k := EffJoin; k < EffClose; k++ {
		n := w.stats.calls[k] - before[k]
		if k == EffBeat {
			perTTL := float64(n) / 30 / 5
			t.Logf("%.2f heartbeats per TTL and member", perTTL)
			if perTTL < 3 || perTTL > 3.5 {
				t.Errorf("%.2f heartbeats per TTL and member, want 3 to 3.5", perTTL)
			}
		} else if n != 0 {
			t.Errorf("%d calls of kind %d while idle, want none", n, k)
		}
	}
}
