package fsm

import (
	"cmp"
	"fmt"
	"slices"
	"testing"
	"testing/quick"
	"time"

	"github.com/tenure-go/tenure/core/driver"
)

// place is a simple implementation of the order of C9: it sorts all members, and finds this member.
func place(thing uint64, self driver.Member, peers []driver.Member) int {
	all := append([]driver.Member{self}, peers...)
	score := func(m driver.Member) uint64 { return mix(thing ^ hash(m.Node)) }
	slices.SortFunc(all, func(a, b driver.Member) int {
		return cmp.Or(-cmp.Compare(a.Priority, b.Priority), -cmp.Compare(score(a), score(b)), cmp.Compare(a.Session, b.Session))
	})
	return slices.IndexFunc(all, func(m driver.Member) bool { return m.Session == self.Session })
}

// TestTurnIsThePlaceInOrder compares turn with a sort, for random members, some of which share a
// node. The test checks that all members agree on one order.
func TestTurnIsThePlaceInOrder(t *testing.T) {
	t.Parallel()
	const delay = time.Second
	check := func(thing uint64, priorities []uint8, sameNode bool) bool {
		if len(priorities) == 0 {
			priorities = []uint8{0}
		}
		var all []driver.Member
		for i, p := range priorities[:min(len(priorities), 8)] {
			m := driver.Member{Session: driver.SessionID(fmt.Sprintf("s%d", i)), Node: fmt.Sprintf("n%d", i), MemberState: driver.MemberState{Priority: int32(p % 3)}, TTL: time.Second}
			if sameNode {
				m.Node = "n"
			}
			all = append(all, m)
		}
		places := map[int]bool{}
		for i, self := range all {
			peers := slices.Delete(slices.Clone(all), i, i+1)
			m := New(Config{Member: self, RankDelay: delay})
			m.sess = self.Session
			for j := range peers {
				m.addPeer(&peers[j])
			}
			want := place(thing, self, peers)
			places[want] = true
			got := m.turn(thing, Heirs{}, "")
			least := time.Duration(min(want, 3)) * delay
			if want == 0 && got != 0 || want > 0 && (got < least || got >= least+delay/2) {
				t.Logf("%s is number %d in order and waits %v", self.Session, want, got)
				return false
			}
		}
		return len(places) == len(all)
	}
	if err := quick.Check(check, &quick.Config{MaxCount: 2000}); err != nil {
		t.Error(err)
	}
}

// TestHeirsComeFirst: live heirs come first, in the order of the list of heirs. The other members
// follow as if there were no heirs, and all members still agree on one order.
func TestHeirsComeFirst(t *testing.T) {
	t.Parallel()
	const delay = time.Second
	var all []driver.Member
	for i := range 4 {
		all = append(all, driver.Member{Session: driver.SessionID(fmt.Sprintf("s%d", i)), Node: fmt.Sprintf("n%d", i), TTL: time.Second})
	}
	for _, heirs := range []Heirs{{}, {"s2"}, {"", "s3"}, {"s3", "s1"}, {"dead", "s0"}, {"s1", "s1"}, {"dead", "dead"}} {
		var live []driver.SessionID
		for _, h := range heirs {
			if h != "" && h != "dead" && !slices.Contains(live, h) {
				live = append(live, h)
			}
		}
		for thing := range uint64(50) {
			places := map[int]bool{}
			for i, self := range all {
				peers := slices.Delete(slices.Clone(all), i, i+1)
				m := New(Config{Member: self, RankDelay: delay})
				m.sess = self.Session
				for j := range peers {
					m.addPeer(&peers[j])
				}
				want := slices.Index(live, self.Session)
				if want < 0 {
					others := slices.DeleteFunc(peers, func(p driver.Member) bool { return slices.Contains(live, p.Session) })
					want = len(live) + place(thing, self, others)
				}
				places[want] = true
				if got := int(m.turn(thing, heirs, "") / delay); got != min(want, 3) {
					t.Fatalf("heirs %v: %s has place %d, want %d", heirs, self.Session, got, want)
				}
			}
			if len(places) != len(all) {
				t.Fatalf("heirs %v: two members have one place", heirs)
			}
		}
	}
}

// TestQueueIsASortedList compares the heap of due shards with a list that is sorted again each
// time.
func TestQueueIsASortedList(t *testing.T) {
	t.Parallel()
	check := func(ops []uint16) bool {
		m := New(Config{})
		for i := range 8 {
			m.shard(driver.ShardID(fmt.Sprintf("s%d", i)))
		}
		due := map[int32]Instant{}
		for _, op := range ops {
			i, at := int32(op%8), Instant(op/8%16)
			if op >= 1<<15 {
				at = Never
			}
			m.schedule(i, at)
			if at == Never {
				delete(due, i)
			} else {
				due[i] = at
			}
			if len(m.queue) != len(due) {
				return false
			}
			for k, j := range m.queue {
				first := m.queue[0]
				if m.shards[j].slot != int32(k) || m.shards[j].due != due[j] || m.earlier(j, first) {
					return false
				}
			}
		}
		return true
	}
	if err := quick.Check(check, nil); err != nil {
		t.Error(err)
	}
}

// TestTurnAfterALostClaim: a view shows, before the reply, that a claim lost. When the shard is
// free again, that claim does not count as an attempt, and the heirs come first.
func TestTurnAfterALostClaim(t *testing.T) {
	t.Parallel()
	const ttl = time.Second
	peer := func(id driver.SessionID) driver.Member {
		return driver.Member{Session: id, Node: string(id), TTL: ttl}
	}
	m := New(Config{
		Member: driver.Member{Node: "n", TTL: ttl}, NewSession: func() driver.SessionID { return "me" },
		Interval: ttl / 3, Margin: ttl / 10, DrainBudget: ttl, Resync: 30 * ttl, CallTimeout: ttl,
		RankDelay: 10 * time.Millisecond, BackoffMin: 100 * time.Millisecond, BackoffMax: ttl, WatchAll: 16, WatchFew: 3, Seed: 1,
	})
	now := Instant(0)
	call := func(in Input, want EffectKind) CallID {
		t.Helper()
		id := CallID(0)
		for _, e := range m.Step(now, in) {
			if e.Kind == want {
				id = e.Call
			}
		}
		if want != 0 && id == 0 && want != EffResync {
			t.Fatalf("at %v the machine did not ask for %d", now, want)
		}
		return id
	}
	join := call(Input{Kind: InWant, Shard: "s"}, EffJoin)
	call(Input{Kind: InPrefer, Shards: []driver.ShardID{"s"}, Heirs: []Heirs{{"owner", "heir"}}}, 0)
	call(Input{Kind: InJoined, Call: join}, EffResync)
	claim := call(Input{Kind: InObserved, SentAt: now, View: &driver.View{Reset: true}}, EffAcquire)

	now = now.Add(time.Millisecond)
	owned := driver.Owner{Session: "owner", Token: 7}
	call(Input{Kind: InObserved, SentAt: now, View: &driver.View{
		Members: []driver.Member{peer("owner"), peer("heir")},
		Shards:  []driver.ShardState{{Shard: "s", Owner: owned}},
	}}, 0)
	call(Input{Kind: InAcquired, Call: claim, Results: []driver.AcquireResult{{Err: &driver.HeldError{Owner: owned}}}}, 0)

	now = now.Add(ttl / 4)
	for _, e := range m.Step(now, Input{Kind: InObserved, SentAt: now, View: &driver.View{Gone: []driver.SessionID{"owner"}}}) {
		if e.Kind == EffAcquire {
			t.Fatal("the shard was claimed at once, although a heir lives")
		}
	}
	for from := now; m.WakeAt() < from.Add(20*time.Millisecond); {
		now = m.WakeAt()
		for _, e := range m.Step(now, Input{}) {
			if e.Kind == EffAcquire {
				if now < from.Add(10*time.Millisecond) {
					t.Errorf("claimed after %v, want at least a rank's delay", now.Sub(from))
				}
				return
			}
		}
	}
	t.Error("the shard was not claimed when the heir did not")
}
