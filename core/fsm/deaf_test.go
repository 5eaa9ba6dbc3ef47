package fsm

import (
	"context"
	"testing"
	"time"

	"github.com/tenure-go/tenure/core/driver"
)

// A member whose heartbeats arrive and are never answered, while its reads are,
// goes silent for longer than its TTL after a lapse, so that it can be evicted
// (C6), and tries again later. One whose heartbeats are refused does not.
func TestUnansweredHeartbeatsGoSilent(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		err   error
		quiet bool
	}{
		{"unanswered", context.DeadlineExceeded, true},
		{"refused", driver.ErrRetry, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			const ttl = time.Second
			m := New(Config{
				Member:     driver.Member{Node: "n", TTL: ttl},
				NewSession: func() driver.SessionID { return "s1" },
				Interval:   ttl / 3, Margin: ttl / 10, DrainBudget: ttl, Resync: 30 * ttl, CallTimeout: ttl,
				RankDelay: 10 * time.Millisecond, BackoffMin: 100 * time.Millisecond, BackoffMax: ttl,
				WatchAll: 16, WatchFew: 3, Seed: 1,
			})
			var beats []Instant
			type reply struct {
				at Instant
				in Input
			}
			var due []reply
			step := func(now Instant, in Input) {
				for _, e := range m.Step(now, in) {
					switch e.Kind {
					case EffJoin:
						due = append(due, reply{now, Input{Kind: InJoined, Call: e.Call}})
					case EffBeat:
						beats = append(beats, now)
						due = append(due, reply{now.Add(50 * time.Millisecond), Input{Kind: InBeaten, Call: e.Call, Err: c.err}})
					case EffResync:
						due = append(due, reply{now, Input{Kind: InObserved, SentAt: now, View: &driver.View{Reset: true}}})
					case EffAcquire:
						due = append(due, reply{now.Add(ttl), Input{Kind: InAcquired, Call: e.Call, Err: c.err}})
					}
				}
			}
			step(0, Input{Kind: InWant, Shard: "a"})
			for now := Instant(0); now < Instant(20*ttl); {
				now = m.WakeAt()
				k := -1
				for i := range due {
					if due[i].at <= now {
						now, k = due[i].at, i
					}
				}
				in := Input{}
				if k >= 0 {
					in = due[k].in
					due = append(due[:k], due[k+1:]...)
				}
				step(now, in)
			}
			longest := Instant(0)
			for i := 1; i < len(beats); i++ {
				longest = max(longest, beats[i]-beats[i-1])
			}
			if quiet := longest > Instant(ttl); quiet != c.quiet {
				t.Errorf("longest silence between two of %d heartbeats is %v, TTL %v", len(beats), time.Duration(longest), ttl)
			}
			if last := beats[len(beats)-1]; last < Instant(17*ttl) {
				t.Errorf("no heartbeat after %v", time.Duration(last))
			}
		})
	}
}
