package fsm

import (
	"fmt"
	"testing"
	"time"

	"github.com/tenure-go/tenure/core/driver"
)

// TestReleaseHandsOn tests C13: a shard that a member gives up goes to another member without any
// delay. If no other member wants the shard, the shard does not move.
func TestReleaseHandsOn(t *testing.T) {
	t.Parallel()
	const trip = 4 * time.Millisecond // the longest trip of a packet in a calm world
	const rank = 20 * time.Millisecond
	for _, c := range []struct {
		name      string
		members   int
		others    bool // want the shard
		give      func(w *world, q *process)
		self      bool // the giver gets it again
		transfers int  // needed to give up the shard
		atMost    time.Duration
	}{
		{"early return", 3, true, (*world).returnEarly, false, 0, 4 * trip},
		{"early return beside one standby", 2, true, (*world).returnEarly, false, 0, 4 * trip},
		{"early return of what nobody else wants", 3, false, (*world).returnEarly, true, 0, 50*time.Millisecond + 4*rank + 4*trip},
		{"withdrawn", 3, true, (*world).withdraw, false, 0, 14 * trip},
		{"withdrawn beside one standby", 2, true, (*world).withdraw, false, 1, 12 * trip},
		{"withdrawn from a plan", 3, true, func(w *world, q *process) {
			w.step(q, Input{Kind: InPrefer, Shards: []driver.ShardID{"s0"}, Heirs: []Heirs{{q.m.Session(), w.other(q).m.Session()}}})
			w.withdraw(q)
		}, false, 1, 12 * trip},
		{"withdrawn and wanted again", 3, true, (*world).withdrawAndReturn, false, 0, 4 * trip},
		{"withdrawn by all", 2, false, (*world).withdraw, false, 1, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			for seed := range uint64(50) {
				w := newCalmWorldOf(seed+1, 1, sameTTL(c.members))
				w.run(int64(3*time.Second + w.between(0, time.Second)))
				giver := w.owner(w.store.shards[0].owner.Session)
				for _, q := range w.procs {
					if q != giver && !c.others {
						w.step(q, Input{Kind: InUnwant, Shard: "s0"})
					}
					w.step(q, Input{Kind: InPrefer, Shards: []driver.ShardID{"s0"}, Heirs: []Heirs{{giver.m.Session()}}})
				}
				w.run(w.now + int64(100*time.Millisecond))
				token, from, transfers := w.store.shards[0].owner.Token, w.now, w.store.stats.transfers
				c.give(w, giver)
				var next *process
				for next == nil && w.now < from+int64(time.Second) {
					w.run(w.now + int64(time.Millisecond))
					if o := w.store.shards[0].owner; o.Token > token {
						if q := w.owner(o.Session); q != nil && q.trusts(0, q.local(w.now)) {
							next = q
						}
					}
				}
				took := time.Duration(w.now - from)
				what := fmt.Sprintf("seed %d: given up by m%d", seed+1, giver.idx)
				switch {
				case c.atMost == 0:
					if next != nil || w.store.shards[0].owner.Session != "" {
						t.Fatalf("%s, wanted by nobody, and owned: %s", what, showOwner(w.store.shards[0].owner))
					}
				case next == nil:
					t.Fatalf("%s and owned by nobody for a second", what)
				case (next == giver) != c.self:
					t.Fatalf("%s, and now m%d's", what, next.idx)
				case took > c.atMost+time.Millisecond:
					t.Fatalf("%s and m%d's after %v, want at most %v", what, next.idx, took, c.atMost)
				}
				if n := w.store.stats.transfers - transfers; n != c.transfers {
					t.Fatalf("%s with %d transfers, want %d", what, n, c.transfers)
				}
			}
		})
	}
}

// TestStandbyIsLikelyToAct: no shard goes to a member that may be dead or is draining. If it is
// unknown which of several members want the shard, none of them gets it (C13).
func TestStandbyIsLikelyToAct(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		members int
		change  func(w *world, q *process)
		want    bool
	}{
		{"the only other", 2, func(*world, *process) {}, true},
		{"one of two", 3, func(*world, *process) {}, false},
		{"quiet", 2, func(w *world, q *process) { q.up = false; w.run(w.now + int64(600*time.Millisecond)) }, false},
		{"draining", 2, func(w *world, q *process) {
			q.says.Draining = true
			w.step(q, Input{Kind: InUpdate, State: q.says})
			w.run(w.now + int64(100*time.Millisecond))
		}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := newCalmWorldOf(1, 1, sameTTL(c.members))
			w.run(int64(3 * time.Second))
			giver := w.owner(w.store.shards[0].owner.Session)
			other := w.other(giver)
			c.change(w, other)
			before := w.stats.calls
			w.withdraw(giver)
			w.run(w.now + int64(100*time.Millisecond))
			if got := w.stats.calls[EffTransfer] > before[EffTransfer]; got != c.want {
				t.Errorf("transferred: %v, want %v", got, c.want)
			}
			if w.stats.calls[EffTransfer]+w.stats.calls[EffRelease] == before[EffTransfer]+before[EffRelease] {
				t.Error("not given up")
			}
		})
	}
}

func (w *world) other(q *process) *process { return w.procs[(q.idx+1)%len(w.procs)] }

// returnEarly makes q's handler of the first shard return without being asked.
func (w *world) returnEarly(q *process) {
	w.step(q, Input{Kind: InDrained, Shard: "s0", Token: q.runs[0].fence.Token})
}

func (w *world) withdraw(q *process) {
	w.step(q, Input{Kind: InUnwant, Shard: "s0"})
	w.tell(q, 0)
}

// withdrawAndReturn makes q want the shard again while its release is in progress.
func (w *world) withdrawAndReturn(q *process) {
	w.step(q, Input{Kind: InUnwant, Shard: "s0"})
	w.returnEarly(q)
	w.step(q, Input{Kind: InWant, Shard: "s0"})
}

// TestTurnEndsWithTheRecord: the wait for a turn to claim one record does not delay the claim of
// the next record (C13).
func TestTurnEndsWithTheRecord(t *testing.T) {
	t.Parallel()
	l := newLone(t, time.Second)
	l.join("s")
	state := func(id driver.SessionID, token driver.Token) *driver.View {
		return &driver.View{Shards: []driver.ShardState{{Shard: "s", Owner: driver.Owner{Session: id, Token: token}}}}
	}
	see := func(v *driver.View) bool {
		l.at = l.at.Add(time.Millisecond)
		l.step(Input{Kind: InObserved, View: v})
		return l.last(EffAcquire) != nil
	}
	all := state("other", 3)
	all.Reset, all.Members = true, []driver.Member{{Session: "other", Node: "o", TTL: time.Second, MemberState: driver.MemberState{Priority: 1}}}
	l.step(Input{Kind: InPrefer, Shards: []driver.ShardID{"s"}, Heirs: []Heirs{{"other"}}})
	switch {
	case see(all):
		t.Fatal("a shard that is held was claimed")
	case see(state("", 4)): // the releaser is unknown
		t.Fatal("claimed before the heir's turn")
	case see(state("other", 5)):
		t.Fatal("the heir's shard was claimed")
	case !see(state("", 5)):
		t.Error("what the heir released was not claimed at once")
	}
}
