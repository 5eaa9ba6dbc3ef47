package conformance

import (
	"errors"
	"fmt"
	"time"

	"github.com/tenure-go/tenure/core/driver"
)

func acquireCases() []testCase {
	const area = "Acquire"
	return []testCase{
		{Area: area, Property: "Exclusive", Rules: []rule{ruleA1}, run: exclusive,
			Shows: "a held shard cannot be taken; its record stays"},
		{Area: area, Property: "ManyContenders", Rules: []rule{ruleA1, ruleA2, ruleA4}, run: manyContenders,
			Shows: "of many claims that race on one record exactly one succeeds"},
		{Area: area, Property: "Idempotent", Rules: []rule{ruleA3}, run: idempotent,
			Shows: "a repeated claim or transfer answers the same until the lease ends"},
		{Area: area, Property: "TokenStableAcrossBeats", Rules: []rule{ruleA2}, run: tokenStableAcrossBeats,
			Shows: "heartbeats and commits change no token"},
		{Area: area, Property: "PartialBatch", Rules: []rule{ruleA4}, run: partialBatch,
			Shows: "free, held and stale claims of one batch are answered separately, in order"},
		{Area: area, Property: "HeldReportsOwner", Rules: []rule{ruleA4}, run: heldReportsOwner,
			Shows: "a denied claim returns the record; repeated with it, it succeeds"},
		{Area: area, Property: "ClaimOnLiveHolderRefused", Rules: []rule{ruleA1}, run: claimOnLiveHolderRefused,
			Shows: "the store, not the claim, says whether the holder lives"},
		{Area: area, Property: "ClaimRacesEvict", Rules: []rule{ruleA1, ruleM1}, run: claimRacesEvict,
			Shows: "a session that is evicted while it claims gets nothing afterwards"},
		{Area: area, Property: "ClaimWithStaleSeen", Rules: []rule{ruleA1, ruleA4}, run: claimWithStaleSeen,
			Shows: "a claim that saw another record takes nothing, not even a free shard"},
		{Area: area, Property: "PreemptExactTokenOnly", Rules: []rule{ruleA5}, run: preemptExactTokenOnly,
			Shows: "preemption takes a shard only from the token that it names"},
		{Area: area, Property: "LargeBatchSplit", Rules: []rule{ruleA4, ruleA6}, run: largeBatchSplit,
			Shows: "a batch over the store's limit is split, with denied items anywhere"},
		{Area: area, Property: "BatchCost", Rules: []rule{ruleA6}, Needs: []string{"Calls"}, alone: true, run: batchCost,
			Shows: "round trips grow with batches, not with items, denied or not"},
		{Area: area, Property: "OutOfBandWriteDetected", Rules: []rule{ruleA2, ruleF1}, Needs: []string{"Tamper"},
			run:   outOfBandWriteDetected,
			Shows: "a record changed past the driver permits only its own fence, no old token"},
	}
}

func seen(fence driver.Fence) driver.Owner {
	return driver.Owner{Session: fence.Session, Token: fence.Token}
}

// heldWith returns the record in a denied claim's error.
func heldWith(err error) (driver.Owner, bool) {
	var held *driver.HeldError
	if !errors.Is(err, driver.ErrHeld) || !errors.As(err, &held) {
		return driver.Owner{}, false
	}
	return held.Owner, true
}

func exclusive(f *fixture) {
	a, b := f.join("a"), f.join("b")
	fence := a.acquire("s")
	for _, c := range []driver.Claim{
		{Shard: "s"},
		{Shard: "s", Seen: seen(fence)},
		{Shard: "s", Seen: driver.Owner{Session: b.ID(), Token: fence.Token}},
		{Shard: "s", Seen: driver.Owner{Token: fence.Token}},
	} {
		r := b.claim(c)
		owner, held := heldWith(r.Err)
		f.must(ruleA1, held, "claiming %+v of a held shard answers %+v, %v; want a *HeldError", c.Seen, r.Fence, r.Err)
		f.must(ruleA1, owner == seen(fence), "the denied claim reports %+v; want %+v", owner, seen(fence))
	}
	f.must(ruleA1, f.owner("s") == seen(fence), "denied claims changed the record to %+v", f.owner("s"))
	r := a.write(fence, 1, appendOp("x"))
	f.must(ruleA1, r.Err == nil, "after denied claims the holder's commit answers %v", r.Err)
}

func manyContenders(f *fixture) {
	const n = 6
	members := make([]*member, n)
	for i := range members {
		members[i] = f.join(fmt.Sprintf("m%d", i))
	}
	var at driver.Owner
	var newest driver.Token
	f.rounds(2000, 1500*time.Millisecond, func(int) {
		results := make([]driver.AcquireResult, n)
		together(times(n, func(i int) {
			results[i] = members[i].claim(driver.Claim{Shard: "s", Seen: at})
		})...)
		winner := -1
		for i, r := range results {
			if r.Err != nil {
				continue
			}
			if winner >= 0 {
				f.fail(ruleA1, "sessions %s and %s were both granted the shard: tokens %d and %d", members[winner].ID(),
					members[i].ID(), results[winner].Fence.Token, r.Fence.Token)
			}
			winner = i
		}
		f.must(ruleA1, winner >= 0, "of %d claims at once none succeeded; the first: %v", n, results[0].Err)
		fence := results[winner].Fence
		f.must(ruleA1, fence.Session == members[winner].ID() && fence.Shard == "s", "session %s was granted the fence %+v",
			members[winner].ID(), fence)
		f.must(ruleA2, fence.Token > newest, "token %d was granted after token %d", fence.Token, newest)
		newest = fence.Token
		for i, r := range results {
			if owner, held := heldWith(r.Err); i != winner && (!held || owner != seen(fence)) {
				f.fail(ruleA4, "a claim that lost to %+v answers %v", fence, r.Err)
			}
		}
		if err := members[winner].tryRelease(fence); err != nil {
			f.setup("release", err)
		}
		at = driver.Owner{Token: fence.Token}
	})
}

func idempotent(f *fixture) {
	a, b := f.join("a"), f.join("b")
	claim := driver.Claim{Shard: "s"}
	first := a.claim(claim)
	f.setup("claim", first.Err)
	for _, when := range []string{"at once", "after a heartbeat", "after a commit"} {
		again := a.claim(claim)
		f.must(ruleA3, again.Err == nil && again.Fence == first.Fence, "the claim repeated %s answers %+v, %v; want %+v",
			when, again.Fence, again.Err, first.Fence)
		f.must(ruleA3, again.Head.Number == f.head("s").Number,
			"the claim repeated %s reports a head of %d commits; the shard has %d", when, again.Head.Number,
			f.head("s").Number)
		if when == "at once" {
			a.beat()
		} else {
			a.commit(first.Fence, appendOp("x"))
		}
	}
	r := b.claim(claim)
	f.must(ruleA3, errors.Is(r.Err, driver.ErrHeld), "another session's claim with the same Seen answers %v", r.Err)

	for _, to := range []*member{a, b} {
		fence := a.preempt("s")
		moved := a.transfer(fence, to.ID())
		f.setup("transfer", moved.Err)
		again := a.transfer(fence, to.ID())
		f.must(ruleA3, again.Err == nil && again.Fence == moved.Fence,
			"the transfer to %s repeated answers %+v, %v; want %+v", to.node, again.Fence, again.Err, moved.Fence)
		other := a.transfer(fence, f.join("c").ID())
		f.must(ruleA3, errors.Is(other.Err, driver.ErrFenced),
			"the transferred fence can be transferred once more, to another session: %v", other.Err)

		// A lease from another grant does not prove that these claims succeeded earlier.
		stale := to.claim(claim)
		owner, held := heldWith(stale.Err)
		f.must(ruleA3, held && owner == seen(moved.Fence), "a claim that saw an older record than the claimer's lease was "+
			"granted from answers %+v, %v", stale.Fence, stale.Err)
		renewed := to.transfer(moved.Fence, to.ID())
		f.setup("transfer", renewed.Err)
		stale = a.transfer(fence, to.ID())
		f.must(ruleA3, errors.Is(stale.Err, driver.ErrFenced),
			"a transfer repeated after another grant to the same session answers %+v, %v; want ErrFenced", stale.Fence,
			stale.Err)
	}

	fence := a.preempt("s")
	a.release(fence)
	r = a.claim(claim)
	owner, held := heldWith(r.Err)
	f.must(ruleA3, held && owner == driver.Owner{Token: fence.Token},
		"the first claim repeated after its lease was over answers %+v, %v", r.Fence, r.Err)

	afresh := driver.Claim{Shard: "s", Seen: owner}
	second := a.claim(afresh)
	f.setup("claim", second.Err)
	again := a.claim(afresh)
	f.must(ruleA3, again.Err == nil && again.Fence == second.Fence,
		"a claim after a release repeated answers %+v, %v; want %+v", again.Fence, again.Err, second.Fence)
}

func tokenStableAcrossBeats(f *fixture) {
	a := f.join("a")
	fence := a.acquire("s")
	for i := range 10 {
		a.beat()
		a.commit(fence, appendOp("x"), put("k", "v"))
		f.must(ruleA2, f.owner("s") == seen(fence), "after heartbeat and commit %d the record is %+v; want %+v", i,
			f.owner("s"), seen(fence))
	}
}

func partialBatch(f *fixture) {
	a, b := f.join("a"), f.join("b")
	held := b.acquire("held")
	gone := b.acquire("gone")
	b.release(gone)
	claims := []driver.Claim{
		{Shard: "free-1"},
		{Shard: "held"},
		{Shard: "gone", Seen: seen(gone)},
		{Shard: "free-2"},
		{Shard: "free-3", Seen: driver.Owner{Session: b.ID(), Token: 1}},
		{Shard: "free-4"},
	}
	res, err := a.Acquire(f.ctx, claims)
	f.must(ruleA4, err == nil && len(res) == len(claims), "a batch with denied claims answers %d results, %v; want %d",
		len(res), err, len(claims))
	for i, want := range map[int]driver.Owner{1: seen(held), 2: {Token: gone.Token}, 4: {}} {
		owner, isHeld := heldWith(res[i].Err)
		f.must(ruleA4, isHeld && owner == want, "claim %d (%q) answers %v; want a *HeldError with %+v", i, claims[i].Shard,
			res[i].Err, want)
	}
	for _, i := range []int{0, 3, 5} {
		f.must(ruleA4, res[i].Err == nil && res[i].Fence.Shard == claims[i].Shard && res[i].Fence.Session == a.ID(),
			"claim %d (%q) of a free shard answers %+v, %v", i, claims[i].Shard, res[i].Fence, res[i].Err)
		f.must(ruleA4, f.owner(claims[i].Shard) == seen(res[i].Fence), "the record of %q is %+v; granted was %+v",
			claims[i].Shard, f.owner(claims[i].Shard), res[i].Fence)
	}
	f.must(ruleA4, f.owner("held") == seen(held), "a denied claim changed the record to %+v", f.owner("held"))

	moved, err := a.Transfer(f.ctx, []driver.Transfer{
		{Fence: res[0].Fence, To: newID()},
		{Fence: res[3].Fence, To: b.ID()},
		{Fence: driver.Fence{Shard: "held", Session: a.ID(), Token: held.Token}, To: b.ID()},
		{Fence: res[5].Fence, To: a.ID()},
	})
	f.must(ruleA4, err == nil && len(moved) == 4, "a batch with refused transfers answers %d results, %v", len(moved), err)
	f.must(ruleA4, errors.Is(moved[0].Err, driver.ErrNoTarget) && moved[1].Err == nil &&
		errors.Is(moved[2].Err, driver.ErrFenced) && moved[3].Err == nil,
		"transfers to an absent session, to another, under a wrong fence and to self answer %v, %v, %v, %v",
		moved[0].Err, moved[1].Err, moved[2].Err, moved[3].Err)
}

func heldReportsOwner(f *fixture) {
	a, b := f.join("a"), f.join("b")
	fence := a.acquire("s")
	wrong := driver.Claim{Shard: "s", Seen: driver.Owner{Token: fence.Token + 1000}}
	for _, want := range []driver.Owner{seen(fence), {Token: fence.Token}} {
		r := b.claim(wrong)
		owner, held := heldWith(r.Err)
		f.must(ruleA4, held && owner == want, "a denied claim answers %v; want a *HeldError with %+v", r.Err, want)
		a.release(fence)
	}
	r := b.claim(wrong)
	owner, _ := heldWith(r.Err)
	r = b.claim(driver.Claim{Shard: "s", Seen: owner})
	f.must(ruleA4, r.Err == nil, "a claim with the record that the denied one reported answers %v", r.Err)
	r = b.claim(driver.Claim{Shard: "never", Seen: driver.Owner{Token: 5}})
	owner, held := heldWith(r.Err)
	f.must(ruleA4, held && owner == driver.Owner{}, "a denied claim of a shard without a record answers %v; want a "+
		"*HeldError with the zero Owner", r.Err)
}

func claimOnLiveHolderRefused(f *fixture) {
	a, b := f.join("a"), f.join("b")
	fence := a.acquire("s")
	r := b.claim(driver.Claim{Shard: "s", Seen: seen(fence)})
	f.must(ruleA1, errors.Is(r.Err, driver.ErrHeld), "a claim that saw the record exactly takes a shard whose holder "+
		"lives: %+v, %v", r.Fence, r.Err)
	f.evict(a)
	r = b.claim(driver.Claim{Shard: "s", Seen: seen(fence)})
	f.must(ruleA1, r.Err == nil && r.Fence.Token > fence.Token,
		"the same claim after the holder was evicted answers %+v, %v", r.Fence, r.Err)
}

func claimRacesEvict(f *fixture) {
	judge, backend := f.join("judge"), f.open()
	f.rounds(300, time.Second, func(i int) {
		m := f.joinOn(backend, "m")
		shard := driver.ShardID(fmt.Sprintf("s%d", i))
		version, _ := f.beatOf(m.ID())
		var granted driver.AcquireResult
		var evicted driver.EvictResult
		var rival driver.AcquireResult
		var after *driver.View
		var lookErr error
		together(
			func() { granted = m.claim(driver.Claim{Shard: shard}) },
			func() {
				evicted = judge.suspect(m.ID(), version)
				after, lookErr = judge.b.Observe(f.ctx, driver.ObserveQuery{})
				rival = judge.claim(driver.Claim{Shard: shard})
			},
		)
		f.setup("evict", evicted.Err)
		f.setup("observe", lookErr)
		f.must(ruleM1, granted.Err != nil || ownerIn(after, shard) == seen(granted.Fence),
			"a session was granted %+v after it was evicted: right after that the record was %+v", granted.Fence,
			ownerIn(after, shard))
		f.must(ruleM1, granted.Err == nil || errors.Is(granted.Err, driver.ErrSessionLost) ||
			errors.Is(granted.Err, driver.ErrHeld),
			"a claim that raced the claimer's eviction answers %v", granted.Err)
		f.must(ruleA1, granted.Err == nil != (rival.Err == nil),
			"two claims on a new shard answer %v and %v; want exactly one success", granted.Err, rival.Err)
		late := m.claim(driver.Claim{Shard: shard + "-late"})
		f.must(ruleM1, errors.Is(late.Err, driver.ErrSessionLost), "an evicted session claims: %v", late.Err)
	})
}

func claimWithStaleSeen(f *fixture) {
	a, b := f.join("a"), f.join("b")
	first := a.acquire("s")
	a.release(first)
	second := a.acquire("s")
	f.evict(a)
	want := seen(second)
	for _, stale := range []driver.Owner{{}, seen(first), {Token: first.Token}, {Token: second.Token},
		{Session: b.ID(), Token: second.Token}} {
		r := b.claim(driver.Claim{Shard: "s", Seen: stale})
		f.must(ruleA1, errors.Is(r.Err, driver.ErrHeld), "a claim that saw %+v where the record is %+v answers %+v, %v",
			stale, want, r.Fence, r.Err)
		owner, _ := heldWith(r.Err)
		f.must(ruleA4, owner == want, "the denied claim reports %+v; the record is %+v", owner, want)
	}
	r := b.claim(driver.Claim{Shard: "s", Seen: want})
	f.must(ruleA1, r.Err == nil, "a claim that saw the record of a dead holder exactly answers %v", r.Err)
}

func preemptExactTokenOnly(f *fixture) {
	a, b := f.join("a"), f.join("b")
	first := a.acquire("s")
	a.release(first)
	second := a.acquire("s")
	for _, stale := range []driver.Owner{{}, seen(first), {Token: second.Token}} {
		r := b.claim(driver.Claim{Shard: "s", Seen: stale, Preempt: true})
		f.must(ruleA5, errors.Is(r.Err, driver.ErrHeld), "preempting %+v where the record is %+v answers %+v, %v", stale,
			seen(second), r.Fence, r.Err)
	}
	f.must(ruleA5, a.write(second, 1, appendOp("x")).Err == nil, "after refused preemptions the holder cannot commit")
	r := b.claim(driver.Claim{Shard: "s", Seen: seen(second), Preempt: true})
	f.must(ruleA5, r.Err == nil && r.Fence.Token > second.Token, "preempting exactly the record answers %+v, %v", r.Fence,
		r.Err)
	f.must(ruleA5, f.owner("s") == seen(r.Fence), "after a preemption the record is %+v; granted was %+v", f.owner("s"),
		r.Fence)
	late := a.write(second, 2, appendOp("y"))
	f.must(ruleA5, errors.Is(late.Err, driver.ErrFenced), "a preempted fence commits: %v", late.Err)
	f.must(ruleA5, a.Beat(f.ctx) == nil, "preempting one shard ended the holder's session")
}

// largeBatch returns the size of a batch that fills two calls and part of a third, up to a limit.
func largeBatch(b driver.Backend) int {
	return min(2*max(b.Info().Limits.BatchItems, 1)+3, 1500)
}

func largeBatchSplit(f *fixture) {
	a, b := f.join("a"), f.join("b")
	n := largeBatch(a.b)
	claims := make([]driver.Claim, n)
	taken := map[int]bool{0: true, n / 2: true, n - 1: true}
	for i := range claims {
		claims[i].Shard = driver.ShardID(fmt.Sprintf("s%d", i))
		if taken[i] {
			b.acquire(claims[i].Shard)
		}
	}
	res, err := a.Acquire(f.ctx, claims)
	f.must(ruleA6, err == nil && len(res) == n, "a batch of %d claims answers %d results, %v", n, len(res), err)
	var fences []driver.Fence
	var writes []driver.Write
	for i, r := range res {
		if taken[i] {
			f.must(ruleA4, errors.Is(r.Err, driver.ErrHeld), "claim %d of %d, of a held shard, answers %v", i, n, r.Err)
			continue
		}
		f.must(ruleA4, r.Err == nil && r.Fence.Shard == claims[i].Shard, "claim %d of %d answers %+v, %v", i, n, r.Fence,
			r.Err)
		fences = append(fences, r.Fence)
		number := driver.WriteNo(1)
		if i%7 == 3 {
			number = 2
		}
		writes = append(writes, newWrite(r.Fence, number, put("k", "v")))
	}
	done, err := a.Commit(f.ctx, writes)
	f.must(ruleA6, err == nil && len(done) == len(writes), "a batch of %d writes answers %d results, %v", len(writes),
		len(done), err)
	for i, r := range done {
		if writes[i].Number == 2 {
			f.must(ruleA4, errors.Is(r.Err, driver.ErrConflict), "write %d of %d, with a wrong number, answers %v", i, n,
				r.Err)
		} else {
			f.must(ruleA4, r.Err == nil && r.Head.Number == 1, "write %d of %d answers head %+v, %v", i, n, r.Head, r.Err)
		}
	}
	moves := make([]driver.Transfer, len(fences))
	for i, fence := range fences {
		moves[i] = driver.Transfer{Fence: fence, To: b.ID()}
	}
	moved, err := a.Transfer(f.ctx, moves)
	f.must(ruleA6, err == nil && len(moved) == len(moves), "a batch of %d transfers answers %d results, %v", len(moves),
		len(moved), err)
	for i, r := range moved {
		f.must(ruleA4, r.Err == nil && r.Fence.Shard == fences[i].Shard && r.Fence.Session == b.ID(),
			"transfer %d of %d answers %+v, %v", i, n, r.Fence, r.Err)
		fences[i] = r.Fence
	}
	b.release(fences...)
	for _, s := range f.state().Shards {
		if s.Owner.Session == a.ID() {
			f.fail(ruleA6, "after everything was transferred and released the record of %q is %+v", s.Shard, s.Owner)
		}
	}
}

func commitEach(f *fixture, m *member, fences []driver.Fence) {
	writes := make([]driver.Write, len(fences))
	for i, fence := range fences {
		writes[i] = newWrite(fence, 1, appendOp("x"))
	}
	res, err := m.Commit(f.ctx, writes)
	f.setup("commit to many", err)
	for _, r := range res {
		f.setup("commit to one of many", r.Err)
	}
}

func transferEach(f *fixture, from *member, fences []driver.Fence, to driver.SessionID) []driver.Fence {
	moves := make([]driver.Transfer, len(fences))
	for i, fence := range fences {
		moves[i] = driver.Transfer{Fence: fence, To: to}
	}
	res, err := from.Transfer(f.ctx, moves)
	f.setup("transfer many", err)
	moved := make([]driver.Fence, len(fences))
	for i, r := range res {
		f.setup("transfer one of many", r.Err)
		moved[i] = r.Fence
	}
	return moved
}

func batchCost(f *fixture) {
	a, b, c := f.join("a"), f.join("b"), f.join("c")
	items := max(a.b.Info().Limits.BatchItems, 1)
	n := min(2*items+3, 1500)
	const few = 24 // number of sessions that the case evicts
	var fences []driver.Fence
	var suspects []driver.Suspect
	claims := make([]driver.Claim, n)
	denied := map[int]bool{}
	for i := range 12 {
		denied[i*(n-1)/11] = true
	}
	for _, step := range []struct {
		what    string
		n       int
		each    int64 // number of round trips for a batch
		reads   int64 // reads of one key for each item, in a store that cannot read several keys together
		prepare func()
		call    func()
	}{
		{"acquiring free shards", n, 3, 0, nil, func() { fences = a.hold(n) }},
		{"committing", n, 4, 0, nil, func() { commitEach(f, a, fences) }},
		{"transferring", n, 4, 2, nil, func() { fences = transferEach(f, a, fences, b.ID()) }},
		{"releasing another's shards", n, 4, 3, nil, func() { b.release(fences...) }},
		{"acquiring shards of which some are held", n, 4, 5, func() {
			for i, fence := range fences {
				claims[i] = driver.Claim{Shard: fence.Shard, Seen: driver.Owner{Token: fence.Token}}
				if denied[i] { // only the store can deny the claim, because the record has not changed
					claims[i].Seen = seen(c.take(claims[i]))
				}
			}
		}, func() {
			res, err := a.Acquire(f.ctx, claims)
			f.setup("acquire many", err)
			fences = nil
			for i, r := range res {
				if denied[i] {
					f.must(ruleA6, errors.Is(r.Err, driver.ErrHeld), "claim %d of %d, of a held shard, answers %v", i, n,
						r.Err)
				} else {
					f.setup("acquire one of many", r.Err)
					fences = append(fences, r.Fence)
				}
			}
		}},
		{"releasing", n, 3, 0, nil, func() { a.release(fences...) }},
		{"evicting", few, 4, 2, func() {
			backend := f.open()
			asked := make([]driver.Beat, few)
			for i := range asked {
				asked[i].Session = f.joinOn(backend, fmt.Sprint("suspect-", i)).ID()
			}
			v, err := f.read().Observe(f.ctx, driver.ObserveQuery{Beats: asked})
			f.setup("observe", err)
			suspects = v.Beats
		}, func() {
			res, err := a.Evict(f.ctx, suspects)
			f.setup("evict many", err)
			f.must(ruleA6, len(res) == few, "evicting %d sessions gives %d results", few, len(res))
			for _, r := range res {
				f.setup("evict one of many", r.Err)
			}
		}},
	} {
		if step.prepare != nil {
			step.prepare()
		}
		before := f.store.Calls()
		step.call()
		after := f.store.Calls()
		batches := int64((step.n + items - 1) / items)
		reads, writes := after.Reads-before.Reads, after.Writes-before.Writes
		limit := step.each*batches + 2
		f.must(ruleA6, writes <= limit && reads+writes <= limit+step.reads*int64(step.n),
			"%s: %d items took %d writes and %d reads in %d batches of %d", step.what, step.n, writes, reads, batches,
			items)
	}
}

func outOfBandWriteDetected(f *fixture) {
	tried := 0
	for i, what := range []Tampering{RewriteShard, RemoveShard} {
		shard := driver.ShardID(fmt.Sprintf("s%d", i))
		a := f.join("a")
		fence := a.acquire(shard)
		a.commit(fence, appendOp("x"))
		err := f.store.Tamper(f.ctx, what, string(shard))
		if errors.Is(err, errors.ErrUnsupported) {
			continue
		}
		f.setup(string(what), err)
		tried++
		newest := fence.Token
		r := a.write(fence, 2, appendOp("y"))
		now := f.owner(shard)
		switch {
		case r.Err == nil:
			f.must(ruleF1, now == seen(fence), "%s: a commit under %+v was accepted; the record is %+v", what, seen(fence),
				now)
		case errors.Is(r.Err, driver.ErrFenced):
			f.must(ruleF1, now != seen(fence), "%s: a commit under the fence that the record shows answers %v", what, r.Err)
			newest = max(newest, now.Token)
		default:
			f.must(ruleF1, driver.NotApplied(r.Err), "%s: a commit answers %v; want an error of the closed set", what,
				r.Err)
		}
		f.evict(a)
		b := f.join("b")
		grant := b.claim(driver.Claim{Shard: shard, Seen: f.owner(shard)})
		if errors.Is(grant.Err, driver.ErrStoreChanged) {
			continue
		}
		f.setup("acquire after tampering", grant.Err)
		f.must(ruleA2, grant.Fence.Token > newest, "%s: token %d was granted after token %d", what, grant.Fence.Token,
			newest)
		r = a.write(fence, 2, appendOp("z"))
		f.must(ruleF1, errors.Is(r.Err, driver.ErrFenced), "%s: a superseded commit answers %v", what, r.Err)
	}
	if tried == 0 {
		f.skip("the store's schema makes this tampering impossible")
	}
}
