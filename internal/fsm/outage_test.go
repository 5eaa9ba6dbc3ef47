package fsm

import (
	"fmt"
	"github.com/tenure-go/tenure/internal/proof/share"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// TestOutageEvictsNobody: an outage of the store never causes the eviction of a running member
// (C5). Within a TTL and a few round trips of the store's return, the members own everything again.
// This is true for any mix of TTLs, for stores that are slow before and after, and whether calls
// fail or hang.
//
//	go test ./internal/fsm -run TestOutageEvictsNobody -args -seeds 20000
func TestOutageEvictsNobody(t *testing.T) {
	t.Parallel()
	if *seedFlag != 0 {
		if err := runOutages(*seedFlag); err != nil {
			t.Fatal(err)
		}
		return
	}
	var (
		next    atomic.Uint64
		outages atomic.Int64
		wg      sync.WaitGroup
	)
	seeds := share.Of(t, "seeds", *seedsFlag, *seedsFlag/20)
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for seed := next.Add(1); seed <= uint64(seeds); seed = next.Add(1) {
				if err := runOutages(seed); err != nil {
					t.Errorf("%v\nreplay: go test ./internal/fsm -run TestOutageEvictsNobody -args -seed %d", err, seed)
					return
				}
				outages.Add(outagesOfARun)
			}
		})
	}
	wg.Wait()
	t.Logf("%d outages in %d seeds", outages.Load(), seeds)
}

const outagesOfARun = 5

// TestLongOutageBesideAShortTTL: a member watches another member whose TTL is much shorter. While
// the store is silent, the member sends heartbeats at the pace of the shorter TTL. The unanswered
// heartbeats stay within the limit, so an outage shorter than the member's own TTL does not end its
// trust.
func TestLongOutageBesideAShortTTL(t *testing.T) {
	t.Parallel()
	w := newCalmWorldOf(1, 1, []time.Duration{8 * time.Second, 500 * time.Millisecond})
	w.run(int64(20 * time.Second))
	w.deadSilent = true
	w.down = true
	w.outages = append(w.outages, outage{from: w.now})
	w.run(w.now + int64(4*time.Second))
	w.restore()
	lapses := w.stats.lapses
	w.run(w.now + int64(8*time.Second))
	if w.stats.lapses > lapses || w.store.stats.evictions > 0 {
		t.Errorf("%d lapses and %d evictions after an outage of half the TTL", w.stats.lapses-lapses, w.store.stats.evictions)
	}
}

// runOutages plays one world without other faults. It reports an eviction, a session that ended, a
// broken rule, or a shard without an owner at the end.
func runOutages(seed uint64) (err error) {
	defer func() {
		if v, ok := recover().(*violation); ok {
			err = fmt.Errorf("seed %d breaks %w", seed, v)
		}
	}()
	rng := rand.New(rand.NewPCG(seed, 0x0badcafe))
	ttls := sameTTL(2 + rng.IntN(4))
	for i := range ttls {
		if rng.IntN(5) < 3 {
			ttls[i] = time.Duration(1+rng.IntN(8)) * 500 * time.Millisecond
		}
	}
	smallest := slices.Min(ttls)
	w := newCalmWorldOf(seed, 3, ttls)
	switch w.rng.IntN(3) {
	case 0:
		w.trip = w.between(smallest/20, smallest*3/10)
	case 1:
		w.spikes, w.spike = 0.3+0.4*w.rng.Float64(), smallest/4
	}
	w.run(int64(6 * time.Second))
	for range outagesOfARun {
		ttl := w.anyone().cfg.Member.TTL
		longest := ttl
		if w.chance(0.5) {
			longest = 20 * ttl
		}
		w.down = true
		w.outages = append(w.outages, outage{from: w.now})
		if w.chance(0.5) {
			w.blocked = w.blocked[:0] // streams that hang without an error
		}
		w.run(w.now + int64(w.between(ttl/2, longest)))
		w.restore()
		w.run(w.now + int64(w.between(0, 8*time.Second)))
	}
	w.run(w.now + int64(30*time.Second))
	if n := w.store.stats.evictions; n > 0 {
		return fmt.Errorf("seed %d: %d members were evicted although all of them ran", seed, n)
	}
	for i := range w.store.shards {
		if q := w.owner(w.store.shards[i].owner.Session); q == nil || !q.trusts(i, q.local(w.now)) {
			return fmt.Errorf("seed %d: %s has no owner after the outages", seed, w.store.shards[i].name)
		}
	}
	return nil
}
