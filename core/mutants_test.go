package core

import (
	"flag"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tenure-go/tenure/internal/mutate"
)

var (
	mutantsFlag = flag.Bool("mutants", false, "take each rule out of the runner, and see a test fail")
	updateFlag  = flag.Bool("update", false, "write the table of mutants into docs/conformance.md")
)

// A mutant is the runner with one rule taken out, and the test that must fail
// then. Those of the machine alone are in package fsm, where the simulation finds
// them; a few are here as well, by the harm that they do to an Elector.
type mutant struct {
	name   string
	killer string
	edits  []mutate.Edit
}

var mutants = []mutant{
	{"S8: trust from the reply's instant", "TestTrustCountsFromSending", []mutate.Edit{
		{File: "step.go", Old: "case fsm.EffExtend:\n\t\te.extend(eff.Session, eff.Until)", New: "case fsm.EffExtend:\n\t\te.extend(eff.Session, e.clk.now().Add(e.o.TTL-e.o.Margin))"}}},
	{"S8: the same, in the machine", "TestTrustCountsFromSending", []mutate.Edit{
		{File: "fsm/session.go", Old: "until := b.sentAt.Add(m.cfg.Member.TTL - m.cfg.Margin)", New: "until := m.now.Add(m.cfg.Member.TTL - m.cfg.Margin)"}}},
	{"S8: trust from the wall clock", "TestClockIgnoresWallTime", []mutate.Edit{
		{File: "clock.go", Old: "int64(time.Since(c.start))", New: "time.Now().UnixNano() - c.start.UnixNano()"}}},
	{"S9: suspended time does not count", "TestSuspendedTimeCounts", []mutate.Edit{
		{File: "clock.go", Old: "int64(time.Since(c.start)) + c.away.Load()", New: "int64(time.Since(c.start))"}}},
	{"C8: trust extended by a reply handled after a stall", "TestReplyAfterSuspensionRevivesNothing", []mutate.Edit{
		{File: "step.go", Old: "func (e *Elector) drainQueue() {\n\te.clk.sample()\n", New: "func (e *Elector) drainQueue() {\n"}}},
	{"S9: a lease is valid until a timer says otherwise", "TestLapseAndRegain", []mutate.Edit{
		{File: "lease.go", Old: "if int64(l.clk.now()) >= l.trust.until.Load() {", New: "if false {"}}},
	{"S9: the lease's context outlives its trust", "TestLapseAndRegain", []mutate.Edit{
		{File: "lease.go", Old: "\tl.cancel(r)\n", New: ""}}},
	{"S6: a revoked lease is valid again with the next heartbeat", "TestLapseAndRegain", []mutate.Edit{
		{File: "lease.go", Old: "if r := l.ended.Load(); r != nil {\n\t\treturn r\n\t}\n", New: ""}}},

	{"S5: no proof after the wait for the head", "TestHeadOutOfReach", []mutate.Edit{
		{File: "run.go", Old: "if r.ctx.Err() != nil {\n\t\treturn false\n\t}\n", New: ""}}},
	{"S5: no proof after the wait behind another commit", "TestNothingIsSentAfterLapse", []mutate.Edit{
		{File: "commit.go", Old: "if refuse == nil {\n\t\trefuse = l.Err()\n\t}\n", New: ""}}},
	{"S5: a commit that was never sent is retried after its lease", "TestRefusedCommitIsNotSentAfterLapse", []mutate.Edit{
		{File: "commit.go", Old: "\tif !sent {\n\t\treturn false\n\t}\n", New: ""}}},
	{"S5: no proof after the wait for a read", "TestReadIsCheckedAfterwards", []mutate.Edit{
		{File: "lease.go", Old: "\tif err := l.Err(); err != nil {\n\t\treturn none, err\n\t}\n\treturn v, nil\n", New: "\treturn v, nil\n"}}},
	{"S5: the handler starts without the head", "TestHeadOutOfReach", []mutate.Edit{
		{File: "run.go", Old: "if !r.headKnown {", New: "if false {"}}},

	{"S4: success assumed on a lost reply of a commit", "TestUnknownOutcomeIsSettled/request_lost", []mutate.Edit{
		{File: "commit.go", Old: "\t\tdefault:\n\t\t\tunknown = true\n", New: "\t\tdefault:\n\t\t\treturn outcome{head: driver.Head{Number: w.Number, Seq: base.Seq + 1, Nonce: w.Nonce, Token: w.Fence.Token}}\n"}}},
	{"S4: failure assumed on a lost reply of a commit", "TestUnknownOutcomeIsSettled/reply_lost", []mutate.Edit{
		{File: "commit.go", Old: "\t\tdefault:\n\t\t\tunknown = true\n", New: "\t\tdefault:\n\t\t\treturn outcome{err: notSent(l.fence.Shard, ErrRetry)}\n"}}},
	{"S4: success assumed on a lost reply of a release", "TestReleaseIsConfirmed", []mutate.Edit{
		{File: "calls.go", Old: "in.Err = s.Release(ctx, eff.Fences)", New: "_ = s.Release(ctx, eff.Fences)"}}},
	{"S4: a fenced commit in doubt is taken for refused", "TestUnknownOutcomeThenFenced/applied,_nothing_since", []mutate.Edit{
		{File: "commit.go", Old: "return l.afterFenced(&r, w, base, err)", New: "return l.fencedOut(err)"}}},
	{"S15: retry without the nonce", "TestUnknownOutcomeIsSettled/reply_lost", []mutate.Edit{
		{File: "commit.go", Old: "\t\t\tunknown = true\n", New: "\t\t\tunknown = true\n\t\t\tw.Nonce = newNonce()\n"}}},
	{"S15: retry under the next number", "TestUnknownOutcomeIsSettled/reply_lost", []mutate.Edit{
		{File: "commit.go", Old: "case isMine(h, w):", New: "case false:"},
		{File: "commit.go", Old: "case unknown && h.Number >= w.Number:", New: "case false:"},
		{File: "commit.go", Old: "case unknown:\n", New: "case false:\n"}}},
	{"S15: another's commit is taken for one's own", "TestUnknownOutcomeThenFenced/not_applied,_one_other_since", []mutate.Edit{
		{File: "commit.go", Old: "h.Number == w.Number && h.Nonce == w.Nonce && h.Token == w.Fence.Token", New: "h.Number == w.Number"}}},
	{"S16: in flight, and told as not applied", "TestCallerGivesUp", []mutate.Edit{
		{File: "commit.go", Old: "commit in flight: %w: %w\", l.fence.Shard, ErrUnknown,", New: "commit in flight: %w: %w\", l.fence.Shard, ErrRetry,"}}},

	{"S12: release before the work was joined", "TestShutdownOrder", []mutate.Edit{
		{File: "elector.go", Old: "\t\t\te.askToStop(r, cause)\n", New: "\t\t\te.askToStop(r, cause)\n\t\t\te.queue = append(e.queue, fsm.Input{Kind: fsm.InDrained, Shard: s, Token: r.lease.fence.Token})\n"}}},
	{"S12: release before a commit in flight is settled", "TestReleaseWaitsForCommit", []mutate.Edit{
		{File: "run.go", Old: "\tr.lease.commits.settled() // S12: what is in flight is work, too\n", New: ""}}},
	{"S12: the session is closed under a running handler", "TestShutdownWithStuckHandlerLeavesSession", []mutate.Edit{
		{File: "fsm/session.go", Old: "if !m.running() {", New: "if true {"}}},
	{"V6: what gives back ends with Run's context", "TestShutdownOrder", []mutate.Edit{
		{File: "elector.go", Old: "context.WithCancel(context.WithoutCancel(ctx))", New: "context.WithCancel(ctx)"}}},
	{"C5: any failed heartbeat of one's own resets suspicion", "TestFlakyObserverTakesOver", []mutate.Edit{
		{File: "fsm/session.go", Old: "\t\tm.event(EventBeatFailed, err)\n", New: "\t\tm.event(EventBeatFailed, err)\n\t\tm.okSentAt = -1\n"}}},
	{"W1: a token granted and not wanted is never given back", "TestUnwantedGrantIsGivenBack", []mutate.Edit{
		{File: "fsm/shards.go", Old: "\tdefault:\n\t\tm.decide(release, i)\n\t}\n", New: "\tcase o.granted > 0:\n\t\tm.decide(release, i)\n\t}\n"}}},
	{"S13: a member that trusts its watch alone", "TestMissedChangeIsFound/member", []mutate.Edit{
		{File: "step.go", Old: "\t\te.resync = true\n", New: ""}}},
	{"S13: an observer that trusts its watch alone", "TestMissedChangeIsFound/observer", []mutate.Edit{
		{File: "calls.go", Old: "if e.resync || sent.Sub(full) > 2*e.o.Resync {", New: "if e.resync {"}}},
	{"S14: the store's change is not reported", "TestStoreChangedHalts", []mutate.Edit{
		{File: "step.go", Old: "\t\te.halted = eff.Err\n", New: ""}}},
	{"S14: a commit's answer that the store changed is the caller's alone", "TestStoreChangedIsFoundByAnyCall/commit", []mutate.Edit{
		{File: "commit.go", Old: "\tl.e.storeChanged(out.err)\n", New: ""},
		{File: "commit.go", Old: "\te.storeChanged(err)\n", New: ""}}},
	{"S14: a head that went back is the caller's alone", "TestStoreChangedIsFoundByAnyCall/head_went_back", []mutate.Edit{
		{File: "commit.go", Old: "\tl.e.storeChanged(out.err)\n", New: ""}}},
	{"S14: the same, of a commit that is in doubt already", "TestStoreChangedIsFoundByAnyCall/commit_in_doubt", []mutate.Edit{
		{File: "commit.go", Old: "\te.storeChanged(err)\n", New: ""}}},
	{"S14: a read's answer that the store changed is the caller's alone", "TestStoreChangedIsFoundByAnyCall/read", []mutate.Edit{
		{File: "lease.go", Old: "\t\tl.e.storeChanged(err)\n", New: ""}}},
	{"S14: a view's answer that the store changed is tried again", "TestStoreChangedIsFoundByAnyCall/view", []mutate.Edit{
		{File: "calls.go", Old: "\t\t\te.storeChanged(err)\n", New: ""}}},
	{"S14: a head's answer that the store changed is read again", "TestStoreChangedIsFoundByHead/grant", []mutate.Edit{
		{File: "run.go", Old: "\t\te.storeChanged(err)\n", New: ""}}},
	{"S14: the same, of a commit in doubt", "TestStoreChangedIsFoundByHead/commit_in_doubt", []mutate.Edit{
		{File: "commit.go", Old: "\t\tr.l.e.storeChanged(err)\n", New: ""}}},
	{"S4: what was released is known by the reply alone", "TestReleaseKnownByTheView", []mutate.Edit{
		{File: "step.go", Old: "\t\te.gone(eff.Fence, eff.Owner)\n", New: ""}}},
	{"A5: a handover whose reply was lost passes for refused", "TestHandOverKnownByTheView/moved_on", []mutate.Edit{
		{File: "run.go", Old: "errors.As(err, &fenced) && fenced.Current", New: "errors.As(err, &fenced) && false && fenced.Current"}}},
	{"S12: a handler that returned is stuck until its last commit is settled", "TestReturnedIsNotStuck", []mutate.Edit{
		{File: "run.go", Old: "r.isStuck || r.returned || r.joined", New: "r.isStuck || r.joined"},
		{File: "run.go", Old: "case r.joined || r.returned || !r.started:", New: "case r.joined || !r.started:"}}},
	{"S13: a resync ends the full read before it", "TestResyncLeavesAFullRead", []mutate.Edit{
		{File: "step.go", Old: "e.observing != nil && !e.reading {\n\t\t\te.observing()\n\t\t}\n\tcase fsm.EffGrant", New: "e.observing != nil {\n\t\t\te.observing()\n\t\t}\n\tcase fsm.EffGrant"}}},
	{"S3: a refused write does not end the lease", "TestFencedCommit", []mutate.Edit{
		{File: "commit.go", Old: "\tl.e.feed(fsm.Input{Kind: fsm.InFenced, Shard: l.fence.Shard, Token: l.fence.Token, Owner: current})\n", New: ""}}},

	{"T1: group commit tells its callers one number", "TestGroupCommit", []mutate.Edit{
		{File: "commit.go", Old: "\t\t\tnext += Seq(p.appends)\n", New: ""}}},
	{"F2: group commit merges preconditions", "TestWhatIsMerged", []mutate.Edit{
		{File: "commit.go", Old: "p.solo = p.solo || op.IfVersion != AnyVersion", New: ""}}},
	{"F1: group commit merges two writes of one key", "TestWhatIsMerged", []mutate.Edit{
		{File: "commit.go", Old: "\t\t\t\t\treturn n // a key is once in each pending: it is another caller's\n", New: ""}}},
	{"F2: one caller's refusal is everybody's", "TestRefusalOfMergedWriteIsOnesOwn", []mutate.Edit{
		{File: "commit.go", Old: "if len(batch) > 1 && refusedAsOne(out.err) {", New: "if false {"}}},
	{"V5: hooks are called from the step", "TestNotifierOrderAndBound", []mutate.Edit{
		{File: "notify.go", Old: "func (n *notifier) post(f func()) {\n", New: "func (n *notifier) post(f func()) {\n\tf()\n\tf = func() {}\n"}}},
}

// TestMutants takes one rule out at a time, by an overlay of the build, and
// expects the test that is named to fail. The same test passes without.
func TestMutants(t *testing.T) {
	if !*mutantsFlag {
		t.Skip("needs -mutants: it builds the package once for each mutant")
	}
	t.Run("none", func(t *testing.T) {
		t.Parallel()
		binary := mutate.Build(t)
		var done []string
		for _, m := range mutants {
			if slices.Contains(done, m.killer) {
				continue
			}
			done = append(done, m.killer)
			if out, failed := mutate.Run(t, binary, m.killer, time.Minute); failed {
				t.Errorf("%s fails without a mutant:\n%s", m.killer, out)
			}
		}
	})
	for _, m := range mutants {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			if out, failed := mutate.Run(t, mutate.Build(t, m.edits...), m.killer, time.Minute); !failed {
				t.Errorf("survived %s:\n%s", m.killer, out)
			}
		})
	}
}

// TestDocumentedMutants compares the table of docs/conformance.md with the
// mutants. After a change: go test ./core -run DocumentedMutants -args -update
func TestDocumentedMutants(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	b.WriteString("| a runner with this rule taken out | fails |\n|---|---|\n")
	for _, m := range mutants {
		fmt.Fprintf(&b, "| %s | `%s` |\n", m.name, m.killer)
	}
	mutate.Document(t, "../docs/conformance.md", "core mutants", b.String(), *updateFlag)
}
