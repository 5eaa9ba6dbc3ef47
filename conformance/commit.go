package conformance

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tenure-go/tenure/core/driver"
)

func commitCases() []testCase {
	const area = "Commit"
	return []testCase{
		{Area: area, Property: "AppliesWhenCurrent", Rules: []rule{ruleF1}, run: appliesWhenCurrent,
			Shows: "a commit under the current fence applies whole, and is then readable anywhere"},
		{Area: area, Property: "DataSurvivesLeases", Rules: []rule{ruleF1, ruleA5}, run: dataSurvivesLeases,
			Shows: "a new owner's grant reports the head; its commits continue there"},
		fencedAfter("Takeover", func(f *fixture, a, b *member, fence driver.Fence) {
			f.evict(a)
			b.acquire(fence.Shard)
		}),
		fencedAfter("Release", func(_ *fixture, a, _ *member, fence driver.Fence) { a.release(fence) }),
		fencedAfter("Transfer", func(f *fixture, a, b *member, fence driver.Fence) {
			f.setup("transfer", a.transfer(fence, b.ID()).Err)
		}),
		fencedAfter("Preempt", func(_ *fixture, _, b *member, fence driver.Fence) { b.preempt(fence.Shard) }),
		{Area: area, Property: "EvictionAloneDoesNotFence", Rules: []rule{ruleF1}, run: evictionAloneDoesNotFence,
			Shows: "only a new grant fences, whoever sends the commit"},
		{Area: area, Property: "FencedBeatsConflict", Rules: []rule{ruleF2}, run: fencedBeatsConflict,
			Shows: "a dead fence is reported even where number and preconditions fail"},
		{Area: area, Property: "NothingOnFailure", Rules: []rule{ruleF2}, run: nothingOnFailure,
			Shows: "a refused commit leaves no item, entry, trim or number"},
		{Area: area, Property: "ConflictNamesOp", Rules: []rule{ruleF2}, run: conflictNamesOp,
			Shows: "a conflict names the first operation that failed, and the head"},
		{Area: area, Property: "VersionsNeverRepeat", Rules: []rule{ruleF2}, run: versionsNeverRepeat,
			Shows: "an item that was recreated does not match its former version"},
		{Area: area, Property: "OldLeaseSameSession", Rules: []rule{ruleF1}, run: oldLeaseSameSession,
			Shows: "an earlier lease of the present holder is fenced"},
		{Area: area, Property: "IndependentWrites", Rules: []rule{ruleA4, ruleF1}, run: independentWrites,
			Shows: "writes in one call are decided separately"},
		{Area: area, Property: "ManyKindsInOneCall", Rules: []rule{ruleA4, ruleF1, ruleF2, ruleL4}, run: manyKindsInOneCall,
			Shows: "writes of every kind in one call are decided, answered and tailed separately"},
		{Area: area, Property: "RefusedAsOne", Rules: []rule{ruleA4, ruleF1}, Needs: []string{"Narrow"}, run: refusedAsOne,
			Shows: "claims and writes that the store refuses together are not applied, and are taken in smaller calls"},
		{Area: area, Property: "RacesTakeover", Rules: []rule{ruleA1, ruleA2, ruleF1, ruleL1}, run: racesTakeover,
			Shows: "commits that race a change of owner pass under the latest grant only"},
		{Area: area, Property: "LateRequestRefused", Rules: []rule{ruleF1, ruleE1}, Needs: []string{"Wire.Hold"},
			run:   lateRequestRefused,
			Shows: "a commit that arrives after a takeover does nothing"},
		{Area: area, Property: "DuplicateRequestHarmless", Rules: []rule{ruleF1, ruleA3}, Needs: []string{"Wire.Duplicate"},
			run:   duplicateRequestHarmless,
			Shows: "requests delivered twice take effect once"},
		{Area: area, Property: "LateWriteOfSameLeaseRefused", Rules: []rule{ruleF1}, Needs: []string{"Wire.Hold"},
			run:   lateWriteOfSameLeaseRefused,
			Shows: "a commit that arrives after a later one of its lease does nothing"},
		{Area: area, Property: "RepeatedWriteRefused", Rules: []rule{ruleF1, ruleF2}, run: repeatedWriteRefused,
			Shows: "a repeated write is a conflict whose head shows that it was applied"},
		{Area: area, Property: "NumberMustBeNext", Rules: []rule{ruleF1, ruleF2}, run: numberMustBeNext,
			Shows: "a commit without the next number has no effect"},
		{Area: area, Property: "TooLargeBeforeSend", Rules: []rule{ruleE1}, run: tooLargeBeforeSend,
			Shows: "writes at the limits pass; those above are refused without I/O"},
		{Area: area, Property: "BinaryAndEmptyValues", Rules: []rule{ruleF1}, run: binaryAndEmptyValues,
			Shows: "any bytes come back unchanged, and an empty value is an item"},
	}
}

func appliesWhenCurrent(f *fixture) {
	a := f.join("a")
	fence := a.acquire("s")
	f.must(ruleF1, f.head("s") == driver.Head{}, "a shard without a commit has the head %+v; want the zero one",
		f.head("s"))
	w := newWrite(fence, 1, put("b", "2"), appendOp("x"), put("a/1", "1"), appendOp("y"))
	r := a.writeCtx(f.ctx, w)
	f.must(ruleF1, r.Err == nil, "the first commit answers %v", r.Err)
	want := driver.Head{Number: 1, Seq: 2, Oldest: 1, Nonce: w.Nonce, Token: fence.Token}
	f.must(ruleF1, r.Head == want && f.head("s") == want, "the first commit's head is %+v, and reads as %+v; want %+v",
		r.Head, f.head("s"), want)
	f.must(ruleF1, len(r.Versions) == 4 && r.Versions[0] > 0 && r.Versions[2] > 0 && r.Versions[1] == 0 &&
		r.Versions[3] == 0,
		"the versions of put, append, put, append are %v; want positive ones for the puts and 0 else", r.Versions)
	item := f.get("s", "a/1")
	f.must(ruleF1, item != nil && item.Key == "a/1" && string(item.Value) == "1" && item.Version == r.Versions[2],
		"the item that was put reads as %+v; its version was %v", item, r.Versions[2])

	r2 := a.write(fence, 2, putIf("b", "3", r.Versions[0]), del("a/1"), putIf("c", "4", driver.Absent), del("absent"),
		appendOp("z"))
	f.must(ruleF1, r2.Err == nil && r2.Head.Number == 2 && r2.Head.Seq == 3,
		"a commit whose preconditions hold answers %+v, %v", r2.Head, r2.Err)
	items, err := f.read().List(f.ctx, "s", "", 0, 0)
	f.setup("list", err)
	f.must(ruleF1, len(items) == 2 && items[0].Key == "b" && string(items[0].Value) == "3" && items[1].Key == "c" &&
		items[0].Version == r2.Versions[0],
		"after put b, delete a/1, put c the items are %+v", items)
	f.must(ruleF1, f.get("s", "a/1") == nil, "a deleted item is still there")

	log := f.log("s", 0)
	got := ""
	for _, e := range log {
		got += fmt.Sprintf("%s%d/%d/%v ", e.Payload, e.Seq, e.Number, e.Token == fence.Token && e.Shard == "s")
	}
	f.must(ruleF1, got == "x1/1/true y2/1/true z3/2/true ", "the log is %q", got)

	r3 := a.write(fence, 3, trim(2))
	f.must(ruleF1, r3.Err == nil && r3.Head.Oldest == 3 && r3.Head.Seq == 3 && r3.Versions == nil, "a trim answers %+v, %v",
		r3, r3.Err)

	r4 := a.write(a.acquire("bare"), 1, del("absent"))
	f.must(ruleF1, r4.Err == nil && r4.Head.Number == 1, "deleting an absent item, of a shard that never had one, answers "+
		"%+v, %v", r4, r4.Err)
}

func dataSurvivesLeases(f *fixture) {
	a, b := f.join("a"), f.join("b")
	fence := a.acquire("s")
	head := a.commit(fence, put("k", "v"), appendOp("x"))
	f.evict(a)
	r := b.claim(driver.Claim{Shard: "s", Seen: seen(fence)})
	f.must(ruleA5, r.Err == nil && r.Head == head, "a grant reports the head %+v, %v; it is %+v", r.Head, r.Err, head)
	item := f.get("s", "k")
	f.must(ruleF1, item != nil && string(item.Value) == "v", "after a takeover the item is %+v", item)
	next := b.write(r.Fence, head.Number+1, appendOp("y"))
	f.must(ruleF1, next.Err == nil && next.Head.Seq == head.Seq+1 && next.Head.Token == r.Fence.Token,
		"the new owner's first commit answers %+v, %v", next.Head, next.Err)
}

func fencedAfter(how string, end func(f *fixture, a, b *member, fence driver.Fence)) testCase {
	return testCase{Area: "Commit", Property: "FencedAfter" + how, Rules: []rule{ruleF1, ruleF2},
		Shows: "a fence is dead after a " + strings.ToLower(how),
		run: func(f *fixture) {
			a, b := f.join("a"), f.join("b")
			fence := a.acquire("s")
			head := a.commit(fence, appendOp("x"), put("k", "v"))
			end(f, a, b, fence)
			for _, by := range []*member{a, b} {
				r := by.write(fence, head.Number+1, appendOp("stale"), put("k", "stale"))
				var fenced *driver.FencedError
				f.must(ruleF1, r.Err != nil, "a commit under a fence that is over was accepted")
				f.must(ruleF2, errors.Is(r.Err, driver.ErrFenced) && errors.As(r.Err, &fenced),
					"a commit under a fence that is over answers %v; want a *FencedError", r.Err)
				now := f.owner("s")
				f.must(ruleF2, fenced.Fence == fence && (fenced.Current == now || fenced.Current == driver.Owner{}),
					"the *FencedError has fence %+v and record %+v; they are %+v and %+v", fenced.Fence, fenced.Current,
					fence, now)
			}
			f.must(ruleF1, f.head("s") == head && string(f.get("s", "k").Value) == "v",
				"refused commits changed the head to %+v and the item to %+v", f.head("s"), f.get("s", "k"))
		}}
}

func evictionAloneDoesNotFence(f *fixture) {
	a, b := f.join("a"), f.join("b")
	fence := a.acquire("s")
	f.evict(a)
	f.must(ruleF1, a.write(fence, 1, appendOp("x")).Err == nil,
		"a commit under the latest grant is refused because its session was evicted")
	f.must(ruleF1, b.write(fence, 2, appendOp("y")).Err == nil,
		"a commit under the latest grant is refused because another session sent it")
	forged := fence
	forged.Session = b.ID()
	r := b.write(forged, 3, appendOp("z"))
	f.must(ruleF1, errors.Is(r.Err, driver.ErrFenced), "a fence with the right token and the wrong session commits: %v",
		r.Err)
}

func fencedBeatsConflict(f *fixture) {
	a, b := f.join("a"), f.join("b")
	fence := a.acquire("s")
	a.commit(fence, put("k", "v"))
	b.preempt("s")
	for what, w := range map[string]driver.Write{
		"a wrong number":               newWrite(fence, 7, put("k", "x")),
		"a failed precondition":        newWrite(fence, 2, putIf("k", "x", driver.Absent)),
		"both":                         newWrite(fence, 1, putIf("k", "x", driver.Absent), putIf("l", "x", 99)),
		"a trim beyond the log's head": newWrite(fence, 2, trim(50)),
		"a shard that was never acquired": newWrite(driver.Fence{Shard: "none", Session: a.ID(), Token: fence.Token}, 1,
			putIf("k", "x", 9)),
	} {
		r := a.writeCtx(f.ctx, w)
		f.must(ruleF2, errors.Is(r.Err, driver.ErrFenced) && !errors.Is(r.Err, driver.ErrConflict),
			"a dead fence with %s answers %v; want ErrFenced", what, r.Err)
	}
}

func nothingOnFailure(f *fixture) {
	a := f.join("a")
	fence := a.acquire("s")
	head := a.commit(fence, put("k", "v"), appendOp("x"))
	ops := []driver.Op{put("new", "1"), del("k"), appendOp("y"), trim(1)}
	dead := fence
	dead.Token++
	for what, w := range map[string]driver.Write{
		"a failed precondition at the end": newWrite(fence, 2,
			slices.Concat(ops, []driver.Op{putIf("other", "1", 1)})...),
		"a number that is not the next": newWrite(fence, 3, ops...),
		"a dead fence":                  newWrite(dead, 2, ops...),
	} {
		r := a.writeCtx(f.ctx, w)
		f.must(ruleF2, driver.NotApplied(r.Err), "a write with %s answers %v", what, r.Err)
		items, err := f.read().List(f.ctx, "s", "", 0, 0)
		f.setup("list", err)
		f.must(ruleF2, len(items) == 1 && items[0].Key == "k" && f.head("s") == head && len(f.log("s", 0)) == 1,
			"a write with %s had an effect: items %+v, head %+v, %d entries", what, items, f.head("s"),
			len(f.log("s", 0)))
	}
	f.must(ruleF2, a.write(fence, 2, ops...).Err == nil, "after refused writes the next is refused too")
}

func conflictNamesOp(f *fixture) {
	a := f.join("a")
	fence := a.acquire("s")
	r := a.write(fence, 1, put("k", "v"))
	f.setup("commit", r.Err)
	right, head := r.Versions[0], r.Head
	for _, c := range []struct {
		what string
		ops  []driver.Op
		op   int
	}{
		{"put if absent of a present item", []driver.Op{putIf("k", "x", driver.Absent)}, 0},
		{"put if another version", []driver.Op{put("a", "x"), appendOp("y"), putIf("k", "x", right+1000)}, 2},
		{"put if a version of an absent item", []driver.Op{put("a", "x"), putIf("none", "x", right)}, 1},
		{"delete if another version", []driver.Op{putIf("a", "x", driver.Absent),
			{Kind: driver.OpDelete, Key: "k", IfVersion: right + 1000}}, 1},
		{"the first of two that fail", []driver.Op{putIf("k", "x", right+1000), putIf("none", "x", right)}, 0},
	} {
		r := a.write(fence, 2, c.ops...)
		var conflict *driver.ConflictError
		f.must(ruleF2, errors.As(r.Err, &conflict) && errors.Is(r.Err, driver.ErrConflict),
			"%s answers %v; want a *ConflictError", c.what, r.Err)
		f.must(ruleF2, conflict.Op == c.op && conflict.Shard == "s" && conflict.Head == head,
			"%s gives %+v; want operation %d and head %+v", c.what, conflict, c.op, head)
	}
	r = a.write(fence, 2, putIf("k", "x", right),
		driver.Op{Kind: driver.OpDelete, Key: "none", IfVersion: driver.Absent})
	f.must(ruleF2, r.Err == nil, "preconditions that hold answer %v", r.Err)
}

func versionsNeverRepeat(f *fixture) {
	a := f.join("a")
	fence := a.acquire("s")
	had := map[driver.Version]bool{}
	var last driver.Version
	for n := driver.WriteNo(1); n < 12; n += 2 {
		r := a.write(fence, n, put("k", "same"))
		f.setup("put", r.Err)
		f.must(ruleF2, !had[r.Versions[0]], "version %d of an item came back after the item was deleted", r.Versions[0])
		had[r.Versions[0]] = true
		if last != 0 {
			stale := a.write(fence, n+1, putIf("k", "x", last))
			f.must(ruleF2, errors.Is(stale.Err, driver.ErrConflict),
				"a precondition on the version before a deletion holds: %v", stale.Err)
		}
		last = r.Versions[0]
		f.setup("delete", a.write(fence, n+1, del("k")).Err)
	}
}

func oldLeaseSameSession(f *fixture) {
	a := f.join("a")
	old := a.acquire("s")
	a.commit(old, appendOp("x"))
	a.release(old)
	now := a.acquire("s")
	r := a.write(old, 2, appendOp("stale"))
	f.must(ruleF1, errors.Is(r.Err, driver.ErrFenced),
		"a released lease of the session that holds the shard again commits: %v", r.Err)
	f.must(ruleF1, a.write(now, 2, appendOp("y")).Err == nil, "the session's present lease does not commit")
}

func independentWrites(f *fixture) {
	a := f.join("a")
	dead := a.acquire("dead")
	a.release(dead)
	ok1, conflict, ok2, number := a.acquire("ok1"), a.acquire("conflict"), a.acquire("ok2"), a.acquire("number")
	res, err := a.Commit(f.ctx, []driver.Write{
		newWrite(ok1, 1, appendOp("x")),
		newWrite(dead, 1, appendOp("x")),
		newWrite(conflict, 1, putIf("k", "v", 42)),
		newWrite(number, 2, appendOp("x")),
		newWrite(ok2, 1, put("k", "v")),
	})
	f.must(ruleA4, err == nil && len(res) == 5, "five writes answer %d results, %v", len(res), err)
	f.must(ruleA4, res[0].Err == nil && res[4].Err == nil, "good writes beside refused ones answer %v and %v", res[0].Err,
		res[4].Err)
	f.must(ruleA4, errors.Is(res[1].Err, driver.ErrFenced) && errors.Is(res[2].Err, driver.ErrConflict) &&
		errors.Is(res[3].Err, driver.ErrConflict),
		"a fenced, a conflicting and a misnumbered write answer %v, %v, %v", res[1].Err, res[2].Err, res[3].Err)
	f.must(ruleF1, f.head("ok1").Seq == 1 && f.get("ok2", "k") != nil && f.head("conflict").Number == 0 &&
		f.head("number").Number == 0, "the effects are not those of the results")
}

// takeover is a way for a shard to change owners.
type takeover int

const (
	byPreemption takeover = iota
	byTransfer
	byRelease
	byEviction // a third member, which read the version of the holder's record, evicts the holder
	takeovers
)

func (how takeover) take(from, to, judge *member, fence driver.Fence, version driver.Version) driver.AcquireResult {
	claim := driver.Claim{Shard: fence.Shard, Seen: seen(fence)}
	switch how {
	case byTransfer:
		return from.transfer(fence, to.ID())
	case byPreemption:
		claim.Preempt = true
	case byRelease:
		if err := from.tryRelease(fence); err != nil {
			return driver.AcquireResult{Err: err}
		}
		claim.Seen = driver.Owner{Token: fence.Token}
	case byEviction:
		if r := judge.suspect(from.ID(), version); !r.Evicted {
			return driver.AcquireResult{Err: fmt.Errorf("not evicted: %+v", r)}
		}
	default: // takeovers is the number of kinds of takeover
	}
	return to.claim(claim)
}

func racesTakeover(f *fixture) {
	const chunk = 20 // number of takeovers of a shard that are checked together
	backends := []driver.Backend{f.open(), f.open()}
	holder, rival := f.joinOn(backends[0], "a"), f.joinOn(backends[1], "b")
	judge := f.join("judge")
	total, raced := 0, 0
	f.rounds(150, 2500*time.Millisecond, func(i int) {
		shard := driver.ShardID(fmt.Sprintf("s%d", i))
		rec := f.recorder()
		first := holder.recorded(rec).claim(driver.Claim{Shard: shard})
		f.setup("acquire", first.Err)
		fence, head := first.Fence, first.Head
		for n := range chunk {
			if f.failed() {
				return
			}
			a, b := holder.recorded(rec), rival.recorded(rec)
			version, _ := f.beatOf(a.ID())
			var got driver.AcquireResult
			write := func() {
				for number := head.Number + 1; ; number++ {
					if r := a.write(fence, number, appendUnique()); r.Err != nil {
						if !driver.NotApplied(r.Err) || errors.Is(r.Err, driver.ErrConflict) {
							f.broken(ruleF1, "the holder's commit %d answers %v; want success or ErrFenced", number, r.Err)
						}
						return
					}
				}
			}
			kind := takeover(n % int(takeovers))
			together(write, func() { got = kind.take(a, b, judge, fence, version) })
			if got.Err != nil {
				f.fail(ruleA1, "a takeover that nothing stood in the way of answers %v", got.Err)
			}
			fence, head = got.Fence, got.Head
			if kind == byEviction {
				*holder = *f.joinOn(a.b, a.node)
			}
			holder, rival = rival, holder
			raced++
		}
		total += accepted(rec, shard)
		f.judge(rec, shard)
	})
	f.t.Logf("%d takeovers raced %d accepted commits", raced, total)
	if total < raced/20 {
		f.Errorf("%s cannot be judged: only %d commits were accepted in %d takeovers", ruleF1, total, raced)
	}
}

func lateRequestRefused(f *fixture) {
	b, w := f.wire("Hold", func(w *Wire) bool { return w.Hold != nil })
	other := f.open()
	for i, how := range []string{"evict", "preempt"} {
		shard := driver.ShardID(fmt.Sprintf("s%d", i))
		zombie, successor := f.joinOn(b, "zombie"), f.joinOn(other, "successor")
		fence := zombie.acquire(shard)
		head := zombie.commit(fence, appendOp("x"), put("k", "v"))
		release := w.Hold()
		r := f.heldWrite(zombie, newWrite(fence, head.Number+1, appendOp("late"), put("k", "late")))
		f.must(ruleE1, r.Err != nil, "a commit that never reached the store succeeded")
		f.must(ruleE1, driver.Unknown(r.Err) || errors.Is(r.Err, driver.ErrRetry),
			"a commit that was sent and not answered is answered %v; want an error outside of the closed set", r.Err)
		var next driver.Fence
		if how == "evict" {
			f.evict(zombie)
			next = successor.acquire(shard)
		} else {
			next = successor.preempt(shard)
		}
		release()
		f.delivered(zombie, shard)
		f.never(ruleF1, func() string {
			if now := f.head(shard); now != head || string(f.get(shard, "k").Value) != "v" {
				return fmt.Sprintf("a commit under token %d that arrived after token %d was granted took effect: "+
					"head %+v", fence.Token, next.Token, now)
			}
			return ""
		})
		f.must(ruleF1, successor.write(next, head.Number+1, appendOp("y")).Err == nil,
			"the new owner cannot commit after a late request of the former one")
	}
}

func (f *fixture) heldWrite(m *member, w driver.Write) (r driver.CommitResult) {
	_ = f.held(100*time.Millisecond, func(ctx context.Context) error {
		r = m.writeCtx(ctx, w)
		return r.Err
	})
	return r
}

// The call goes through a silent wire, and is abandoned after wait. If it ends before its request
// is sent, as on a busy machine, it is repeated with a longer wait.
func (f *fixture) held(wait time.Duration, call func(context.Context) error) error {
	for most := 8 * wait; ; wait *= 2 {
		ctx, cancel := context.WithTimeout(f.ctx, wait)
		err := call(ctx)
		cancel()
		if !driver.NotApplied(err) || wait > most {
			return err
		}
	}
}

// heldNone ends a case in which the wire held back no call.
func (f *fixture) heldNone(what string, last error) {
	f.t.Helper()
	if last == nil {
		f.setup("hold "+what, errors.New("it was answered"))
	}
	f.skip("the wire cannot hold " + what + ": each ended before it was sent")
}

func duplicateRequestHarmless(f *fixture) {
	b, w := f.wire("Duplicate", func(w *Wire) bool { return w.Duplicate != nil })
	a, other := f.joinOn(b, "a"), f.join("b")
	defer w.Duplicate()()
	var newest driver.Fence
	for i := range 5 {
		r := a.claim(driver.Claim{Shard: "s", Seen: f.owner("s")})
		f.must(ruleA3, r.Err == nil && f.owner("s") == seen(r.Fence),
			"a claim that was delivered twice answers %+v, %v; the record is %+v", r.Fence, r.Err, f.owner("s"))
		n := driver.WriteNo(i + 1)
		done := a.write(r.Fence, n, appendOp("x"))
		f.must(ruleF1, done.Err == nil, "a commit that was delivered twice answers %v", done.Err)
		head := f.head("s")
		f.must(ruleF1, head.Number == n && head.Seq == driver.Seq(n),
			"after %d commits that were delivered twice the head is %+v", n, head)
		moved := a.transfer(r.Fence, a.ID())
		f.must(ruleA3, moved.Err == nil && f.owner("s") == seen(moved.Fence),
			"a transfer that was delivered twice answers %+v, %v; the record is %+v", moved.Fence, moved.Err,
			f.owner("s"))
		a.beat()
		a.release(moved.Fence)
		newest = moved.Fence
	}
	f.must(ruleA3, f.owner("s") == driver.Owner{Token: newest.Token},
		"after a release that was delivered twice the record is %+v", f.owner("s"))
	f.must(ruleA3, other.claim(driver.Claim{Shard: "s", Seen: driver.Owner{Token: newest.Token}}).Err == nil,
		"the shard cannot be taken after duplicated requests")
}

func lateWriteOfSameLeaseRefused(f *fixture) {
	b, w := f.wire("Hold", func(w *Wire) bool { return w.Hold != nil })
	a, other := f.joinOn(b, "a"), f.join("b")
	fence := a.acquire("s")
	head := a.commit(fence, put("k", "1"))
	release := w.Hold()
	r := f.heldWrite(a, newWrite(fence, head.Number+1, put("k", "late"), appendOp("late")))
	f.must(ruleF1, r.Err != nil, "a commit that never reached the store succeeded")
	newer := other.commit(fence, put("k", "2"))
	release()
	f.delivered(a, "s")
	f.never(ruleF1, func() string {
		if now := f.head("s"); now != newer || string(f.get("s", "k").Value) != "2" {
			return fmt.Sprintf("commit %d, which arrived after another commit %d of the same lease, took effect: "+
				"head %+v", head.Number+1, newer.Number, now)
		}
		return ""
	})
}

func repeatedWriteRefused(f *fixture) {
	a := f.join("a")
	fence := a.acquire("s")
	w := newWrite(fence, 1, appendOp("x"), put("k", "v"))
	first := a.writeCtx(f.ctx, w)
	f.setup("commit", first.Err)
	for range 3 {
		again := a.writeCtx(f.ctx, w)
		var conflict *driver.ConflictError
		f.must(ruleF1, again.Err != nil && f.head("s") == first.Head,
			"a write that was sent twice was applied twice: head %+v, %v", f.head("s"), again.Err)
		f.must(ruleF2, errors.As(again.Err, &conflict), "a write that was sent twice answers %v; want a *ConflictError",
			again.Err)
		f.must(ruleF2, conflict.Op == driver.NumberConflict && conflict.Head == first.Head,
			"a write that was sent twice gives %+v; want NumberConflict and head %+v", conflict, first.Head)
	}
	f.must(ruleF1, len(f.log("s", 0)) == 1, "a write that was sent twice appended %d entries", len(f.log("s", 0)))
}

func numberMustBeNext(f *fixture) {
	a, b := f.join("a"), f.join("b")
	fence := a.acquire("s")
	head := driver.Head{}
	for n := driver.WriteNo(1); n <= 4; n++ {
		for _, wrong := range []driver.WriteNo{n - 1, n + 1, n + 100} {
			if wrong == 0 {
				continue
			}
			r := a.write(fence, wrong, appendOp("wrong"))
			var conflict *driver.ConflictError
			f.must(ruleF1, r.Err != nil && f.head("s") == head, "after %d commits a write with number %d was accepted", n-1,
				wrong)
			f.must(ruleF2, errors.As(r.Err, &conflict) && conflict.Op == driver.NumberConflict && conflict.Head == head,
				"a write with number %d after %d commits answers %v; want NumberConflict and head %+v", wrong, n-1,
				r.Err, head)
		}
		r := a.write(fence, n, put("k", "v"))
		f.must(ruleF1, r.Err == nil && r.Head.Number == n, "write %d answers %+v, %v", n, r.Head, r.Err)
		head = r.Head
		if n == 2 {
			f.evict(a)
			a = b
			fence = b.acquire("s")
		}
	}
}

func tooLargeBeforeSend(f *fixture) {
	a := f.join("a")
	limits := a.b.Info().Limits
	f.must(ruleE1, limits.WriteOps > 0 && limits.WriteBytes > 0 && limits.BatchItems > 0,
		"Info().Limits has %d operations, %d bytes, %d items; want positive limits", limits.WriteOps, limits.WriteBytes,
		limits.BatchItems)
	fence := a.acquire("s")
	full := make([]driver.Op, limits.WriteOps)
	for i := range full {
		full[i] = put(fmt.Sprintf("k%d", i), "v")
	}
	big := driver.Op{Kind: driver.OpAppend, Value: bytes.Repeat([]byte{0xff}, limits.WriteBytes)}
	over := big
	over.Value = append(slices.Clone(big.Value), 0)
	var before Calls
	if f.store.Calls != nil {
		before = f.store.Calls()
	}
	for what, ops := range map[string][]driver.Op{
		"one operation more than the limit": append(slices.Clone(full), appendOp("x")),
		"one byte more than the limit":      {over},
	} {
		r := a.write(fence, 1, ops...)
		f.must(ruleE1, errors.Is(r.Err, driver.ErrTooLarge), "a write with %s answers %v; want ErrTooLarge", what, r.Err)
	}
	if f.store.Calls != nil {
		after := f.store.Calls()
		f.must(ruleE1, after == before, "writes that were too large reached the store: %+v before, %+v after", before,
			after)
	}
	f.must(ruleE1, f.head("s") == driver.Head{}, "a write that was too large changed the head to %+v", f.head("s"))
	f.must(ruleE1, a.write(fence, 1, full...).Err == nil, "a write with as many operations as the limit is refused")
	r := a.write(fence, 2, big)
	f.must(ruleE1, r.Err == nil, "a write of as many bytes as the limit answers %v", r.Err)
	log := f.log("s", 0)
	f.must(ruleE1, len(log) == 1 && bytes.Equal(log[0].Payload, big.Value),
		"an entry of the largest size does not read back")
}

func binaryAndEmptyValues(f *fixture) {
	a := f.join("a")
	fence := a.acquire("s")
	every := make([]byte, 256)
	for i := range every {
		every[i] = byte(i)
	}
	values := [][]byte{nil, {}, {0}, every, []byte("'; DROP TABLE x; --"), []byte("\xff\xfe%s%00"),
		[]byte(strings.Repeat("é", 100))}
	var ops []driver.Op
	for i, v := range values {
		ops = append(ops, driver.Op{Kind: driver.OpPut, Key: fmt.Sprintf("k%d", i), Value: slices.Clone(v)},
			driver.Op{Kind: driver.OpAppend, Value: slices.Clone(v)})
	}
	f.setup("commit", a.write(fence, 1, ops...).Err)
	for i := range ops {
		clear(ops[i].Value) // the backend must not keep a slice after the call has returned
	}
	log := f.log("s", 0)
	f.must(ruleF1, len(log) == len(values), "%d entries were appended, %d are in the log", len(values), len(log))
	for i, v := range values {
		item := f.get("s", fmt.Sprintf("k%d", i))
		f.must(ruleF1, item != nil && bytes.Equal(item.Value, v), "item %q reads back as %+v", v, item)
		f.must(ruleF1, bytes.Equal(log[i].Payload, v), "entry %q reads back as %q", v, log[i].Payload)
	}
}
