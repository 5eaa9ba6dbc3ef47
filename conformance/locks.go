package conformance

import (
	"errors"
	"fmt"
	"time"

	"github.com/tenure-go/tenure/core/driver"
)

const lockName driver.ShardID = driver.LockPrefix + "invoice-123"

func lockCases() []testCase {
	const area = "Locks"
	return []testCase{
		{Area: area, Property: "TokensIncrease", Rules: []rule{ruleR2, ruleA2}, run: lockTokens,
			Shows: "a lock that was free has a greater token each time, whatever the claimer saw of it before"},
		{Area: area, Property: "FutureToken", Rules: []rule{ruleR2}, run: lockFuture,
			Shows: "a claim that saw a token that was never granted damages nothing"},
		{Area: area, Property: "HeldIsRefused", Rules: []rule{ruleR2, ruleA1}, run: lockHeld,
			Shows: "a lock that a living member holds is refused, whatever the claimer saw of it"},
		{Area: area, Property: "RepeatedClaim", Rules: []rule{ruleR2, ruleA3}, run: lockRepeated,
			Shows: "a repeated claim of a lock finds its own success, and no other's"},
		{Area: area, Property: "ZombieRefused", Rules: []rule{ruleR2, ruleF1, ruleR1}, run: lockZombie,
			Shows: "under a lock that was released no write, transfer or release has an effect, also once another holds it"},
		{Area: area, Property: "ReleaseIsSeen", Rules: []rule{ruleR2, ruleO1}, run: lockReleaseSeen,
			Shows: "an observer that saw a lock's holder sees the release"},
		{Area: area, Property: "DeadHolders", Rules: []rule{ruleR2, ruleR1}, run: lockOfTheDead,
			Shows: "another member releases the lock of a session that ended"},
		{Area: area, Property: "CommitsStay", Rules: []rule{ruleR2, ruleL3, ruleF1}, run: lockWithHead,
			Shows: "what was committed under a lock stays, and its numbers go on"},
		{Area: area, Property: "DamagedHead", Rules: []rule{ruleR2, ruleD1, ruleA4}, Needs: []string{"Tamper"},
			run:   lockDamagedHead,
			Shows: "a lock whose head is damaged is granted to no member, whatever the claimer saw of it"},
		{Area: area, Property: "ReleaseRacesCommit", Rules: []rule{ruleR2, ruleF1}, run: lockReleaseRace,
			Shows: "a commit beside the release counts at the next grant, or is refused"},
		{Area: area, Property: "ClaimRacesRelease", Rules: []rule{ruleR2, ruleA1}, run: lockClaimRace,
			Shows: "of claims beside a release one at most is granted"},
		{Area: area, Property: "RecordsAreBounded", Rules: []rule{ruleR2}, run: lockRecords,
			Shows: "thousands of names that were locked once leave a bounded number of records"},
	}
}

func lockTokens(f *fixture) {
	members := []*member{f.join("a"), f.join("b")}
	var newest driver.Token
	other := members[0].acquire("s")
	for i := range 12 {
		m := members[i/2%2]
		saw := driver.Owner{}
		if i%3 == 1 {
			saw.Token = newest
		} else if i%3 == 2 {
			saw.Token = other.Token // this lock never had this token
		}
		r := m.claim(driver.Claim{Shard: lockName, Seen: saw})
		f.must(ruleR2, r.Err == nil, "claim %d of a free lock, seen as %+v, answers %v", i, saw, r.Err)
		f.must(ruleA2, r.Fence.Token > newest && r.Fence.Token > other.Token, "a lock has token %d after token %d, and %d of a shard",
			r.Fence.Token, newest, other.Token)
		f.must(ruleR2, f.owner(lockName) == seen(r.Fence), "a lock granted as %+v has the record %+v", r.Fence, f.owner(lockName))
		newest = r.Fence.Token
		m.release(r.Fence)
		f.must(ruleR2, f.owner(lockName).Session == "", "a lock that was released has the record %+v", f.owner(lockName))
	}
}

func lockFuture(f *fixture) {
	a := f.join("a")
	fence := a.acquire(lockName)
	a.release(fence)
	r := a.claim(driver.Claim{Shard: lockName, Seen: driver.Owner{Token: fence.Token + 1<<40}})
	f.must(ruleR2, r.Err == nil || errors.Is(r.Err, driver.ErrHeld), "a claim that saw a token of the future answers %v", r.Err)
	v := f.state()
	f.must(ruleR2, len(v.Damaged) == 0, "it damaged the record: %v", v.Damaged)
	if r.Err == nil {
		a.release(r.Fence)
	}
	r = a.claim(driver.Claim{Shard: lockName})
	f.must(ruleR2, r.Err == nil, "a claim after that answers %v", r.Err)
}

func lockHeld(f *fixture) {
	a, b := f.join("a"), f.join("b")
	former := a.acquire(lockName)
	a.release(former)
	fence := a.acquire(lockName)
	for _, saw := range []driver.Owner{{}, {Token: former.Token}, {Token: fence.Token}, seen(former), seen(fence)} {
		r := b.claim(driver.Claim{Shard: lockName, Seen: saw})
		held, ok := errors.AsType[*driver.HeldError](r.Err)
		f.must(ruleA1, ok && held.Owner == seen(fence), "a claim of a held lock, seen as %+v, answers %v; the holder is %+v",
			saw, r.Err, fence)
	}
	f.must(ruleA1, f.owner(lockName) == seen(fence), "refused claims changed the record to %+v", f.owner(lockName))
	r := b.claim(driver.Claim{Shard: lockName, Seen: seen(fence), Preempt: true})
	f.must(ruleR2, r.Err == nil && r.Fence.Token > fence.Token, "a lock is preempted with %v, token %d after %d",
		r.Err, r.Fence.Token, fence.Token)
}

func lockRepeated(f *fixture) {
	a, b := f.join("a"), f.join("b")
	c := driver.Claim{Shard: lockName}
	first := a.claim(c)
	f.setup("claim", first.Err)
	again := a.claim(c)
	f.must(ruleA3, again.Err == nil && again.Fence == first.Fence, "a repeated claim answers %+v, %v; it had %+v",
		again.Fence, again.Err, first.Fence)
	a.release(first.Fence)
	other := b.claim(c)
	f.setup("claim", other.Err)
	r := a.claim(c)
	f.must(ruleR2, errors.Is(r.Err, driver.ErrHeld), "a claim that was granted before, and released, answers %+v, %v while "+
		"another member holds the lock", r.Fence, r.Err)
	f.must(ruleR2, f.owner(lockName) == seen(other.Fence), "it changed the record to %+v", f.owner(lockName))
}

func lockZombie(f *fixture) {
	a, b, c := f.join("a"), f.join("b"), f.join("c")
	dead := a.acquire(lockName)
	a.release(dead)
	harmless := func(when string, want driver.Owner) {
		r := a.write(dead, 1, appendUnique())
		f.must(ruleF1, errors.Is(r.Err, driver.ErrFenced), "a commit under a released lock answers %v %s", r.Err, when)
		t := a.transfer(dead, c.ID())
		f.must(ruleF1, errors.Is(t.Err, driver.ErrFenced), "a transfer of a released lock answers %v %s", t.Err, when)
		f.must(ruleR1, a.tryRelease(dead) == nil, "releasing a lock again is an error %s", when)
		got := f.owner(lockName)
		f.must(ruleR2, got.Session == want.Session && (want.Session == "" || got == want),
			"a dead fence changed the record from %+v to %+v %s", want, got, when)
	}
	harmless("while it is free", driver.Owner{})
	for range 3 { // a record that is created again must not be mistaken for an earlier one
		fence := b.acquire(lockName)
		harmless("while another one holds it", seen(fence))
		b.release(fence)
	}
	f.must(ruleF1, f.head(lockName) == driver.Head{}, "the head is %+v, and no commit was accepted", f.head(lockName))
}

func lockReleaseSeen(f *fixture) {
	a := f.join("a")
	m := f.watch(f.open())
	for range 5 {
		fence := a.acquire(lockName)
		f.must(ruleO1, m.until(func() bool { return m.shards[lockName] == seen(fence) }), "a lock's grant %+v was not reported: %+v",
			fence, m.shards[lockName])
		a.release(fence)
		f.must(ruleR2, m.until(func() bool { return m.shards[lockName].Session == "" }), "a lock's release was not reported: the view "+
			"has %+v", m.shards[lockName])
	}
}

func lockOfTheDead(f *fixture) {
	a, b := f.join("a"), f.join("b")
	fence := a.acquire(lockName)
	f.evict(a)
	f.must(ruleR2, f.owner(lockName) == seen(fence), "the lock of a session that ended has the record %+v", f.owner(lockName))
	f.must(ruleR1, b.tryRelease(fence) == nil, "releasing the lock of a session that ended is an error")
	f.must(ruleR2, f.owner(lockName).Session == "", "a lock that another member released has the record %+v", f.owner(lockName))
	r := b.claim(driver.Claim{Shard: lockName})
	f.must(ruleR2, r.Err == nil && r.Fence.Token > fence.Token, "the next claim answers %v, token %d after %d", r.Err,
		r.Fence.Token, fence.Token)
}

func lockWithHead(f *fixture) {
	a, b := f.join("a"), f.join("b")
	fence := a.acquire(lockName)
	head := a.commit(fence, appendOp("x"), put("k", "v"))
	a.release(fence)
	for i, m := range []*member{b, a, b} {
		r := m.claim(driver.Claim{Shard: lockName})
		f.must(ruleR2, r.Err == nil && r.Head == head, "a free lock that has a head is granted with %v and head %+v; it is %+v",
			r.Err, r.Head, head)
		head = m.commit(r.Fence, appendOp("y"))
		f.must(ruleL3, head.Number == driver.WriteNo(i+2) && head.Seq == driver.Seq(i+2), "the next commit made the head %+v", head)
		m.release(r.Fence)
	}
	f.must(ruleL3, len(f.log(lockName, 0)) == 4 && f.get(lockName, "k") != nil, "a lock's log has %d entries, its item is %v",
		len(f.log(lockName, 0)), f.get(lockName, "k"))
}

func lockDamagedHead(f *fixture) {
	a := f.join("a")
	fence := a.acquire(lockName)
	a.commit(fence, appendOp("x"))
	a.release(fence)
	f.setup("tamper", f.store.Tamper(f.ctx, CorruptHead, string(lockName)))
	f.join("b").refusedHead(lockName, func() driver.Owner { return driver.Owner{} })
	a.refusedHead(lockName, func() driver.Owner { return f.owner(lockName) })
}

func lockReleaseRace(f *fixture) {
	a, b := f.join("a"), f.join("b")
	accepted := driver.WriteNo(0)
	f.rounds(40, 2*time.Second, func(int) {
		r := a.claim(driver.Claim{Shard: lockName})
		f.must(ruleR2, r.Err == nil && r.Head.Number == accepted, "the lock is granted with %v and head %+v after %d commits",
			r.Err, r.Head, accepted)
		var w driver.CommitResult
		var err error
		together(
			func() { w = b.write(r.Fence, accepted+1, appendUnique()) },
			func() { err = a.tryRelease(r.Fence) },
		)
		f.setup("release", err)
		f.must(ruleR2, f.owner(lockName).Session == "", "a lock that was released beside a commit has the record %+v", f.owner(lockName))
		switch {
		case w.Err == nil:
			accepted++
		case !errors.Is(w.Err, driver.ErrFenced):
			f.fail(ruleF1, "a commit beside the release answers %v", w.Err)
		}
	})
	f.must(ruleF1, f.head(lockName).Number == accepted, "the head is %+v after %d commits", f.head(lockName), accepted)
}

func lockClaimRace(f *fixture) {
	a, others := f.join("a"), []*member{f.join("b"), f.join("c")}
	f.rounds(20, 2*time.Second, func(int) {
		fence := a.acquire(lockName)
		results := make([]driver.AcquireResult, len(others))
		claim := func(i int) func() {
			return func() { results[i] = others[i].claim(driver.Claim{Shard: lockName}) }
		}
		together(claim(0), claim(1), func() { _ = a.tryRelease(fence) })
		owner, granted := f.owner(lockName), 0
		for i, r := range results {
			switch {
			case r.Err == nil:
				granted++
				f.must(ruleA1, seen(r.Fence) == owner && r.Fence.Token > fence.Token, "%s was granted %+v; the record is %+v",
					others[i].node, r.Fence, owner)
				others[i].release(r.Fence)
			case !errors.Is(r.Err, driver.ErrHeld):
				f.fail(ruleR2, "a claim beside a release answers %v", r.Err)
			}
		}
		f.must(ruleA1, granted <= 1, "%d members were granted the lock", granted)
		a.release(fence)
	})
}

func lockRecords(f *fixture) {
	const names = 3 * driver.MaxFreeLocks
	a := f.join("a")
	if a.b.Info().Limits.RecordsStay {
		f.skip("the store keeps the records of free locks (driver.Limits.RecordsStay)")
	}
	kept := a.acquire("s")
	for lo := 0; lo < names; lo += 1024 {
		claims := make([]driver.Claim, 0, 1024)
		for i := lo; i < min(lo+1024, names); i++ {
			claims = append(claims, driver.Claim{Shard: driver.ShardID(fmt.Sprintf("%sname-%d", driver.LockPrefix, i))})
		}
		results, err := a.Acquire(f.ctx, claims)
		f.setup("claim", err)
		fences := make([]driver.Fence, len(results))
		for i, r := range results {
			f.setup("claim", r.Err)
			fences[i] = r.Fence
		}
		f.setup("release", a.Release(f.ctx, fences))
	}
	full := f.state()
	f.must(ruleR2, len(full.Shards) <= driver.MaxFreeLocks+1, "%d names that were locked once left %d records; the bound is %d",
		names, len(full.Shards)-1, driver.MaxFreeLocks)
	f.must(ruleR2, ownerIn(full, "s") == seen(kept), "the record of a shard is %+v afterwards", ownerIn(full, "s"))
}
