package fsm

import (
	"fmt"
	"testing"
	"time"

	"github.com/tenure-go/tenure/core/driver"
)

// A lone is a machine that has joined, the current instant, and the effects of its last step.
type lone struct {
	*Machine
	t       *testing.T
	scene   *scene
	at      Instant
	effects []Effect
}

func newLone(t *testing.T, ttl time.Duration) *lone {
	t.Helper()
	l := &lone{t: t, scene: newScene(), Machine: New(Config{
		Member: driver.Member{Node: "n", TTL: ttl}, NewSession: func() driver.SessionID { return "me" },
		Interval: ttl / 3, Margin: ttl / 10, DrainBudget: ttl, Resync: 30 * ttl, CallTimeout: 10 * ttl,
		RankDelay: 10 * time.Millisecond, BackoffMin: 100 * time.Millisecond, BackoffMax: ttl, WatchAll: 16, WatchFew: 3, Seed: 1,
	})}
	return l
}

func (l *lone) step(in Input) { l.effects = l.scene.step(l.Machine, l.at, in) }

// last returns the newest effect of a kind in the last step, or nil.
func (l *lone) last(kind EffectKind) *Effect {
	for i := len(l.effects) - 1; i >= 0; i-- {
		if l.effects[i].Kind == kind {
			e := l.effects[i] // valid until the next step there
			return &e
		}
	}
	return nil
}

func (l *lone) join(shards ...driver.ShardID) {
	l.t.Helper()
	l.step(Input{Kind: InWant, Shards: shards})
	join := l.last(EffJoin)
	if join == nil {
		l.t.Fatal("no join")
	}
	l.step(Input{Kind: InJoined, Call: join.Call})
}

// TestHeadOfAnotherRecord: a head counts only with the record that arrived with it. If a view
// grants a lease by that record, no read is necessary.
func TestHeadOfAnotherRecord(t *testing.T) {
	t.Parallel()
	old, now := driver.Head{Number: 1, Token: 4}, driver.Head{Number: 2, Token: 6}
	state := func(token driver.Token, h *driver.Head) driver.ShardState {
		return driver.ShardState{Shard: "s", Owner: driver.Owner{Session: "me", Token: token}, Head: h}
	}
	for _, c := range []struct {
		name   string
		shards []driver.ShardState
		want   *driver.Head
	}{
		{"with its record", []driver.ShardState{state(7, &now)}, &now},
		{"of an older record", []driver.ShardState{state(7, nil), state(5, &old)}, nil},
		{"of an older record, after its own", []driver.ShardState{state(7, &now), state(5, &old)}, &now},
		{"of the record before", []driver.ShardState{state(5, &old), state(7, nil)}, nil},
		{"unknown", []driver.ShardState{state(7, nil)}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			l := newLone(t, time.Second)
			l.join("s")
			l.step(Input{Kind: InObserved, View: &driver.View{Reset: true, Members: []driver.Member{{Session: "other", Node: "o", TTL: time.Second}},
				Shards: []driver.ShardState{{Shard: "s", Owner: driver.Owner{Session: "other", Token: 3}}}}})
			l.step(Input{Kind: InObserved, View: &driver.View{Shards: c.shards}})
			g := l.last(EffGrant)
			switch {
			case g == nil || g.Fence.Token != 7:
				t.Fatalf("the effects are %+v, want a grant of token 7", l.effects)
			case g.HeadKnown != (c.want != nil) || c.want != nil && g.Head != *c.want:
				t.Errorf("granted with head %+v, %v", g.Head, g.HeadKnown)
			}
		})
	}
}

// TestClaimInFlightIsWaitedFor: a view shows the grants of a large call before the reply arrives. A
// lease whose head is not in the view starts only when the reply is overdue. If the view contains
// the heads, the leases start.
func TestClaimInFlightIsWaitedFor(t *testing.T) {
	t.Parallel()
	const n, ttl = 1000, time.Second
	for _, heads := range []bool{false, true} {
		t.Run(fmt.Sprintf("heads=%v", heads), func(t *testing.T) {
			t.Parallel()
			l := newLone(t, ttl)
			var names []driver.ShardID
			for i := range n {
				names = append(names, driver.ShardID(fmt.Sprint("s", i)))
			}
			l.join(names...)
			l.step(Input{Kind: InObserved, View: &driver.View{Reset: true}})
			claim := l.last(EffAcquire)
			if claim == nil || len(claim.Claims) != n {
				t.Fatal("no claim of all shards")
			}
			v := &driver.View{}
			results := make([]driver.AcquireResult, n)
			for i, name := range names {
				o := driver.Owner{Session: "me", Token: driver.Token(i + 1)}
				results[i].Fence = driver.Fence{Shard: name, Session: "me", Token: o.Token}
				v.Shards = append(v.Shards, driver.ShardState{Shard: name, Owner: o})
				if heads {
					v.Shards[i].Head = &driver.Head{}
				}
			}
			granted := func() (known, all int) {
				for _, e := range l.effects {
					if e.Kind == EffGrant {
						all++
						if e.HeadKnown {
							known++
						}
					}
				}
				return known, all
			}
			l.step(Input{Kind: InObserved, View: v})
			if known, all := granted(); heads && (known != n || all != n) || !heads && all != 0 {
				t.Fatalf("the view starts %d leases, %d of them with a head", all, known)
			}
			if heads {
				return
			}
			for end := l.at.Add(ttl / 4); l.WakeAt() < end; {
				l.at = l.WakeAt()
				l.step(Input{})
				if _, all := granted(); all > 0 {
					t.Fatalf("%d leases started at %v without a head", all, time.Duration(l.at))
				}
			}
			l.step(Input{Kind: InAcquired, Call: claim.Call, Results: results})
			if known, all := granted(); known != n || all != n {
				t.Errorf("the reply starts %d leases, %d of them with a head", all, known)
			}
		})
	}
}

// TestCallsAreBounded: a call has at most maxItems items, the next call follows the reply, and each
// shard is in one of the calls.
func TestCallsAreBounded(t *testing.T) {
	t.Parallel()
	const n = 2*maxItems + 100
	l := newLone(t, time.Second)
	names := make([]driver.ShardID, n)
	for i := range names {
		names[i] = driver.ShardID(fmt.Sprint("s", i))
	}
	l.join(names...)
	l.step(Input{Kind: InObserved, View: &driver.View{Reset: true}})
	claimed := make(map[driver.ShardID]bool)
	for calls := 1; ; calls++ {
		claim := l.last(EffAcquire)
		if claim == nil {
			if calls != 4 || len(claimed) != n {
				t.Fatalf("%d shards in %d calls, want %d in 3", len(claimed), calls-1, n)
			}
			return
		}
		if len(claim.Claims) > maxItems {
			t.Fatalf("a call has %d items", len(claim.Claims))
		}
		in := Input{Kind: InAcquired, Call: claim.Call}
		for _, c := range claim.Claims {
			if claimed[c.Shard] {
				t.Fatalf("%s was claimed twice", c.Shard)
			}
			claimed[c.Shard] = true
			in.Results = append(in.Results, driver.AcquireResult{Fence: driver.Fence{Shard: c.Shard, Session: "me", Token: driver.Token(len(claimed))}})
		}
		l.step(in)
	}
}
