package fsm_test

import (
	"fmt"
	"time"

	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/fsm"
)

// A member joins and claims a shard. Then the store falls silent, and the machine ends the lease
// without the store, in virtual time. A runner answers each call once. The runner of this example
// answers like an empty store.
func Example() {
	const ttl = time.Second
	m := fsm.New(fsm.Config{
		Member:     driver.Member{Node: "n", TTL: ttl},
		NewSession: func() driver.SessionID { return "s1" },
		Interval:   ttl / 3, Margin: ttl / 10, DrainBudget: ttl, Resync: 30 * ttl, CallTimeout: ttl,
		RankDelay: 10 * time.Millisecond, BackoffMin: 100 * time.Millisecond, BackoffMax: ttl,
		WatchAll: 16, WatchFew: 3, Seed: 1,
	})
	now := fsm.Instant(0)
	var step func(in fsm.Input)
	step = func(in fsm.Input) {
		for _, e := range m.Step(now, in) {
			switch e.Kind {
			case fsm.EffJoin:
				defer step(fsm.Input{Kind: fsm.InJoined, Call: e.Call})
			case fsm.EffAcquire:
				fence := driver.Fence{Shard: e.Claims[0].Shard, Session: "s1", Token: 5}
				defer step(fsm.Input{Kind: fsm.InAcquired, Call: e.Call, Results: []driver.AcquireResult{{Fence: fence}}})
			case fsm.EffGrant:
				fmt.Printf("granted %s, trusted until %v\n", e.Fence.Shard, time.Duration(e.Until))
			case fsm.EffRevoke:
				fmt.Printf("revoked at %v: %v\n", time.Duration(now), e.Cause)
			}
		}
	}
	step(fsm.Input{Kind: fsm.InWant, Shard: "orders"})
	step(fsm.Input{Kind: fsm.InObserved, View: &driver.View{Reset: true}})
	for now < fsm.Instant(ttl) { // no heartbeat is answered
		now = min(m.WakeAt(), fsm.Instant(ttl))
		step(fsm.Input{Kind: fsm.InWake})
	}
	// Output:
	// granted orders, trusted until 900ms
	// revoked at 900ms: trust lapsed
}
