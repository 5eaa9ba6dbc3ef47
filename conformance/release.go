package conformance

import (
	"errors"
	"time"

	"github.com/tenure-go/tenure/core/driver"
)

func releaseCases() []testCase {
	const area = "Release"
	return []testCase{
		{Area: area, Property: "ExactOnly", Rules: []rule{ruleR1}, run: releaseExactOnly,
			Shows: "a release of another session, token or shard frees nothing"},
		{Area: area, Property: "StaleIsNoop", Rules: []rule{ruleR1}, run: releaseStaleIsNoop,
			Shows: "releasing an older lease succeeds and leaves the present one"},
		{Area: area, Property: "DoubleIsNoop", Rules: []rule{ruleR1}, run: releaseDoubleIsNoop,
			Shows: "a second release changes nothing, not even the token floor"},
		{Area: area, Property: "ReacquireAtOnce", Rules: []rule{ruleR1}, run: reacquireAtOnce,
			Shows: "another session takes a released shard without delay"},
		{Area: area, Property: "TransferToLiveMember", Rules: []rule{ruleA5, ruleA2}, run: transferToLiveMember,
			Shows: "the successor holds the shard with a higher token and the same head"},
		{Area: area, Property: "TransferToAbsentMemberRefused", Rules: []rule{ruleA5}, run: transferToAbsentMemberRefused,
			Shows: "a transfer to an absent session is refused; the fence stays valid"},
		{Area: area, Property: "TransferRacesEvict", Rules: []rule{ruleA5}, run: transferRacesEvict,
			Shows: "a session that is evicted during a transfer to it gets nothing afterwards"},
		{Area: area, Property: "TransferToSelfNewToken", Rules: []rule{ruleA5, ruleA2}, run: transferToSelfNewToken,
			Shows: "a transfer to oneself is a new lease and fences the old one"},
		{Area: area, Property: "TransferToMemberThatDiesIsReclaimable", Rules: []rule{ruleA5, ruleA1},
			run:   transferToMemberThatDies,
			Shows: "a dead successor's shard can be claimed from the record"},
		{Area: area, Property: "TransferFencesFormer", Rules: []rule{ruleA5}, run: transferFencesFormer,
			Shows: "a transferred fence can neither commit, transfer nor free the shard"},
		{Area: area, Property: "TransferExactOnly", Rules: []rule{ruleA5}, run: transferExactOnly,
			Shows: "a transfer under any fence but the record's is refused"},
	}
}

func releaseExactOnly(f *fixture) {
	a, b := f.join("a"), f.join("b")
	fence, other := a.acquire("s"), a.acquire("t")
	for _, wrong := range []driver.Fence{
		{Shard: "s", Session: b.ID(), Token: fence.Token},
		{Shard: "s", Session: a.ID(), Token: fence.Token + 1},
		{Shard: "s", Session: a.ID(), Token: max(fence.Token-1, 1)},
		{Shard: "none", Session: a.ID(), Token: fence.Token},
	} {
		if wrong == fence {
			continue
		}
		for _, by := range []*member{a, b} {
			f.must(ruleR1, by.tryRelease(wrong) == nil, "releasing %+v, which is not held, is an error", wrong)
		}
		f.must(ruleR1, f.owner("s") == seen(fence) && f.owner("t") == seen(other),
			"releasing %+v changed the records to %+v and %+v", wrong, f.owner("s"), f.owner("t"))
	}
	f.must(ruleR1, f.owner("none") == driver.Owner{}, "releasing a shard without a record made one")
	a.release(fence)
	f.must(ruleR1, f.owner("s") == driver.Owner{Token: fence.Token} && f.owner("t") == seen(other),
		"after one of two leases was released the records are %+v and %+v", f.owner("s"), f.owner("t"))
}

func releaseStaleIsNoop(f *fixture) {
	a, b := f.join("a"), f.join("b")
	old := a.acquire("s")
	a.release(old)
	again := a.acquire("s")
	f.must(ruleR1, a.tryRelease(old) == nil, "releasing an older lease of the same session is an error")
	f.must(ruleR1, f.owner("s") == seen(again), "releasing token %d freed the same session's token %d: the record is %+v",
		old.Token, again.Token, f.owner("s"))
	a.release(again)
	others := b.acquire("s")
	for _, stale := range []driver.Fence{old, again} {
		f.must(ruleR1, a.tryRelease(stale) == nil, "releasing a lease that another session took over is an error")
		f.must(ruleR1, f.owner("s") == seen(others), "releasing token %d freed another session's lease: the record is %+v",
			stale.Token, f.owner("s"))
	}
	mine := a.acquire("t")
	others = b.preempt("t") // the process of member a does not know of this grant
	f.must(ruleR1, a.tryRelease(mine) == nil, "releasing a lease that was preempted is an error")
	f.must(ruleR1, f.owner("t") == seen(others), "releasing token %d, which another process had preempted, freed its "+
		"lease: the record is %+v", mine.Token, f.owner("t"))
}

func releaseDoubleIsNoop(f *fixture) {
	a := f.join("a")
	fence := a.acquire("s")
	for range 3 {
		f.must(ruleR1, a.tryRelease(fence) == nil, "a repeated release is an error")
		f.must(ruleR1, f.owner("s") == driver.Owner{Token: fence.Token},
			"the record after a release is %+v; want nobody, with token %d", f.owner("s"), fence.Token)
	}
}

func reacquireAtOnce(f *fixture) {
	members := []*member{f.join("a"), f.join("b")}
	fence := members[0].acquire("s")
	for i := range 20 {
		from, to := members[i%2], members[(i+1)%2]
		from.release(fence)
		r := to.claim(driver.Claim{Shard: "s", Seen: driver.Owner{Token: fence.Token}})
		f.must(ruleR1, r.Err == nil, "right after a release another session's claim answers %v", r.Err)
		fence = r.Fence
	}
}

func transferToLiveMember(f *fixture) {
	a, b := f.join("a"), f.join("b")
	fence := a.acquire("s")
	a.commit(fence, appendOp("x"), put("k", "v"))
	r := a.transfer(fence, b.ID())
	f.must(ruleA5, r.Err == nil, "a transfer to a live member answers %v", r.Err)
	f.must(ruleA5, r.Fence.Shard == "s" && r.Fence.Session == b.ID() && f.owner("s") == seen(r.Fence),
		"a transfer to %s gives the fence %+v and the record %+v", b.ID(), r.Fence, f.owner("s"))
	f.must(ruleA2, r.Fence.Token > fence.Token, "a transfer of token %d gives token %d", fence.Token, r.Fence.Token)
	f.must(ruleA5, r.Head == f.head("s"), "a transfer reports the head %+v; it is %+v", r.Head, f.head("s"))
	w := b.write(r.Fence, 2, appendOp("y"))
	f.must(ruleA5, w.Err == nil, "the successor's commit answers %v", w.Err)
}

func transferToAbsentMemberRefused(f *fixture) {
	a, b := f.join("a"), f.join("b")
	fence := a.acquire("s")
	f.evict(b)
	for _, to := range []driver.SessionID{b.ID(), newID()} {
		r := a.transfer(fence, to)
		f.must(ruleA5, errors.Is(r.Err, driver.ErrNoTarget),
			"a transfer to a session without a record answers %+v, %v; want ErrNoTarget", r.Fence, r.Err)
		f.must(ruleA5, f.owner("s") == seen(fence), "a refused transfer changed the record to %+v", f.owner("s"))
	}
	f.must(ruleA5, a.write(fence, 1, appendOp("x")).Err == nil, "after refused transfers the fence is no longer valid")
}

func transferRacesEvict(f *fixture) {
	a, judge, backend := f.join("a"), f.join("judge"), f.open()
	fence := a.acquire("s")
	f.rounds(200, time.Second, func(int) {
		m := f.joinOn(backend, "m")
		version, _ := f.beatOf(m.ID())
		var moved driver.AcquireResult
		var evicted driver.EvictResult
		var after *driver.View
		var lookErr error
		together(
			func() { moved = a.transfer(fence, m.ID()) },
			func() {
				evicted = judge.suspect(m.ID(), version)
				after, lookErr = judge.b.Observe(f.ctx, driver.ObserveQuery{})
			},
		)
		f.setup("evict", evicted.Err)
		f.setup("observe", lookErr)
		if moved.Err != nil {
			f.must(ruleA5, errors.Is(moved.Err, driver.ErrNoTarget),
				"a transfer that raced its target's eviction answers %v", moved.Err)
			return
		}
		f.must(ruleA5, ownerIn(after, "s") == seen(moved.Fence),
			"%+v was granted to a session after it was evicted: right after that the record was %+v", moved.Fence,
			ownerIn(after, "s"))
		fence = a.take(driver.Claim{Shard: "s", Seen: seen(moved.Fence)})
	})
}

func transferToSelfNewToken(f *fixture) {
	a := f.join("a")
	fence := a.acquire("s")
	for range 3 {
		r := a.transfer(fence, a.ID())
		f.must(ruleA5, r.Err == nil && f.owner("s") == seen(r.Fence),
			"a transfer to oneself answers %+v, %v; the record is %+v", r.Fence, r.Err, f.owner("s"))
		f.must(ruleA2, r.Fence.Token > fence.Token, "a transfer of token %d to oneself gives token %d", fence.Token,
			r.Fence.Token)
		next := f.head("s").Number + 1
		old := a.write(fence, next, appendOp("old"))
		f.must(ruleA5, errors.Is(old.Err, driver.ErrFenced), "the fence before a transfer to oneself commits: %v", old.Err)
		f.must(ruleA5, a.write(r.Fence, next, appendOp("new")).Err == nil,
			"the fence after a transfer to oneself does not commit")
		fence = r.Fence
	}
}

func transferToMemberThatDies(f *fixture) {
	a, b := f.join("a"), f.join("b")
	moved := a.transfer(a.acquire("s"), b.ID())
	f.setup("transfer", moved.Err)
	claim := driver.Claim{Shard: "s", Seen: seen(moved.Fence)}
	r := a.claim(claim)
	f.must(ruleA1, errors.Is(r.Err, driver.ErrHeld), "the former holder takes the shard back while the successor lives: %v",
		r.Err)
	f.evict(b)
	r = a.claim(claim)
	f.must(ruleA5, r.Err == nil && r.Fence.Token > moved.Fence.Token,
		"a claim after the successor was evicted answers %+v, %v", r.Fence, r.Err)
}

func transferFencesFormer(f *fixture) {
	a, b := f.join("a"), f.join("b")
	fence := a.acquire("s")
	moved := a.transfer(fence, b.ID())
	f.setup("transfer", moved.Err)
	w := a.write(fence, 1, appendOp("x"))
	f.must(ruleA5, errors.Is(w.Err, driver.ErrFenced), "a transferred fence commits: %v", w.Err)
	r := a.transfer(fence, a.ID())
	f.must(ruleA5, errors.Is(r.Err, driver.ErrFenced), "a transferred fence is transferred back: %+v, %v", r.Fence, r.Err)
	a.release(fence)
	f.must(ruleA5, f.owner("s") == seen(moved.Fence), "releasing a transferred fence changed the record to %+v",
		f.owner("s"))
}

func transferExactOnly(f *fixture) {
	a, b := f.join("a"), f.join("b")
	old := a.acquire("s")
	a.release(old)
	freed := a.transfer(old, b.ID())
	f.must(ruleA5, errors.Is(freed.Err, driver.ErrFenced), "a released fence is transferred: %+v, %v", freed.Fence,
		freed.Err)
	fence := a.acquire("s")
	for _, wrong := range []driver.Fence{old, {Shard: "s", Session: a.ID(), Token: fence.Token + 1},
		{Shard: "none", Session: a.ID(), Token: fence.Token}} {
		r := a.transfer(wrong, b.ID())
		f.must(ruleA5, errors.Is(r.Err, driver.ErrFenced), "transferring %+v where the record is %+v answers %+v, %v",
			wrong, seen(fence), r.Fence, r.Err)
	}
	f.must(ruleA5, f.owner("s") == seen(fence), "refused transfers changed the record to %+v", f.owner("s"))
}
