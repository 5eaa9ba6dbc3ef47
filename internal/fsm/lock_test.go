package fsm

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/tenure-go/tenure/core/driver"
)

const lockA driver.ShardID = driver.LockPrefix + "a"

// crowd joins a namespace with n members that precede this one in the order of C9.
func (l *lone) crowd(n int, shards ...driver.ShardState) {
	l.t.Helper()
	l.join("s")
	v := &driver.View{Reset: true, Shards: shards}
	for i := range n {
		id := driver.SessionID(fmt.Sprintf("other%d", i))
		v.Members = append(v.Members, driver.Member{Session: id, Node: string(id), TTL: time.Second, MemberState: driver.MemberState{Priority: 1}})
	}
	l.see(v)
}

func (l *lone) see(v *driver.View) { l.step(Input{Kind: InObserved, View: v, SentAt: l.at}) }

func lockState(id driver.SessionID, token driver.Token) driver.ShardState {
	return driver.ShardState{Shard: lockA, Owner: driver.Owner{Session: id, Token: token}}
}

// locks claims a lock, lets the store grant it, and returns its fence.
func (l *lone) locks(name driver.ShardID, token driver.Token) driver.Fence {
	l.t.Helper()
	l.step(Input{Kind: InWant, Shard: name})
	claim := l.last(EffAcquire)
	if claim == nil || len(claim.Claims) != 1 || claim.Claims[0] != (driver.Claim{Shard: name}) {
		l.t.Fatalf("a lock that nobody is known to hold is not claimed at once: %+v", l.effects)
	}
	f := driver.Fence{Shard: name, Session: "me", Token: token}
	l.step(Input{Kind: InAcquired, Call: claim.Call, Results: []driver.AcquireResult{{Fence: f}}})
	if l.last(EffGrant) == nil {
		l.t.Fatalf("not granted: %+v", l.effects)
	}
	return f
}

// unlocks gives up a lock, and returns the call that releases it.
func (l *lone) unlocks(f driver.Fence) *Effect {
	l.t.Helper()
	l.step(Input{Kind: InUnwant, Shard: f.Shard})
	l.step(Input{Kind: InDrained, Shard: f.Shard, Token: f.Token})
	r := l.last(EffRelease)
	if r == nil || len(r.Fences) != 1 || r.Fences[0] != f {
		l.t.Fatalf("not released, but %+v", l.effects)
	}
	return r
}

// TestLocksAreForgotten tests C17: thousands of lock names leave nothing in the machine, regardless
// of which members locked them. A claim of a lock does not wait for members that may not want the
// lock.
func TestLocksAreForgotten(t *testing.T) {
	t.Parallel()
	l := newLone(t, time.Minute)
	l.crowd(5)
	token := driver.Token(10)
	for i := range 5000 {
		name := driver.ShardID(fmt.Sprintf("%s%d", driver.LockPrefix, i))
		if i%2 == 0 {
			f := l.locks(name, token)
			r := l.unlocks(f)
			l.step(Input{Kind: InReleased, Call: r.Call})
		} else {
			l.see(&driver.View{Shards: []driver.ShardState{{Shard: name, Owner: driver.Owner{Session: "other1", Token: token}}}})
			l.see(&driver.View{Shards: []driver.ShardState{{Shard: name, Owner: driver.Owner{Token: token}}}})
		}
		token++
	}
	if n := len(l.AppendShards(nil)); n != 1 || len(l.index) != 1 || len(l.shards) > 2 {
		t.Errorf("after 5,000 names the machine has %d shards, %d names and %d places, want those of one shard", n, len(l.index), len(l.shards))
	}
}

// TestLockRivals tests C17: a waiting member claims a released lock immediately, even if there are
// members that may not want the lock. It waits only for members that took the lock before.
func TestLockRivals(t *testing.T) {
	t.Parallel()
	l := newLone(t, time.Minute)
	l.crowd(5, lockState("other0", 5))
	if c := l.last(EffAcquire); c != nil {
		l.step(Input{Kind: InAcquired, Call: c.Call, Err: errors.New("lost")})
	}
	l.step(Input{Kind: InWant, Shard: lockA})
	l.see(&driver.View{Shards: []driver.ShardState{lockState("other1", 6)}})
	l.see(&driver.View{Shards: []driver.ShardState{lockState("other2", 7)}})
	s := &l.shards[l.index[lockA]]
	if l.see(&driver.View{Shards: []driver.ShardState{lockState("", 7)}}); !s.waiting || s.notBefore < l.at.Add(l.cfg.RankDelay) {
		t.Errorf("no turn is left to other1: %+v", s)
	}
	l.see(&driver.View{Shards: []driver.ShardState{lockState("me", 8)}})
	if s.heirs != (Heirs{}) {
		t.Errorf("rivals of a wait that is over: %v", s.heirs)
	}
	l.scene = nil // no input causes the following
	*s = shard{name: lockA, due: Never, slot: s.slot, want: true, owner: driver.Owner{Session: "other0", Token: 9}}
	if l.see(&driver.View{Shards: []driver.ShardState{lockState("", 9)}}); s.waiting {
		t.Errorf("a turn is left to members that may not want the lock: %+v", s)
	}
}

// TestForgottenTokenStaysBurnt: a view from before the release of a lock grants nothing, although
// the machine has forgotten the lock (C1).
func TestForgottenTokenStaysBurnt(t *testing.T) {
	t.Parallel()
	l := newLone(t, time.Minute)
	l.crowd(1)
	f := l.locks(lockA, 7)
	l.step(Input{Kind: InReleased, Call: l.unlocks(f).Call})
	l.step(Input{Kind: InWant, Shard: lockA})
	l.see(&driver.View{Shards: []driver.ShardState{lockState("me", 7)}})
	if g := l.last(EffGrant); g != nil {
		t.Errorf("granted %+v again", g.Fence)
	}
}

// TestOutstandingCallKeepsTheLock: no other shard gets the place of a shard in an outstanding call,
// because the reply identifies shards by their places.
func TestOutstandingCallKeepsTheLock(t *testing.T) {
	t.Parallel()
	l := newLone(t, time.Minute)
	l.crowd(1)
	l.step(Input{Kind: InWant, Shard: lockA})
	claim := l.last(EffAcquire)
	l.see(&driver.View{Shards: []driver.ShardState{lockState("me", 7)}}) // before the reply
	l.at = l.at.Add(10 * time.Second)
	l.step(Input{Kind: InWake})
	if l.last(EffGrant) == nil {
		t.Fatalf("not granted by the view: %+v", l.effects)
	}
	l.step(Input{Kind: InReleased, Call: l.unlocks(driver.Fence{Shard: lockA, Session: "me", Token: 7}).Call})
	l.see(&driver.View{Shards: []driver.ShardState{lockState("", 7)}})
	l.step(Input{Kind: InWant, Shard: "t"})
	l.step(Input{Kind: InAcquired, Call: claim.Call, Results: []driver.AcquireResult{
		{Fence: driver.Fence{Shard: lockA, Session: "me", Token: 7}}}})
	if o := l.shards[l.index["t"]].owner; o != (driver.Owner{}) {
		t.Errorf("the reply about %s was taken for one about t: %+v", lockA, o)
	}
	if _, known := l.index[lockA]; known {
		t.Error("the lock is remembered after the reply")
	}
}

// TestLockOfTheDead tests C17: after the holder of a lock has ended, a member that does not want
// the lock claims and releases it.
func TestLockOfTheDead(t *testing.T) {
	t.Parallel()
	l := newLone(t, time.Minute)
	l.crowd(1, lockState("other0", 5))
	if l.last(EffAcquire) != nil && l.last(EffAcquire).Claims[0].Shard == lockA {
		t.Fatal("the lock of a living member is claimed")
	}
	if s := l.last(EffAcquire); s != nil {
		l.step(Input{Kind: InAcquired, Call: s.Call, Err: errors.New("lost")})
	}
	l.see(&driver.View{Gone: []driver.SessionID{"other0"}})
	claim := l.last(EffAcquire)
	for range 20 {
		if claim != nil && claim.Claims[len(claim.Claims)-1].Shard == lockA {
			break
		}
		if claim != nil {
			l.step(Input{Kind: InAcquired, Call: claim.Call, Err: errors.New("lost")})
		}
		l.at = max(l.at, l.WakeAt())
		l.step(Input{Kind: InWake})
		claim = l.last(EffAcquire)
	}
	if claim == nil || claim.Claims[len(claim.Claims)-1] != (driver.Claim{Shard: lockA, Seen: driver.Owner{Session: "other0", Token: 5}}) {
		t.Fatalf("the lock of a member that ended is not claimed: %+v", l.effects)
	}
	results := make([]driver.AcquireResult, len(claim.Claims))
	for i := range results {
		results[i].Fence = driver.Fence{Shard: claim.Claims[i].Shard, Session: "me", Token: 9}
	}
	l.step(Input{Kind: InAcquired, Call: claim.Call, Results: results})
	if r := l.last(EffRelease); r == nil || r.Fences[0] != (driver.Fence{Shard: lockA, Session: "me", Token: 9}) {
		t.Errorf("a lock that nobody wants is not released: %+v", l.effects)
	}
}

// TestUnlistedLockIsFree: a lock that is missing from a full state is free (R2), unless it is the
// member's own, which may be newer than the state.
func TestUnlistedLockIsFree(t *testing.T) {
	t.Parallel()
	l := newLone(t, time.Minute)
	l.crowd(1, lockState("other0", 5))
	own := l.locks(driver.LockPrefix+"own", 6)
	l.step(Input{Kind: InWant, Shard: lockA})
	if l.last(EffAcquire) != nil {
		t.Fatal("a lock that is held was claimed")
	}
	l.see(&driver.View{Reset: true, Members: []driver.Member{{Session: "other0", Node: "o", TTL: time.Second}}})
	if e := l.last(EffRevoke); e != nil {
		t.Errorf("the lease of %s was revoked: %v", own.Shard, e.Cause)
	}
	if c := l.last(EffAcquire); c == nil || c.Claims[len(c.Claims)-1].Shard != lockA || c.Claims[len(c.Claims)-1].Seen.Session != "" {
		t.Errorf("the lock is not claimed as a free one: %+v", l.effects)
	}
}

// TestLockGoesToNobody: a lock that is given up is released, and not handed to the only other
// member, which may not want it. Priority does not move it either (C13, C15, C16).
func TestLockGoesToNobody(t *testing.T) {
	t.Parallel()
	l := newLone(t, time.Minute)
	l.crowd(1)
	f := l.locks(lockA, 7)
	l.see(&driver.View{Beats: []driver.Beat{{Session: "other0", Version: 3}}})
	l.step(Input{Kind: InEligible, Reason: "ill"})
	if l.last(EffYield) != nil {
		t.Error("a lock is asked back by a member that is not eligible")
	}
	l.unlocks(f)
	l.step(Input{Kind: InWant, Shard: driver.LockPrefix + "b"})
	if l.last(EffAcquire) == nil {
		t.Error("a member that is not eligible cannot lock")
	}
}
