package fsm

import (
	"testing"
	"time"

	"github.com/tenure-go/tenure/core/driver"
)

// AbandonAfter releases the lease of a stuck handler. While the store immediately refuses the
// release, the machine repeats it after growing pauses (V3).
func TestAbandonBacksOff(t *testing.T) {
	t.Parallel()
	const ttl = time.Second
	m := New(Config{
		Member:     driver.Member{Node: "n", TTL: ttl},
		NewSession: func() driver.SessionID { return "s1" },
		Interval:   ttl / 3, Margin: ttl / 10, DrainBudget: ttl, AbandonAfter: ttl, Resync: 30 * ttl, CallTimeout: ttl,
		RankDelay: 10 * time.Millisecond, BackoffMin: 100 * time.Millisecond, BackoffMax: ttl,
		WatchAll: 16, WatchFew: 3, Seed: 1,
	})
	releases := 0
	var due []Input
	now := Instant(0)
	step := func(in Input) {
		for _, e := range m.Step(now, in) {
			switch e.Kind {
			case EffJoin:
				due = append(due, Input{Kind: InJoined, Call: e.Call})
			case EffBeat:
				due = append(due, Input{Kind: InBeaten, Call: e.Call})
			case EffAcquire:
				due = append(due, Input{Kind: InAcquired, Call: e.Call,
					Results: []driver.AcquireResult{{Fence: driver.Fence{Shard: "a", Session: "s1", Token: 5}}}})
			case EffRelease:
				releases++
				due = append(due, Input{Kind: InReleased, Call: e.Call, Err: driver.ErrRetry})
			case EffResync, EffGrant, EffExtend, EffRevoke, EffSettled, EffEvent:
			default:
				t.Fatalf("asked for %s", showEffect(&e))
			}
		}
	}
	run := func(until Instant) {
		for steps := 0; now < until; steps++ {
			if steps > 10_000 {
				t.Fatalf("it does not come to rest at %v: %d releases", showInstant(now), releases)
			}
			if len(due) > 0 {
				in := due[0]
				due = due[1:]
				step(in)
				continue
			}
			now = max(now, min(m.WakeAt(), until))
			step(Input{})
		}
	}
	step(Input{Kind: InWant, Shard: "a"})
	step(Input{Kind: InObserved, View: &driver.View{Reset: true}})
	run(Instant(ttl))
	step(Input{Kind: InUnwant, Shard: "a"}) // and its handler never returns
	run(Instant(13 * ttl))
	if releases < 10 || releases > 100 {
		t.Errorf("%d releases in ten seconds, want some tens", releases)
	}
}
