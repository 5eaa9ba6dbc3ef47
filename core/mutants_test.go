package core

import (
	"testing"
	"time"

	"github.com/tenure-go/tenure/internal/proof/mutate"
)

var mutantsFlag = mutate.Flag()

// A mutant is the runner without one rule, with the test that must then fail. Mutants of the
// machine are in package fsm, where the simulation finds them. A few mutants of the machine are
// here as well, because of the harm that they do to an Elector.
var mutants = []mutate.Mutant{
	{Name: "S8: trust from the reply's instant", Killer: "TestTrustCountsFromSending", Edits: []mutate.Edit{
		{File: "step.go", In: "Elector.do",
			Old: "case fsm.EffExtend:\n\t\te.extend(eff.Session, eff.Until)", New: "case fsm.EffExtend:\n\t\te.extend(eff.Session, e.clk.now().Add(e.o.TTL-e.o.Margin))"}}},
	{Name: "S8: the same, in the machine", Killer: "TestTrustCountsFromSending", Edits: []mutate.Edit{
		{File: "../internal/fsm/session.go", In: "Machine.beaten",
			Old: "until := b.sentAt.Add(m.cfg.Member.TTL - m.cfg.Margin)", New: "until := m.now.Add(m.cfg.Member.TTL - m.cfg.Margin)"}}},
	{Name: "S8: trust from the wall clock", Killer: "TestClockIgnoresWallTime", Edits: []mutate.Edit{
		{File: "clock.go", In: "clock.read", Old: "int64(t.Sub(c.start))", New: "t.UnixNano() - c.start.UnixNano()"}}},
	{Name: "S9: suspended time does not count", Killer: "TestSuspendedTimeCounts", Edits: []mutate.Edit{
		{File: "clock.go", In: "clock.read", Old: "fsm.Instant(mono + c.away.Load())", New: "fsm.Instant(mono)"}}},
	{Name: "S9: a suspension counts when a timer has found it", Killer: "TestSuspensionEndsALeaseAtTheFirstCheck", Edits: []mutate.Edit{
		{File: "clock.go", In: "clock.read", Old: "\t\t\tc.sample()\n", New: ""}}},
	{Name: "C8: trust extended by a reply handled after a stall", Killer: "TestReplyAfterSuspensionRevivesNothing", Edits: []mutate.Edit{
		{File: "step.go", In: "Elector.drainQueue",
			Old: "func (e *Elector) drainQueue() {\n\te.clk.sample()\n", New: "func (e *Elector) drainQueue() {\n"}}},
	{Name: "S9: a lease is valid until a timer says otherwise", Killer: "TestLapseAndRegain", Edits: []mutate.Edit{
		{File: "lease.go", In: "Lease.Err", Old: "if int64(l.clk.now()) >= l.trust.until.Load() {", New: "if false {"}}},
	{Name: "a heartbeat is news of the owners though reads fail", Killer: "TestNews", Edits: []mutate.Edit{
		{File: "step.go", In: "Elector.drainQueue", Old: " && (e.unread == 0 || now.Sub(e.unread) > e.o.TTL/4)", New: ""}}},
	{Name: "a member that is cut off has fresh news", Killer: "TestNews", Edits: []mutate.Edit{
		{File: "inside.go", In: "inside.News", Old: "age <= limit", New: "true"}}},
	{Name: "S9: the lease's context outlives its trust", Killer: "TestLapseAndRegain", Edits: []mutate.Edit{
		{File: "lease.go", In: "Lease.end", Old: "\tl.cancel(r)\n", New: ""}}},
	{Name: "S6: a revoked lease is valid again with the next heartbeat", Killer: "TestLapseAndRegain", Edits: []mutate.Edit{
		{File: "lease.go", In: "Lease.Err", Old: "if r := l.ended.Load(); r != nil {\n\t\treturn r\n\t}\n", New: ""}}},
	{Name: "S9: a request is served under a lease that has lapsed", Killer: "TestLeaseOfALapsedShard", Edits: []mutate.Edit{
		{File: "elector.go", In: "Elector.Lease", Old: " || r.lease.Err() != nil {", New: " {"}}},
	{Name: "S12: a request begins while its shard is given back", Killer: "TestLeaseOfAShard", Edits: []mutate.Edit{
		{File: "elector.go", In: "Elector.Lease", Old: "r == nil || r.state != LeaseHeld ||", New: "r == nil || !r.state.usable() ||"}}},

	{Name: "D1: a damaged head is read again and again", Killer: "TestDamagedShardIsNotServed/head", Edits: []mutate.Edit{
		{File: "run.go", In: "Elector.readHead", Old: "\t\t\te.damaged(err)\n\t\t\treturn err\n", New: "\t\t\te.damaged(err)\n"}}},
	{Name: "D1: a shard whose head was found damaged is claimed again", Killer: "TestDamagedShardIsNotServed/head", Edits: []mutate.Edit{
		{File: "../backends/kv/lease.go", In: "leases.spoilt", Old: "\treturn l.bad[s]\n", New: "\treturn false\n"}}},
	{Name: "D1: a damaged shard is claimed again at once", Killer: "TestDamagedShardIsNotServed/record", Edits: []mutate.Edit{
		{File: "../internal/fsm/shards.go", In: "Machine.result",
			Old: "case errors.Is(r.Err, driver.ErrDamaged): //", New: "case false: //"}}},
	{Name: "D1: a commit in doubt is looked for under a damaged head", Killer: "TestDamagedUnknown", Edits: []mutate.Edit{
		{File: "settle.go", In: "Lease.settle", Old: "case errors.Is(err, driver.ErrDamaged) && unknown:", New: "case false:"}}},
	{Name: "D1: a commit under a damaged head may be tried again", Killer: "TestDamagedHead", Edits: []mutate.Edit{
		{File: "../backends/kv/batch.go", In: "notApplied",
			Old: "\tif driver.NotApplied(err) {\n\t\treturn err\n\t}\n\treturn fmt.Errorf(\"tenure: %w: %w\", driver.ErrRetry, err)", New: "\treturn fmt.Errorf(\"tenure: %w: %w\", driver.ErrRetry, err)"}}},
	{Name: "D1: a damaged record is told whenever it is met", Killer: "TestDamagedHead", Edits: []mutate.Edit{
		{File: "damage.go", In: "Elector.noteDamage",
			Old: "if k := s.known[d.Key]; k != nil {", New: "if k := s.known[d.Key]; k != nil && false {"}}},
	{Name: "D1: damage that changes is told each time", Killer: "TestDamageIsNotRepeated", Edits: []mutate.Edit{
		{File: "damage.go", In: "Elector.noteDamage", Old: " && now.Sub(k.posted) >= damageAgain {", New: " {"}}},
	{Name: "D1: every damaged record is named", Killer: "TestDamageIsNotRepeated", Edits: []mutate.Edit{
		{File: "damage.go", In: "Elector.noteDamage", Old: "if len(s.known) >= listing.MaxDamaged {", New: "if false {"},
		{File: "../backends/kv/mirror.go", In: "mirror.damage",
			Old: "!known && len(m.damaged.index) < listing.MaxDamaged {", New: "!known {"}}},
	{Name: "D1: names from the store are told as they are", Killer: "TestDamageIsNotRepeated", Edits: []mutate.Edit{
		{File: "driver/damaged.go", In: "Damaged",
			Old: "return &DamagedError{Key: printable(key),", New: "return &DamagedError{Key: key,"}}},

	{Name: "a takeover that a view shows first has no former owner", Killer: "TestTakeOverSeenFirstIsTold", Edits: []mutate.Edit{
		{File: "step.go", In: "Elector.do", Old: "e.claiming, e.former = eff.Call, formers(eff)", New: "e.claiming = eff.Call"}}},
	{Name: "a rebalance hides a crash", Killer: "TestTakeOverSeenFirstIsTold", Edits: []mutate.Edit{
		{File: "run.go", In: "Elector.grant", Old: "takenOver(former), former == \"\")", New: "takenOver(former), true)"}}},
	{Name: "a line for each of many leases", Killer: "TestLinesOfManyLeases", Edits: []mutate.Edit{
		{File: "lines.go", In: "notifier.writeGathered",
			Old: "over := g.since.IsZero() || now.Sub(g.since) >= linesEvery", New: "over := true"},
		{File: "notify.go", In: "notifier.run",
			Old: "\t\tif len(n.batch) > 0 {\n\t\t\tcontinue\n\t\t}\n", New: "\t\tif len(n.batch) > 0 {\n\t\t\tn.writeGathered(false)\n\t\t\tcontinue\n\t\t}\n"}}},
	{Name: "losses are gathered from the first on", Killer: "TestLinesOfLosses", Edits: []mutate.Edit{
		{File: "lines.go", In: "notifier.revoke", Old: "asked: err.Is(ErrReleased)}", New: "asked: true}"}}},
	{Name: "a process that did not run calls the store silent", Killer: "TestLapseSaysWhy", Edits: []mutate.Edit{
		{File: "../internal/fsm/session.go", In: "Machine.lapse", Old: "if late >= m.cfg.Member.TTL/4 {", New: "if false {"}}},

	{Name: "S5: no proof after the wait for the head", Killer: "TestHeadOutOfReach", Edits: []mutate.Edit{
		{File: "run.go", In: "Elector.begin", Old: "if r.state != LeaseStarting {\n\t\treturn false\n\t}\n", New: ""}}},
	{Name: "S5: no proof after the wait behind another commit", Killer: "TestNothingIsSentAfterLapse", Edits: []mutate.Edit{
		{File: "commit.go", In: "Lease.next", Old: "\trefuse := l.Err()\n", New: "\tvar refuse error\n"}}},
	{Name: "S5: no proof before the parts of a refused write", Killer: "TestPartsOfARefusedWriteLookAtTheLease", Edits: []mutate.Edit{
		{File: "commit.go", In: "Lease.next",
			Old: "\trefuse := l.Err()\n", New: "\tvar refuse error\n\tif len(c.queue) == 0 || c.queue[0].most == math.MaxInt {\n\t\trefuse = l.Err()\n\t}\n"}}},
	{Name: "S5: a commit that was never sent is retried after its lease", Killer: "TestRefusedCommitIsNotSentAfterLapse", Edits: []mutate.Edit{
		{File: "settle.go", In: "retrier.wait", Old: "\tif !sent {\n\t\treturn false\n\t}\n", New: ""}}},
	{Name: "S5: no proof after the wait for a read", Killer: "TestReadIsCheckedAfterwards", Edits: []mutate.Edit{
		{File: "lease.go", In: "guarded",
			Old: "\tif err := l.Err(); err != nil {\n\t\treturn none, err\n\t}\n\treturn v, nil\n", New: "\treturn v, nil\n"}}},
	{Name: "S5: the handler starts without the head", Killer: "TestHeadOutOfReach", Edits: []mutate.Edit{
		{File: "run.go", In: "Elector.serve", Old: "if !headKnown {", New: "if false {"}}},

	{Name: "S4: success assumed on a lost reply of a commit", Killer: "TestUnknownOutcomeIsSettled/request_lost", Edits: []mutate.Edit{
		{File: "settle.go", In: "Lease.settle",
			Old: "\t\tdefault:\n\t\t\tunknown = true\n", New: "\t\tdefault:\n\t\t\treturn outcome{head: driver.Head{Number: w.Number, Seq: base.Seq + 1, Nonce: w.Nonce, Token: w.Fence.Token}}\n"}}},
	{Name: "S4: failure assumed on a lost reply of a commit", Killer: "TestUnknownOutcomeIsSettled/reply_lost", Edits: []mutate.Edit{
		{File: "settle.go", In: "Lease.settle",
			Old: "\t\tdefault:\n\t\t\tunknown = true\n", New: "\t\tdefault:\n\t\t\treturn outcome{err: notSent(l.fence.Shard, ErrRetry)}\n"}}},
	{Name: "S4: success assumed on a lost reply of a release", Killer: "TestReleaseIsConfirmed", Edits: []mutate.Edit{
		{File: "calls.go", In: "Elector.call", Old: "in.Err = s.Release(ctx, eff.Fences)", New: "_ = s.Release(ctx, eff.Fences)"}}},
	{Name: "S4: a fenced commit in doubt is taken for refused", Killer: "TestUnknownOutcomeThenFenced/applied,_nothing_since", Edits: []mutate.Edit{
		{File: "settle.go", In: "Lease.settle", Old: "return l.afterFenced(&r, w, base, err)", New: "return l.fencedOut(err)"}}},
	{Name: "S15: retry without the nonce", Killer: "TestUnknownOutcomeIsSettled/reply_lost", Edits: []mutate.Edit{
		{File: "settle.go", In: "Lease.settle", Old: "\t\t\tunknown = true\n", New: "\t\t\tunknown = true\n\t\t\tw.Nonce = newNonce()\n"}}},
	{Name: "S15: retry under the next number", Killer: "TestUnknownOutcomeIsSettled/reply_lost", Edits: []mutate.Edit{
		{File: "settle.go", In: "Lease.settle", Old: "case isMine(h, w):", New: "case false:"},
		{File: "settle.go", In: "Lease.settle", Old: "case unknown && h.Number >= w.Number:", New: "case false:"},
		{File: "settle.go", In: "Lease.settle", Old: "case unknown:\n", New: "case false:\n"}}},
	{Name: "S15: another's commit is taken for one's own", Killer: "TestUnknownOutcomeThenFenced/not_applied,_one_other_since", Edits: []mutate.Edit{
		{File: "settle.go", In: "isMine",
			Old: "h.Number == w.Number && h.Nonce == w.Nonce && h.Token == w.Fence.Token", New: "h.Number == w.Number"}}},
	{Name: "S16: in flight, and told as not applied", Killer: "TestCallerGivesUp", Edits: []mutate.Edit{
		{File: "commit.go", In: "Lease.giveUp",
			Old: "commit in flight: %w: %w\", l.fence.Shard, ErrUnknown,", New: "commit in flight: %w: %w\", l.fence.Shard, ErrRetry,"}}},
	{Name: "F1: a read does not wait for a commit in flight", Killer: "TestReadAfterCommitInFlight", Edits: []mutate.Edit{
		{File: "commit.go", In: "Lease.landed", Old: "for _, p := range sent {", New: "for _, p := range sent[:0] {"}}},
	{Name: "F1: a read does not wait for a commit whose call was divided", Killer: "TestReadAfterCommitInFlight", Edits: []mutate.Edit{
		{File: "commit.go", In: "Lease.landed", Old: "if p.most == math.MaxInt {", New: "if true {"}}},
	{Name: "X1: a read waits longer than its context", Killer: "TestReadAfterCommitInFlight", Edits: []mutate.Edit{
		{File: "commit.go", In: "Lease.landed", Old: "\t\tcase <-ctx.Done():\n\t\t\treturn context.Cause(ctx)\n", New: ""}}},

	{Name: "S12: release before the work was joined", Killer: "TestShutdownOrder", Edits: []mutate.Edit{
		{File: "elector.go", In: "Elector.unwant",
			Old: "\t\t\te.askToStop(r, cause)\n", New: "\t\t\te.askToStop(r, cause)\n\t\t\te.queue = append(e.queue, fsm.Input{Kind: fsm.InDrained, Shard: s, Token: r.lease.fence.Token})\n"}}},
	{Name: "S12: release before a commit in flight is settled", Killer: "TestReleaseWaitsForCommit", Edits: []mutate.Edit{
		{File: "run.go", In: "Elector.serve", Old: "\tr.lease.commits.settled() // S12: what is in flight is work, too\n", New: ""}}},
	{Name: "S12: the session is closed under a running handler", Killer: "TestShutdownWithStuckHandlerLeavesSession", Edits: []mutate.Edit{
		{File: "../internal/fsm/session.go", In: "Machine.leave", Old: "if !m.running() {", New: "if true {"}}},
	{Name: "V6: what gives back ends with Run's context", Killer: "TestShutdownOrder", Edits: []mutate.Edit{
		{File: "elector.go", In: "Elector.Run", Old: "context.WithCancel(context.WithoutCancel(ctx))", New: "context.WithCancel(ctx)"}}},
	{Name: "C5: any failed heartbeat of one's own resets suspicion", Killer: "TestFlakyObserverTakesOver", Edits: []mutate.Edit{
		{File: "../internal/fsm/session.go", In: "Machine.beaten",
			Old: "\t\tm.event(EventBeatFailed, err)\n", New: "\t\tm.event(EventBeatFailed, err)\n\t\tm.okSentAt = -1\n"}}},
	{Name: "W1: a token granted and not wanted is never given back", Killer: "TestUnwantedGrantIsGivenBack", Edits: []mutate.Edit{
		{File: "../internal/fsm/shards.go", In: "Machine.settleMine",
			Old: "\tdefault:\n\t\tm.decide(release, i)\n\t}\n", New: "\tcase o.fence.Token > 0:\n\t\tm.decide(release, i)\n\t}\n"}}},
	{Name: "S13: a member that trusts its watch alone", Killer: "TestMissedChangeIsFound/member", Edits: []mutate.Edit{
		{File: "step.go", In: "Elector.do", Old: "\t\te.resync = true\n", New: ""}}},
	{Name: "S13: an observer that trusts its watch alone", Killer: "TestMissedChangeIsFound/observer", Edits: []mutate.Edit{
		{File: "calls.go", In: "Elector.observe", Old: "if e.resync || sent.Sub(full) > 2*e.o.Resync {", New: "if e.resync {"}}},
	{Name: "S14: the store's change is not reported", Killer: "TestStoreChangedHalts", Edits: []mutate.Edit{
		{File: "step.go", In: "Elector.event", Old: "\t\te.halted = eff.Err\n", New: ""}}},
	{Name: "S14: a commit's answer that the store changed is the caller's alone", Killer: "TestStoreChangedIsFoundByAnyCall/commit", Edits: []mutate.Edit{
		{File: "commit.go", In: "delivery.finish", Old: "\td.l.e.storeChanged(out.err)\n", New: ""},
		{File: "outbox.go", In: "Elector.commitCall", Old: "\te.storeChanged(err)\n", New: ""}}},
	{Name: "S14: a head that went back is the caller's alone", Killer: "TestStoreChangedIsFoundByAnyCall/head_went_back", Edits: []mutate.Edit{
		{File: "commit.go", In: "delivery.finish", Old: "\td.l.e.storeChanged(out.err)\n", New: ""}}},
	{Name: "S14: the same, of a commit that is in doubt already", Killer: "TestStoreChangedIsFoundByAnyCall/commit_in_doubt", Edits: []mutate.Edit{
		{File: "outbox.go", In: "Elector.commitCall", Old: "\te.storeChanged(err)\n", New: ""}}},
	{Name: "S14: a read's answer that the store changed is the caller's alone", Killer: "TestStoreChangedIsFoundByAnyCall/read", Edits: []mutate.Edit{
		{File: "lease.go", In: "guarded", Old: "\t\tl.e.storeChanged(err)\n", New: ""}}},
	{Name: "S14: a view's answer that the store changed is tried again", Killer: "TestStoreChangedIsFoundByAnyCall/view", Edits: []mutate.Edit{
		{File: "calls.go", In: "Elector.observe", Old: "\t\t\te.storeChanged(err)\n", New: ""}}},
	{Name: "S14: a head's answer that the store changed is read again", Killer: "TestStoreChangedIsFoundByHead/grant", Edits: []mutate.Edit{
		{File: "run.go", In: "Elector.readHead", Old: "\t\te.storeChanged(err)\n", New: ""}}},
	{Name: "S14: the same, of a commit in doubt", Killer: "TestStoreChangedIsFoundByHead/commit_in_doubt", Edits: []mutate.Edit{
		{File: "settle.go", In: "retrier.readLog", Old: "\t\tr.l.e.storeChanged(err)\n", New: ""}}},
	{Name: "S4: what was released is known by the reply alone", Killer: "TestReleaseKnownByTheView", Edits: []mutate.Edit{
		{File: "../internal/fsm/peers.go", In: "Machine.observed",
			Old: "\t\tm.learnState(&v.Shards[i])\n", New: "\t\tif k := m.shard(v.Shards[i].Shard); m.shards[k].lease() != returned {\n\t\t\tm.learnState(&v.Shards[i])\n\t\t}\n"}}},
	{Name: "A5: the runner takes the answer to a transfer for a hand-over", Killer: "TestHandOverOfShardContendedAgain", Edits: []mutate.Edit{
		{File: "calls.go", In: "Elector.call",
			Old: "\te.queue = append(e.queue, in)\n", New: "\tif eff.Kind == fsm.EffTransfer && in.Err == nil && in.Results[0].Err == nil {\n\t\te.settle(&fsm.Effect{Fence: eff.Transfers[0].Fence})\n\t}\n\te.queue = append(e.queue, in)\n"},
		{File: "run.go", In: "Elector.settle",
			Old: "\tr := e.runs[eff.Fence.Shard]\n\tdelete(e.runs, eff.Fence.Shard)\n", New: "\tr := e.runs[eff.Fence.Shard]\n\tif r == nil {\n\t\treturn\n\t}\n\tdelete(e.runs, eff.Fence.Shard)\n"}}},
	{Name: "A5: a hand-over that the store refused is waited for", Killer: "TestHandOverRefused", Edits: []mutate.Edit{
		{File: "../internal/fsm/shards.go", In: "Machine.transferred",
			Old: "case s.lease() == returned && refused(err):", New: "case false:"}}},
	{Name: "A5: a hand-over that Run's end overtakes passes for done", Killer: "TestHandOverEndsWithRun", Edits: []mutate.Edit{
		{File: "../internal/fsm/session.go", In: "Machine.drop", Old: "if s.lease() == returned {", New: "if false {"}}},
	{Name: "A5: a hand-over is looked at before its lease is settled", Killer: "TestHandOverEndsWithACommit", Edits: []mutate.Edit{
		{File: "run.go", In: "run.handedOver", Old: "if r.end == nil { // Run has ended", New: "if false {"}}},
	{Name: "M1: a session whose close has no answer is left to the others", Killer: "TestCloseIsTriedAgain", Edits: []mutate.Edit{
		{File: "calls.go", In: "closeSession",
			Old: "if !errors.Is(err, ErrRetry) && !driver.Unknown(err) {", New: "if !errors.Is(err, ErrRetry) {"}}},
	{Name: "A5: a hand-over whose reply was lost passes for refused", Killer: "TestHandOverKnownByTheView/moved_on", Edits: []mutate.Edit{
		{File: "../internal/fsm/shards.go", In: "refused",
			Old: "; ok && f.Current != (driver.Owner{}) {", New: "; ok && false && f.Current != (driver.Owner{}) {"}}},
	{Name: "S12: a handler that returned is stuck until its last commit is settled", Killer: "TestReturnedIsNotStuck", Edits: []mutate.Edit{
		{File: "run.go", In: "Elector.serve", Old: "\t\t\tr.state = LeaseReturned\n\t\t\te.snap.bump()\n", New: "\t\te.snap.bump()\n"}}},
	{Name: "S13: a resync ends the full read before it", Killer: "TestResyncLeavesAFullRead", Edits: []mutate.Edit{
		{File: "step.go", In: "Elector.do",
			Old: "e.observing != nil && !e.reading {\n\t\t\te.observing()\n\t\t}\n\tcase fsm.EffGrant", New: "e.observing != nil {\n\t\t\te.observing()\n\t\t}\n\tcase fsm.EffGrant"}}},
	{Name: "S3: a refused write does not end the lease", Killer: "TestFencedCommit", Edits: []mutate.Edit{
		{File: "settle.go", In: "Lease.fencedOut",
			Old: "\tl.e.feed(fsm.Input{Kind: fsm.InFenced, Shard: l.fence.Shard, Token: l.fence.Token, Owner: current})\n", New: ""}}},

	{Name: "T1: group commit tells its callers one number", Killer: "TestGroupCommit", Edits: []mutate.Edit{
		{File: "commit.go", In: "delivery.finish", Old: "\t\t\tnext += Seq(p.appends)\n", New: ""}}},
	{Name: "F2: group commit merges preconditions", Killer: "TestWhatIsMerged", Edits: []mutate.Edit{
		{File: "commit.go", In: "Lease.newPending", Old: "p.solo = p.solo || op.IfVersion != driver.AnyVersion", New: ""}}},
	{Name: "F1: group commit merges two writes of one key", Killer: "TestWhatIsMerged", Edits: []mutate.Edit{
		{File: "commit.go", In: "Elector.fitting",
			Old: "\t\t\t\t\treturn n // a key is once in each pending: it is another caller's\n", New: ""}}},
	{Name: "F2: one caller's refusal is everybody's", Killer: "TestRefusalOfMergedWriteIsOnesOwn", Edits: []mutate.Edit{
		{File: "commit.go", In: "delivery.settle", Old: "n > 1 && refusedAsOne(out.err) {", New: "n > 1 && false {"},
		{File: "outbox.go", In: "outbox.call", Old: "case commits > 1 && refusedTogether(why):", New: "case false:"}}},
	{Name: "A4: a call's refusal is that of each of its commits", Killer: "TestCallRefusedAsOneIsDivided", Edits: []mutate.Edit{
		{File: "outbox.go", In: "outbox.call", Old: "case commits > 1 && refusedTogether(why):", New: "case false:"}}},
	{Name: "A4: a refused call is divided into single commits", Killer: "TestCallRefusedAsOneIsDivided", Edits: []mutate.Edit{
		{File: "commit.go", In: "delivery.divide", Old: "false, commits/2\n", New: "false, 1\n"}}},
	{Name: "A4: two writes of one shard travel in one call", Killer: "TestWhatIsMerged", Edits: []mutate.Edit{
		{File: "commit.go", In: "Lease.enqueue", Old: "\tif !c.busy {\n\t\tc.busy = true\n", New: "\tif true {\n\t\tc.busy = true\n"}}},
	{Name: "A4: a refusal spreads to the neighbours of its call", Killer: "TestRefusalTouchesNoNeighbour", Edits: []mutate.Edit{
		{File: "outbox.go", In: "outbox.call",
			Old: "\t\t\tres, why = results[i], results[i].Err\n", New: "\t\t\tres = results[i]\n\t\t\tfor j := range results {\n\t\t\t\tif results[j].Err != nil {\n\t\t\t\t\twhy = results[j].Err\n\t\t\t\t}\n\t\t\t}\n"}}},
	{Name: "E1: a call in doubt is taken for refused", Killer: "TestUnknownCallIsSettledPerWrite", Edits: []mutate.Edit{
		{File: "outbox.go", In: "outbox.call",
			Old: "\t\tcase why == nil:\n", New: "\t\tcase err != nil:\n\t\t\td.finish(outcome{err: notSent(d.l.fence.Shard, ErrRetry)})\n\t\tcase why == nil:\n"}}},
	{Name: "A4: a shard that is locked holds up the others", Killer: "TestLockedShardDelaysNoOther", Edits: []mutate.Edit{
		{File: "outbox.go", In: "outbox.call",
			Old: "\t\t\to.e.calls.Go(func() {\n\t\t\t\td.settle(res, why)\n\t\t\t\to.again(d.l)\n\t\t\t})\n", New: "\t\t\td.settle(res, why)\n\t\t\to.again(d.l)\n"}}},
	{Name: "V1: a join without an answer waits for a whole call time-out", Killer: "TestSilentCallDelaysNoTakeover/join/1s", Edits: []mutate.Edit{
		{File: "../internal/fsm/session.go", In: "Machine.join",
			Old: "Timeout: m.callTimeout(enter, 0)})", New: "Timeout: m.cfg.CallTimeout})"}}},
	{Name: "V1: the first full read does, too", Killer: "TestSilentCallDelaysNoTakeover/observe/1s", Edits: []mutate.Edit{
		{File: "calls.go", In: "Elector.observe",
			Old: "full, limit = sent, min(patience, e.o.CallTimeout)", New: "full, limit = sent, e.o.CallTimeout"}}},
	{Name: "V1: so does a claim", Killer: "TestSilentCallDelaysNoTakeover/acquire/1s", Edits: []mutate.Edit{
		{File: "../internal/fsm/shards.go", In: "Machine.send",
			Old: "Session: m.sess, Timeout: m.callTimeout(k, len(c.shards))}", New: "Session: m.sess, Timeout: m.cfg.CallTimeout}"}}},
	{Name: "V1: so does the read of a head", Killer: "TestSilentCallDelaysNoTakeover/readlog/1s", Edits: []mutate.Edit{
		{File: "run.go", In: "Elector.readHead", Old: "limit := min(e.o.TTL/2, e.o.CallTimeout)", New: "limit := e.o.CallTimeout"}}},
	{Name: "V5: a silent call keeps its place", Killer: "TestSilentCallDelaysNoOther", Edits: []mutate.Edit{
		{File: "outbox.go", In: "outbox.call", Old: "time.AfterFunc(late, func() {", New: "time.AfterFunc(late+time.Hour, func() {"}}},
	{Name: "V5: an overdue call takes a place beside those that the store gains from", Killer: "TestOverdueCallGivesItsPlaceAway", Edits: []mutate.Edit{
		{File: "outbox.go", In: "outbox.call", Old: "\treturn goOn\n", New: "\treturn goOn || true\n"}}},
	{Name: "A6: a call goes over the store's limits", Killer: "TestCallsAreWithinTheLimits", Edits: []mutate.Edit{
		{File: "outbox.go", In: "outbox.next", Old: "len(batch) < max(1, limits.BatchItems) && ", New: ""}}},
	{Name: "C18: a denied leader keeps its lease", Killer: "TestDeniedLeaderGivesWay", Edits: []mutate.Edit{
		{File: "trouble.go", In: "Elector.weigh", Old: "\t\twhy = deniedWhy\n", New: ""}}},
	{Name: "C18: a denied member is eligible again without a probe", Killer: "TestDeniedLeaderGivesWay", Edits: []mutate.Edit{
		{File: "trouble.go", In: "Elector.outdated", Old: "2*e.o.BackoffMax+e.o.TTL", New: "e.o.TTL"}}},
	{Name: "C18: a denied member probes without a pause", Killer: "TestDeniedLeaderGivesWay", Edits: []mutate.Edit{
		{File: "trouble.go", In: "Elector.weigh", Old: "now.Sub(t.probed) >= e.o.BackoffMax", New: "true"}}},
	{Name: "C18: a denied commit waits for the end of the lease", Killer: "TestDeniedLeaderGivesWay", Edits: []mutate.Edit{
		{File: "settle.go", In: "Lease.settle",
			Old: "case errors.Is(err, driver.ErrRetry) && (unknown || !errors.Is(err, driver.ErrDenied) || !l.e.trouble.denied.Load()):",
			New: "case errors.Is(err, driver.ErrRetry):"}}},
	{Name: "C18: a member that may not release goes on with heartbeats", Killer: "TestDeniedReleases", Edits: []mutate.Edit{
		{File: "trouble.go", In: "Elector.weigh", Old: "t.muted.Store(denied && keeps &&", New: "t.muted.Store(false && denied && keeps &&"}}},
	{Name: "C18: a refusal is logged at each look", Killer: "TestDeniedLeasesDoNotCircle", Edits: []mutate.Edit{
		{File: "trouble.go", In: "Elector.weigh", Old: "t.lines.Failed(kind, now); due {", New: "t.lines.Failed(kind, now); due || true {"}}},
	{Name: "a refused Observe is not logged", Killer: "TestRefusedCallsAreTold/observe", Edits: []mutate.Edit{
		{File: "calls.go", In: "Elector.observe", Old: "\t\t\te.heed(callObserve, err)\n", New: ""}}},
	{Name: "an application's update loses the trouble", Killer: "TestDeniedLeaderGivesWay", Edits: []mutate.Edit{
		{File: "elector.go", In: "Elector.changeState", Old: "\tst.Meta = troubled(st.Meta, e.trouble.public)\n", New: ""}}},
	{Name: "a stuck handler is known to its process only", Killer: "TestStuckIsPublished", Edits: []mutate.Edit{
		{File: "trouble.go", In: "Elector.weigh", Old: "append(all, text), append(public, text)", New: "append(all, text), public"}}},
	{Name: "C15: a function that hangs is waited for", Killer: "TestEligibleHangs", Edits: []mutate.Edit{
		{File: "eligible.go", In: "Elector.judge",
			Old: "\t\t\t\tv.say(fmt.Sprintf(\"no answer within %v\", e.o.Heartbeat))\n", New: "\t\t\t\t_ = fmt.Sprint()\n"}}},
	{Name: "C15: a member is eligible before it was asked", Killer: "TestEligibleHangs", Edits: []mutate.Edit{
		{File: "options.go", In: "Options.machine", Old: "\t\twhy = notAsked\n", New: ""},
		{File: "eligible.go", In: "Elector.judge", Old: "v.say(fmt.Sprintf(", New: "_ = (fmt.Sprintf("}}},
	{Name: "C15: every reason is a write", Killer: "TestReasonsAreFewWrites", Edits: []mutate.Edit{
		{File: "eligible.go", In: "verdict.say", Old: " && time.Since(v.at) < v.e.o.Resync", New: " && time.Since(v.at) < 0"}}},
	{Name: "C15: the handler is not asked to stop", Killer: "TestIneligibleHolderHandsOver", Edits: []mutate.Edit{
		{File: "step.go", In: "Elector.do", Old: "\t\te.askToStop(e.runs[eff.Fence.Shard], e.yieldErr(eff.Cause))\n", New: ""}}},
	{Name: "S12: a planned stop asks handlers before it is shown", Killer: "TestLameDuck", Edits: []mutate.Edit{
		{File: "elector.go", In: "Elector.Run", Old: "\t\te.lameDuck()\n", New: ""}}},
	{Name: "a call to the store has no caller", Killer: "TestCallStartHasTheCallersContext", Edits: []mutate.Edit{
		{File: "outbox.go", In: "Elector.callers", Old: "all = append(all, p.ctx)", New: "_, all = p, append(all, context.Background())"}}},
	{Name: "hooks allocate for each call", Killer: "TestCallsAllocateNothing", Edits: []mutate.Edit{
		{File: "notify.go", In: "notifier.call", Old: "\t\tn.put(notice{call: c})\n",
			New: "\t\tn.post(func() { n.h.OnCall(c) })\n"}}},
	{Name: "C4: a call that spent its time on connecting was answered", Killer: "TestSlowConnectionDelaysNoOwnerForEver", Edits: []mutate.Edit{
		{File: "../internal/fsm/machine.go", In: "call.ended",
			Old: "!driver.Unknown(err) && now < c.until {", New: "!driver.Unknown(err) {"}}},
	{Name: "C6: every read after a lapse ends at half a TTL", Killer: "TestSlowConnectionIsRegainedThrough", Edits: []mutate.Edit{
		{File: "../internal/fsm/session.go", In: "Machine.sendRead",
			Old: "limit = max(limit, m.cfg.CallTimeout)", New: "limit = max(limit, 0)"}}},
	{Name: "a rule acts on a lease after the one that it names", Killer: "TestMoveAndResign", Edits: []mutate.Edit{
		{File: "obey.go", In: "Elector.obey", Old: "if r == nil || rule.Spent(r.lease.fence.Token) {", New: "if r == nil {"}}},
	{Name: "a rule that has ended is obeyed", Killer: "TestMoveAndResign", Edits: []mutate.Edit{
		{File: "obey.go", In: "Elector.obey", Old: "if !r.Active(now) {", New: "if false {"}}},
	{Name: "a shard that a rule moved is not contended for again", Killer: "TestMoveAndResign", Edits: []mutate.Edit{
		{File: "run.go", In: "Elector.settle", Old: "r.again && wanted {", New: "false && wanted {"}}},
	{Name: "a rule takes back a Withdraw", Killer: "TestRulesYieldToCallers", Edits: []mutate.Edit{
		{File: "run.go", In: "Elector.settle", Old: "r.again && wanted {", New: "r.again && (wanted || true) {"}}},
	{Name: "a rule waits for no member", Killer: "TestMoveWaits", Edits: []mutate.Edit{
		{File: "obey.go", In: "rulebook.look", Old: " || len(b.rules) > 0 && len(v.Members)+len(v.Gone) > 0 {", New: " {"}}},
	{Name: "a drained shard that nobody else takes goes round", Killer: "TestDrainedElector", Edits: []mutate.Edit{
		{File: "obey.go", In: "Elector.obey", Old: " || b.gave[s] == others {", New: " {"}}},
	{Name: "what a rule gives up is claimed again at once", Killer: "TestSlowSuccessor", Edits: []mutate.Edit{
		{File: "obey.go", In: "Elector.yield", Old: "r.wait = e.o.TTL / 2", New: "r.wait = 0"}}},
	{Name: "D1: what is no rule is logged at each read", Killer: "TestJunkAmongRules", Edits: []mutate.Edit{
		{File: "obey.go", In: "notifier.badRules", Old: "n.lines.Failed(\"rules\", time.Now()); say {",
			New: "n.lines.Failed(\"rules\", time.Now()); say || true {"}}},
	{Name: "D1: each record that is no rule is named", Killer: "TestJunkAmongRules", Edits: []mutate.Edit{
		{File: "control/control.go", In: "Read", Old: "notUnderstood <= 3", New: "true"}}},
	{Name: "what a drained member is granted stays there", Killer: "TestDrainedElector", Edits: []mutate.Edit{
		{File: "run.go", In: "Elector.grant", Old: "	if len(e.rules.rules) > 0 {\n", New: "	if false {\n"},
		{File: "obey.go", In: "rulebook.look", Old: " || len(b.rules) > 0 && len(v.Members)+len(v.Gone) > 0 {", New: " {"}}},
	{Name: "a frozen namespace is drained by its electors", Killer: "TestDrainedElector", Edits: []mutate.Edit{
		{File: "obey.go", In: "Elector.obey", Old: "		case control.Freeze:\n			return\n", New: ""}}},
	{Name: "rules are read with each view", Killer: "TestRulesCostNothing", Edits: []mutate.Edit{
		{File: "obey.go", In: "rulebook.look",
			Old: "if b.again || b.seen != b.read || len(b.rules) > 0 ", New: "if b.again = true; true || len(b.rules) > 0 "}}},
	{Name: "rules of a tool that died are not read", Killer: "TestRulesCostNothing", Edits: []mutate.Edit{
		{File: "obey.go", In: "rulebook.look", Old: "(v.Reset || slices", New: "(slices"}}},
	{Name: "rules of a tool that died wait for a full view", Killer: "TestRulesOfADeadTool", Edits: []mutate.Edit{
		{File: "obey.go", In: "rulebook.look",
			Old: "(v.Reset || slices.Contains(v.Gone, b.seen.Session))", New: "(v.Reset || false && slices.Contains(v.Gone, b.seen.Session))"}}},
	{Name: "RunOnce runs a job that was done while its caller waited", Killer: "TestRunOnceConcurrently", Edits: []mutate.Edit{
		{File: "once.go", In: "once.do",
			Old: "\tif item != nil {\n\t\tx.found(item.Value)\n\t\treturn nil\n\t}\n", New: "\t_ = item\n"}}},
	{Name: "RunOnce asks for a lease to learn that the job is done", Killer: "TestRunOnce", Edits: []mutate.Edit{
		{File: "once.go", In: "RunOnce", Old: "\tif x.read(ctx) {\n\t\tout", New: "\tif false {\n\t\tout"}}},
	{Name: "RunOnce takes an empty result for none", Killer: "TestRunOnce", Edits: []mutate.Edit{
		{File: "once.go", In: "once.read",
			Old: "err != nil || item == nil {", New: "err != nil || item == nil || len(item.Value) < 2 {"}}},
	{Name: "RunOnce leaves a shard that counts as unowned", Killer: "TestRunOnce", Edits: []mutate.Edit{
		{File: "once.go", Old: "oncePrefix = \"_once.\"\n", New: "oncePrefix = \"once.\"\n"}}},
	{Name: "RunOnce lingers as a server does", Killer: "TestRunOnce", Edits: []mutate.Edit{
		{File: "once.go", In: "RunOnce", Old: "\tc.LameDuck = 0\n", New: ""}}},
	{Name: "RunOnce: calls in one process evict each other", Killer: "TestRunOnceConcurrently", Edits: []mutate.Edit{
		{File: "once.go", In: "RunOnce", Old: "c.Supersede = false", New: "_ = c.Supersede"}}},
	{Name: "RunOnce returns a result that was not recorded", Killer: "TestRunOnceTakeover", Edits: []mutate.Edit{
		{File: "once.go", In: "once.do", Old: "\tif err == nil {\n\t\terr = failed\n", New: "\tif true {\n\t\terr = nil\n"}}},
	{Name: "RunOnce has a result for those that get the lease only", Killer: "TestRunOnceWithoutLease", Edits: []mutate.Edit{
		{File: "once.go", In: "RunOnce", Old: "\treads.Go(func() { x.wait(run) })\n", New: ""}}},
	{Name: "RunOnce runs a job again whose result is too large", Killer: "TestRunOnceTooLarge", Edits: []mutate.Edit{
		{File: "once.go", In: "once.do", Old: "errors.Is(err, ErrTooLarge) {", New: "false {"}}},
	{Name: "RunOnce gives up on a result that is there when its caller is asked to stop", Killer: "TestRunOnceEndsWithContext", Edits: []mutate.Edit{
		{File: "once.go", In: "once.do", Old: "lease.Commit(lease.Context(), ", New: "lease.Commit(ctx, "}}},
	{Name: "a handler that ends its goroutine leaves its shard with nobody", Killer: "TestHandlerGoexit", Edits: []mutate.Edit{
		{File: "run.go", In: "Elector.serve",
			Old: "\t\tif !began.IsZero() {\n", New: "\t\tif err == goexit.Err {\n\t\t\treturn\n\t\t}\n\t\tif !began.IsZero() {\n"}}},
	{Name: "a handler's panic is its error", Killer: "TestHandlerPanics", Edits: []mutate.Edit{
		{File: "run.go", In: "Elector.serve", Old: "\t\t\tpanic(p) ", New: "\t\t\t_ = p "}}},
	{Name: "Options.Eligible that ends its goroutine never answers", Killer: "TestEligibleGoexit", Edits: []mutate.Edit{
		{File: "eligible.go", In: "Elector.judge",
			Old: "answer <- goexit.Call(func() error { return ask(asked) })", New: "answer <- ask(asked)"}}},
	{Name: "the application's trouble is known to its process only", Killer: "TestReportedTrouble", Edits: []mutate.Edit{
		{File: "trouble.go", In: "Elector.weigh", Old: "append(all, why), append(public, why)", New: "append(all, why), public"}}},
	{Name: "a hook that ends its goroutine is the last one", Killer: "TestHooksGoexit", Edits: []mutate.Edit{
		{File: "notify.go", In: "notifier.serve", Old: "for goexit.Call(n.run) != nil {", New: "if goexit.Call(n.run) != nil {"}}},
	{Name: "CallStart that ends its goroutine leaves a call without an answer", Killer: "TestHooksGoexit", Edits: []mutate.Edit{
		{File: "hooks.go", In: "started", Old: "_ = goexit.Call(func() error { of, end = f(ctx, c); return nil })", New: "of, end = f(ctx, c)"}}},
	{Name: "a job that ends its goroutine has no error", Killer: "TestGoexitOfJobs", Edits: []mutate.Edit{
		{File: "once.go", In: "once.do", Old: "failed := goexit.Call(func() error { result, err = job(ctx, lease); return err })",
			New: "var failed error\n\tresult, failed = job(ctx, lease)"}}},
	{Name: "RunOnce: a job that fails permanently is run again", Killer: "TestRunOnceFailsForAll", Edits: []mutate.Edit{
		{File: "once.go", In: "once.do", Old: "(failed); ok {", New: "(failed); ok && false {"}}},
	{Name: "RunOnce records a reason of any length", Killer: "TestRunOnceRecords", Edits: []mutate.Edit{
		{File: "once.go", In: "once.do", Old: "oneLine(failed.Error(), maxFailure)", New: "failed.Error()"}}},
	{Name: "RunOnce takes any item for its result", Killer: "TestRunOnceRecords", Edits: []mutate.Edit{
		{File: "once.go", In: "once.found", Old: "case strings.HasPrefix(text, onceDone):", New: "case text != \"\" && text[0] != '-':"}}},
	{Name: "V5: hooks are called from the step", Killer: "TestNotifierOrderAndBound", Edits: []mutate.Edit{
		{File: "notify.go", In: "notifier.post",
			Old: "func (n *notifier) post(f func()) {\n", New: "func (n *notifier) post(f func()) {\n\tf()\n\tf = func() {}\n"}}},
}

// TestMutants removes one rule at a time, with a build overlay, and expects the named test to fail.
// The same test passes without the mutant.
func TestMutants(t *testing.T) {
	mutate.All(t, mutantsFlag, 20*time.Second, true, mutants)
}
