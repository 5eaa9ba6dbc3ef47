package conformance

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/listing"
)

func errorCases() []testCase {
	const area = "Errors"
	return []testCase{
		{Area: area, Property: "CancelledWriteIsUnknown", Rules: []rule{ruleE1, ruleF1, ruleL1, ruleA1, ruleA2},
			run:   cancelledWriteIsUnknown,
			Shows: "a cancelled commit that answers a refusal is not in the log"},
		{Area: area, Property: "DoneContext", Rules: []rule{ruleE1, ruleX1}, run: doneContext,
			Shows: "a call whose context is done fails and changes nothing"},
		{Area: area, Property: "CancelledCallBlocksNobody", Rules: []rule{ruleE3}, run: cancelledCallBlocksNobody,
			Shows: "cancelled calls leave no lock behind"},
		{Area: area, Property: "LostReplyIsUnknown", Rules: []rule{ruleE1}, Needs: []string{"Wire.DropReplies"},
			run:   lostReplyIsUnknown,
			Shows: "a lost reply means unknown, and one read settles it"},
		{Area: area, Property: "LostRequestIsUnknown", Rules: []rule{ruleE1, ruleX1}, Needs: []string{"Wire.DropRequests"},
			run:   lostRequestIsUnknown,
			Shows: "a lost request looks the same, ends with its context, changes nothing"},
		{Area: area, Property: "WriteSentOnce", Rules: []rule{ruleE2}, Needs: []string{"Wire.DropReplies", "Calls"},
			alone: true, run: writeSentOnce,
			Shows: "a write without a reply is not sent again"},
		{Area: area, Property: "EveryErrorClassified", Rules: []rule{ruleE1}, run: everyErrorClassified,
			Shows: "refusals match their sentinel, carry details and begin with tenure:"},
		{Area: area, Property: "ClosedBackend", Rules: []rule{ruleE1, ruleE3}, run: closedBackend,
			Shows: "calls after Close answer ErrClosed; sessions stay"},
		{Area: area, Property: "RightTakenAway", Rules: []rule{ruleE5, ruleE1}, Needs: []string{"Deny"}, alone: true, run: rightTakenAway,
			Shows: "a commit that the store denies answers ErrDenied, changes nothing, and succeeds once it may"},
		{Area: area, Property: "InvalidNames", Rules: []rule{ruleE1}, run: invalidNames,
			Shows: "invalid names, keys and numbers are refused before any I/O"},
		{Area: area, Property: "NoGoroutineLeak", Rules: []rule{ruleE3}, run: noGoroutineLeak,
			Shows: "Close leaves no goroutine, even after cancelled calls"},
		{Area: area, Property: "ConcurrentUse", Rules: []rule{ruleE3}, run: concurrentUse,
			Shows: "many goroutines can use every method of one backend"},
		{Area: area, Property: "CloseUnblocks", Rules: []rule{ruleE3, ruleE1}, run: closeUnblocks,
			Shows: "Close ends blocked calls with ErrClosed"},
		{Area: area, Property: "ProbeRefusesLyingStore", Rules: []rule{ruleP1}, Needs: []string{"OpenLying"},
			run:   probeRefusesLyingStore,
			Shows: "a store that ignores conditions does not open"},
		{Area: area, Property: "CorruptRecordsQuarantined", Rules: []rule{ruleA4, ruleO1, ruleD1}, Needs: []string{"Tamper"},
			run: func(f *fixture) {
				quarantined(f, CorruptShard, CorruptMember)
			}, Shows: "a record that does not decode is never granted and blocks nothing else"},
		{Area: area, Property: "OversizedRecordInStore", Rules: []rule{ruleA4, ruleO1, ruleD1}, Needs: []string{"Tamper"},
			run: func(f *fixture) {
				quarantined(f, OversizeShard)
			}, Shows: "the same for a record that is far too large"},
		{Area: area, Property: "ImpossibleRecordInStore", Rules: []rule{ruleA4, ruleO1, ruleD1}, Needs: []string{"Tamper"},
			run: func(f *fixture) {
				quarantined(f, ImpossibleShard)
			}, Shows: "the same for a token that was never granted"},
		{Area: area, Property: "DamagedHead", Rules: []rule{ruleA4, ruleD1}, Needs: []string{"Tamper"}, run: damagedHead,
			Shows: "an unreadable head fails commits, bars grants, permits release"},
		{Area: area, Property: "DamagedEntry", Rules: []rule{ruleL2, ruleL4, ruleD1}, Needs: []string{"Tamper"}, run: damagedEntry,
			Shows: "an unreadable entry fails reads of its log, and nothing else"},
		{Area: area, Property: "LostEntry", Rules: []rule{ruleL2, ruleL4, ruleD1}, Needs: []string{"Tamper"}, run: lostEntry,
			Shows: "a log that lacks entries which its head names is damaged, and never a shorter one"},
		{Area: area, Property: "OddItem", Rules: []rule{ruleL2, ruleD1}, Needs: []string{"Tamper"}, run: oddItem,
			Shows: "an item under a key that no item can have is left out of lists, and views name it"},
	}
}

func cancelledWriteIsUnknown(f *fixture) {
	const shard driver.ShardID = "s"
	r := f.recorder()
	a := f.join("a").recorded(r)
	first := a.claim(driver.Claim{Shard: shard})
	f.setup("acquire", first.Err)
	f.rounds(400, time.Second, func(int) {
		ctx, cancel := context.WithCancel(f.ctx)
		defer cancel()
		next := f.head(shard).Number + 1
		delay := rand.N(100 * time.Microsecond)
		together(
			func() { a.writeCtx(ctx, newWrite(first.Fence, next, appendUnique())) },
			func() {
				pause := time.NewTimer(delay)
				<-pause.C
				cancel()
			},
		)
	})
	f.quiesce(a, first.Fence)
	f.judge(r, shard)
}

func rightTakenAway(f *fixture) {
	a := f.join("a")
	fence := a.acquire("s")
	a.commit(fence, appendOp("x"), driver.Op{Kind: driver.OpPut, Key: "k", Value: []byte("x")})
	allow, err := f.store.Deny(f.ctx)
	f.setup("deny", err)
	commit := func() error {
		return a.write(fence, f.head("s").Number+1, appendOp("y"), driver.Op{Kind: driver.OpPut, Key: "k", Value: []byte("y")}).Err
	}
	if !f.eventually(f.patience(), func() bool { err = commit(); return err != nil }) {
		f.setup("deny", errors.New("commits succeed"))
	}
	before := f.head("s")
	for range 3 {
		err = commit()
		f.must(ruleE5, errors.Is(err, driver.ErrDenied), "a commit for which a right is missing answers %v; want ErrDenied", err)
		f.must(ruleE1, driver.NotApplied(err), "a commit that is denied answers %v, which does not say that it was not applied", err)
	}
	f.must(ruleE5, f.head("s") == before, "a commit that is denied changes the head from %+v to %+v", before, f.head("s"))
	f.setup("allow", allow(f.ctx))
	if !f.eventually(f.patience(), func() bool { err = commit(); return err == nil }) {
		f.fail(ruleE5, "a commit answers %v although the right is back", err)
	}
}

// quiesce waits until no canceled call can still take effect. To ensure this, it commits an empty
// value under the number that a commit in flight would use.
func (f *fixture) quiesce(m *member, fence driver.Fence) {
	f.t.Helper()
	if !f.eventually(f.patience(), func() bool {
		return m.write(fence, f.head(fence.Shard).Number+1, put("quiesced", "")).Err == nil
	}) {
		f.setup("quiesce", errors.New("no commit is accepted after cancelled ones"))
	}
}

func doneContext(f *fixture) {
	a, b := f.join("a"), f.join("b")
	fence := a.acquire("s")
	version, _ := f.beatOf(b.ID())
	late := f.newcomer(a.b, "late")
	done, cancel := context.WithCancel(f.ctx)
	cancel()
	for call, err := range map[string]error{
		"Beat":     a.Beat(done),
		"Acquire":  a.claimCtx(done, driver.Claim{Shard: "t"}).Err,
		"Transfer": a.transferCtx(done, fence, b.ID()).Err,
		"Release":  a.Release(done, []driver.Fence{fence}),
		"Commit":   a.writeCtx(done, newWrite(fence, 1, appendOp("x"))).Err,
		"Close":    b.Close(done),
		"Evict":    evictCtx(done, a, driver.Suspect{Session: b.ID(), Version: version}),
		"Join":     func() error { _, err := a.b.Join(done, late); return err }(),
		"Observe":  func() error { _, err := a.b.Observe(done, driver.ObserveQuery{}); return err }(),
		"ReadLog":  func() error { _, err := a.b.ReadLog(done, "s", 0, 1); return err }(),
		"TailLog":  func() error { _, err := a.b.TailLog(done, "", 1); return err }(),
		"Get":      func() error { _, err := a.b.Get(done, "s", "k"); return err }(),
		"List":     func() error { _, err := a.b.List(done, "s", "", 0, 0); return err }(),
	} {
		f.must(ruleX1, err != nil, "%s with a context that is done succeeds", call)
		f.must(ruleE1, driver.Unknown(err) || errors.Is(err, driver.ErrRetry),
			"%s with a context that is done answers %v; want ErrRetry or the context's error", call, err)
	}
	f.must(ruleE1, f.owner("s") == seen(fence) && f.owner("t") == driver.Owner{} && f.head("s") == driver.Head{} &&
		f.isMember(b.ID()) && !f.isMember(late.Session),
		"calls with a context that was done changed the store: %+v", f.state())
}

func evictCtx(ctx context.Context, m *member, s driver.Suspect) error {
	res, err := m.Evict(ctx, []driver.Suspect{s})
	if err = single(len(res), err); err != nil {
		return err
	}
	return res[0].Err
}

func cancelledCallBlocksNobody(f *fixture) {
	a, b := f.join("a"), f.join("b")
	fence := a.acquire("s")
	f.rounds(200, 500*time.Millisecond, func(i int) {
		ctx, cancel := context.WithCancel(f.ctx)
		defer cancel()
		together(
			func() { a.writeCtx(ctx, newWrite(fence, f.head("s").Number+1, appendOp("x"))) },
			func() { a.claimCtx(ctx, driver.Claim{Shard: driver.ShardID(fmt.Sprint("t", i))}) },
			cancel,
		)
	})
	machine := f.gauge(ruleE3)
	start := time.Now()
	next := b.preempt("s")
	b.commit(next, appendOp("y"))
	b.beat()
	machine.AtMost("after cancelled calls another process's claim, commit and heartbeat", time.Since(start), 5*time.Second)
}

// The returned context soon ends, for calls that get no answer. Its cause is an error that a store
// might return. A call must not report this cause as the store's answer.
func (f *fixture) short() (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(f.ctx, 60*time.Millisecond, driver.ErrSessionLost)
}

func lostReplyIsUnknown(f *fixture) {
	b, w := f.wire("DropReplies", func(w *Wire) bool { return w.DropReplies != nil })
	a, other := f.joinOn(b, "a"), f.join("other")
	fence := a.acquire("s")
	end := w.DropReplies()
	write := newWrite(fence, 1, appendOp("x"))
	check := func(call string, err error) {
		f.t.Helper()
		f.must(ruleE1, err != nil, "%s without a reply succeeds", call)
		f.must(ruleE1, driver.Unknown(err) || errors.Is(err, driver.ErrRetry),
			"%s without a reply answers %v, which claims to know the outcome", call, err)
	}
	ctx, cancel := f.short()
	r := a.writeCtx(ctx, write)
	cancel()
	check("Commit", r.Err)
	ctx, cancel = f.short()
	claim := a.claimCtx(ctx, driver.Claim{Shard: "t"})
	cancel()
	check("Acquire", claim.Err)
	ctx, cancel = f.short()
	moved := a.transferCtx(ctx, fence, other.ID())
	cancel()
	check("Transfer", moved.Err)
	end()

	head := f.head("s")
	switch {
	case head.Number == 1:
		f.must(ruleE1, driver.Unknown(r.Err) && head.Nonce == write.Nonce,
			"a commit that took effect was answered %v, and the head is %+v", r.Err, head)
	default:
		f.must(ruleE1, head == driver.Head{}, "one commit of unknown outcome left the head %+v", head)
	}
	if f.owner("t").Session == a.ID() {
		f.must(ruleE1, driver.Unknown(claim.Err), "a claim that took effect was answered %v", claim.Err)
		again := driver.AcquireResult{}
		err := f.settle(func() error { again = a.claim(driver.Claim{Shard: "t"}); return again.Err })
		f.must(ruleE1, err == nil && seen(again.Fence) == f.owner("t"),
			"the claim repeated answers %+v, %v; the record is %+v", again.Fence, err, f.owner("t"))
	}
	if f.owner("s").Session == other.ID() {
		f.must(ruleE1, driver.Unknown(moved.Err), "a transfer that took effect was answered %v", moved.Err)
	}
}

func lostRequestIsUnknown(f *fixture) {
	b, w := f.wire("DropRequests", func(w *Wire) bool { return w.DropRequests != nil })
	a := f.joinOn(b, "a")
	fence := a.acquire("s")
	machine := f.gauge(ruleX1)
	end := w.DropRequests()
	start := time.Now()
	for call, do := range map[string]func(context.Context) error{
		"Commit":  func(ctx context.Context) error { return a.writeCtx(ctx, newWrite(fence, 1, appendOp("x"))).Err },
		"Acquire": func(ctx context.Context) error { return a.claimCtx(ctx, driver.Claim{Shard: "t"}).Err },
		"Beat":    a.Beat,
		"Release": func(ctx context.Context) error { return a.Release(ctx, []driver.Fence{fence}) },
	} {
		ctx, cancel := f.short()
		err := do(ctx)
		cancel()
		f.must(ruleE1, err != nil && (driver.Unknown(err) || errors.Is(err, driver.ErrRetry)),
			"%s without an answer gives %v; want an error outside of the closed set", call, err)
	}
	machine.AtMost("four calls without an answer, with a context of 60 ms each", time.Since(start),
		4*(60*time.Millisecond+2*time.Second))
	f.must(ruleE1, f.head("s") == driver.Head{} && f.owner("s") == seen(fence) && f.owner("t") == driver.Owner{},
		"requests that never arrived changed the store")
	end()
	f.setup("beat after the fault", f.settle(func() error { return a.Beat(f.ctx) }))
	r := f.settle(func() error { return a.write(fence, 1, appendOp("y")).Err })
	f.must(ruleE1, r == nil, "after lost requests the same number is refused: %v", r)
}

func writeSentOnce(f *fixture) {
	b, w := f.wire("DropReplies", func(w *Wire) bool { return w.DropReplies != nil })
	a := f.joinOn(b, "a")
	fence, moved, freed := a.acquire("s"), a.acquire("moved"), a.acquire("freed")
	a.commit(fence, appendOp("x"))
	other := f.join("other")
	version, _ := f.beatOf(other.ID())
	for _, call := range []struct {
		name string
		do   func(context.Context) error
	}{
		{"Commit", func(ctx context.Context) error { return a.writeCtx(ctx, newWrite(fence, 2, appendOp("y"))).Err }},
		{"Beat", a.Beat},
		{"Acquire", func(ctx context.Context) error { return a.claimCtx(ctx, driver.Claim{Shard: "new"}).Err }},
		{"Transfer", func(ctx context.Context) error { return a.transferCtx(ctx, moved, a.ID()).Err }},
		{"Release", func(ctx context.Context) error { return a.Release(ctx, []driver.Fence{freed}) }},
		{"Evict", func(ctx context.Context) error {
			return evictCtx(ctx, a, driver.Suspect{Session: other.ID(), Version: version})
		}},
		{"Join", func(ctx context.Context) error { _, err := b.Join(ctx, f.newcomer(b, "late")); return err }},
		{"Close", a.Close},
	} {
		end := w.DropReplies()
		before := f.store.Calls().Writes
		ctx, cancel := context.WithCancel(f.ctx)
		c := begin(func() error { return call.do(ctx) })
		bound := time.Second // some stores first determine whether an earlier call was applied
		if call.name == "Commit" {
			bound = f.patience()
		}
		wrote := func() int64 { return int64(f.store.Calls().Writes - before) }
		if !f.eventually(bound, func() bool { return wrote() > 0 }) && call.name == "Commit" {
			f.setup("see a commit", errors.New("the store gets none"))
		}
		f.never(ruleE2, func() string {
			if n := wrote(); n > 1 {
				return fmt.Sprintf("%s without a reply wrote %d times; want 1", call.name, n)
			}
			return ""
		})
		cancel()
		err := f.answered(c, ruleE2, "%s does not obey its context", call.name)
		end()
		f.must(ruleE2, err != nil, "%s without a reply answers that it was applied", call.name)
	}
}

func everyErrorClassified(f *fixture) {
	a, b := f.join("a"), f.join("b")
	fence := a.acquire("s")
	gone := f.join("gone")
	f.evict(gone)
	stale := fence
	stale.Token += 7
	limits := a.b.Info().Limits
	trimmed := a.acquire("trimmed")
	a.commit(trimmed, appendOp("x"))
	a.commit(trimmed, trim(1))
	_, readErr := a.b.ReadLog(f.ctx, "trimmed", 0, 1)
	for _, c := range []struct {
		what string
		err  error
		want error
	}{
		{"a claim on a held shard", b.claim(driver.Claim{Shard: "s"}).Err, driver.ErrHeld},
		{"a commit under a wrong token", a.write(stale, 1, appendOp("x")).Err, driver.ErrFenced},
		{"a commit with a wrong number", a.write(fence, 5, appendOp("x")).Err, driver.ErrConflict},
		{"a commit with a failed precondition", a.write(fence, 1, putIf("k", "x", 4)).Err, driver.ErrConflict},
		{"a transfer of a wrong token", a.transfer(stale, b.ID()).Err, driver.ErrFenced},
		{"a transfer to nobody", a.transfer(fence, newID()).Err, driver.ErrNoTarget},
		{"a transfer of another's lease", b.transfer(fence, b.ID()).Err, driver.ErrInvalid},
		{"a heartbeat of an evicted session", gone.Beat(f.ctx), driver.ErrSessionLost},
		{"an oversized write", a.write(fence, 1,
			driver.Op{Kind: driver.OpAppend, Value: make([]byte, limits.WriteBytes+1)}).Err, driver.ErrTooLarge},
		{"a read of a trimmed entry", readErr, driver.ErrTrimmed},
	} {
		f.must(ruleE1, errors.Is(c.err, c.want), "%s answers %v; want it to match %q", c.what, c.err, c.want)
		f.must(ruleE1, strings.HasPrefix(c.err.Error(), "tenure: ") && !strings.Contains(c.err.Error(), "\n"),
			"%s has the message %q; want one line that begins with \"tenure: \"", c.what, c.err)
	}
}

func closedBackend(f *fixture) {
	a, b := f.join("a"), f.join("b")
	fence := a.acquire("s")
	f.setup("close", a.b.Close())
	f.must(ruleE3, a.b.Close() == nil, "a second Close is an error")
	for call, err := range map[string]error{
		"Join":             func() error { _, err := a.b.Join(f.ctx, f.newcomer(b.b, "late")); return err }(),
		"Observe":          func() error { _, err := a.b.Observe(f.ctx, driver.ObserveQuery{}); return err }(),
		"ReadLog":          func() error { _, err := a.b.ReadLog(f.ctx, "s", 0, 1); return err }(),
		"TailLog":          func() error { _, err := a.b.TailLog(f.ctx, "", 1); return err }(),
		"Get":              func() error { _, err := a.b.Get(f.ctx, "s", "k"); return err }(),
		"List":             func() error { _, err := a.b.List(f.ctx, "s", "", 0, 0); return err }(),
		"Session.Beat":     a.Beat(f.ctx),
		"Session.Acquire":  a.claim(driver.Claim{Shard: "t"}).Err,
		"Session.Transfer": a.transfer(fence, b.ID()).Err,
		"Session.Release":  a.Release(f.ctx, []driver.Fence{fence}),
		"Session.Commit":   a.write(fence, 1, appendOp("x")).Err,
		"Session.Evict":    a.suspect(b.ID(), 1).Err,
		"Session.Close":    a.Close(f.ctx),
	} {
		f.must(ruleE1, errors.Is(err, driver.ErrClosed), "%s of a closed backend answers %v; want ErrClosed", call, err)
	}
	f.must(ruleE3, f.isMember(a.ID()) && f.owner("s") == seen(fence), "closing a backend ended its session or lease")
	f.must(ruleE1, a.b.Info().Backend != "" && a.b.Info().Namespace != "", "Info of a closed backend is %+v", a.b.Info())
}

// badNames returns names that are invalid for shards, nodes and keys.
func badNames() []string {
	return []string{
		"", ".", "..", ".a", "-a", "a/", "/a", "a//b", "../a", "a/../b", "a\x00b", "a b", "a\n", "a%2Fb", "%00", "ä",
		"🙂",
		"'", "a'b", `a"b`, "a`b", "a;b", "a\\b", "a:b", "a*", "a?b", "\xff", strings.Repeat("a", 4096),
	}
}

func invalidNames(f *fixture) {
	a := f.join("a")
	fence := a.acquire("s")
	var before Calls
	if f.store.Calls != nil {
		before = f.store.Calls()
	}
	bad := func(what, name string, err error) {
		f.t.Helper()
		f.must(ruleE1, errors.Is(err, driver.ErrInvalid), "%s %.40q answers %v; want ErrInvalid", what, name, err)
	}
	names := append(badNames(), strings.Repeat("a", driver.MaxNameLen+1), "a/b")
	for _, name := range names {
		shard := driver.ShardID(name)
		wrong := driver.Fence{Shard: shard, Session: a.ID(), Token: fence.Token}
		bad("claiming", name, a.claim(driver.Claim{Shard: shard}).Err)
		bad("transferring", name, a.transfer(wrong, a.ID()).Err)
		bad("releasing", name, a.Release(f.ctx, []driver.Fence{wrong}))
		bad("committing to", name, a.write(wrong, 1, appendOp("x")).Err)
		_, err := a.b.ReadLog(f.ctx, shard, 0, 1)
		bad("reading the log of", name, err)
		_, err = a.b.Get(f.ctx, shard, "k")
		bad("reading an item of", name, err)
		_, err = a.b.List(f.ctx, shard, "", 0, 0)
		bad("listing", name, err)
		m := f.newcomer(a.b, name)
		_, err = a.b.Join(f.ctx, m)
		bad("joining as", name, err)
		m.Node, m.Session = "n", driver.SessionID(name)
		_, err = a.b.Join(f.ctx, m)
		bad("joining with the id", name, err)
	}
	for _, key := range badNames() {
		bad("putting", key, a.write(fence, 1, put(key, "v")).Err)
		bad("deleting", key, a.write(fence, 1, del(key)).Err)
		_, err := a.b.Get(f.ctx, "s", key)
		bad("getting", key, err)
		if driver.CheckPrefix(key) != nil {
			_, err = a.b.List(f.ctx, "s", key, 0, 0)
			bad("listing the prefix", key, err)
		}
	}
	for what, w := range map[string]driver.Write{
		"number 0":           newWrite(fence, 0, appendOp("x")),
		"no operation":       newWrite(fence, 1),
		"one key twice":      newWrite(fence, 1, put("k", "1"), del("k")),
		"no nonce":           {Fence: fence, Number: 1, Ops: []driver.Op{appendOp("x")}},
		"an unknown kind":    newWrite(fence, 1, driver.Op{Kind: 99}),
		"a negative trim":    newWrite(fence, 1, trim(-1)),
		"token 0":            newWrite(driver.Fence{Shard: "s", Session: a.ID()}, 1, appendOp("x")),
		"a negative version": newWrite(fence, 1, putIf("k", "v", -7)),
	} {
		bad("a write with", what, a.writeCtx(f.ctx, w).Err)
	}
	_, err := a.Acquire(f.ctx, []driver.Claim{{Shard: "t"}, {Shard: "t"}})
	bad("claiming twice in a batch", "t", err)
	if f.store.Calls != nil {
		after := f.store.Calls()
		f.must(ruleE1, after == before, "invalid calls reached the store: %+v before, %+v after", before, after)
	}
	f.must(ruleE1, len(f.state().Shards) == 1 && f.head("s") == driver.Head{}, "invalid calls changed the store: %+v",
		f.state())

	longest := driver.ShardID("a." + strings.Repeat("-", driver.MaxNameLen-3) + "_")
	long := a.claim(driver.Claim{Shard: longest})
	f.must(ruleE1, long.Err == nil && f.owner(longest) == seen(long.Fence), "a name of %d bytes answers %v",
		driver.MaxNameLen, long.Err)
	key := "a/" + strings.Repeat("b", driver.MaxKeyLen-2)
	f.must(ruleE1, a.write(long.Fence, 1, put(key, "v")).Err == nil && f.get(longest, key) != nil,
		"a key of %d bytes does not work", driver.MaxKeyLen)
}

func noGoroutineLeak(f *fixture) {
	for range 3 {
		b := f.open()
		m := f.joinOn(b, "a")
		fence := m.preempt("s")
		w, t := f.watch(b), f.tail(b)
		ctx, cancel := context.WithCancel(f.ctx)
		var calls sync.WaitGroup
		for range 4 {
			calls.Go(func() { _, _ = b.Observe(ctx, driver.ObserveQuery{Since: w.cursor}) })
			calls.Go(func() { _, _ = b.TailLog(ctx, t.cursor, 10) })
			calls.Go(func() { m.writeCtx(ctx, newWrite(fence, 1, appendOp("x"))) })
		}
		m.beat()
		cancel()
		calls.Wait()
	}
	f.closeAll()
	own := 1 // the case's own goroutine
	var left []string
	if !f.eventually(f.patience(), func() bool {
		left = labelled(f.t.Name())
		return len(left) <= own
	}) {
		f.fail(ruleE3, "%v after every backend was closed goroutines are left:\n%s\n", f.patience(), strings.Join(left, "\n\n"))
	}
}

func concurrentUse(f *fixture) {
	b := f.open()
	m, other := f.joinOn(b, "a"), f.joinOn(b, "b")
	const workers = 8
	fences := m.hold(workers)
	version, _ := f.beatOf(other.ID())
	full, tail := f.watch(b), f.tail(b)
	f.rounds(100, time.Second, func(int) {
		var mu sync.Mutex
		var errs []error
		note := func(err error) {
			mu.Lock()
			defer mu.Unlock()
			errs = append(errs, err)
		}
		work := times(workers, func(i int) {
			shard := fences[i].Shard
			page, err := b.ReadLog(f.ctx, shard, 0, 0)
			note(err)
			if err != nil {
				return
			}
			_, err = b.ReadLog(f.ctx, shard, max(0, page.Head.Oldest-1), 5)
			note(err)
			note(m.write(fences[i], page.Head.Number+1, appendOp("x"), put("k", "v"), trim(page.Head.Seq)).Err)
			_, err = b.Get(f.ctx, shard, "k")
			note(err)
			_, err = b.List(f.ctx, shard, "", 0, 0)
			note(err)
			note(m.Beat(f.ctx))
			r := m.transfer(fences[i], m.ID())
			note(r.Err)
			if r.Err == nil {
				fences[i] = r.Fence
			}
			_, err = b.Observe(f.ctx, driver.ObserveQuery{})
			note(err)
			note(m.suspect(other.ID(), version+1000).Err)
		})
		work = append(work,
			func() { _, err := full.next(f.ctx); note(err) },
			func() { note(tail.next(f.ctx, 10)) },
		)
		together(work...)
		for _, err := range errs {
			if err != nil && !errors.Is(err, driver.ErrRetry) {
				f.fail(ruleE3, "a call beside others on one backend answers %v", err)
			}
		}
		for _, fence := range fences {
			f.must(ruleE3, f.owner(fence.Shard) == seen(fence), "after calls at once the record of %q is %+v; want %+v",
				fence.Shard, f.owner(fence.Shard), seen(fence))
		}
	})
}

func closeUnblocks(f *fixture) {
	for i := range 3 {
		b := f.open()
		bell, w, t := f.bell(b), f.watch(b), f.tail(b)
		var calls []*call
		for range 3 {
			calls = append(calls,
				begin(func() error { _, err := b.Observe(f.ctx, driver.ObserveQuery{Since: w.cursor}); return err }),
				begin(func() error { _, err := b.TailLog(f.ctx, t.cursor, 10); return err }))
		}
		if i == 0 {
			bell.looked()
		}
		f.waiting(calls...)
		for _, got := range calls {
			if early, err := got.early(); early {
				f.setup("block", fmt.Errorf("a call without news returned: %v", err))
			}
		}
		f.setup("close", b.Close())
		for _, got := range calls {
			err := f.answered(got, ruleE3, "Close left a call blocked")
			f.must(ruleE1, errors.Is(err, driver.ErrClosed),
				"a blocked call answers %v when its backend is closed; want ErrClosed", err)
		}
	}
}

func probeRefusesLyingStore(f *fixture) {
	b, err := f.tryOpen(f.store.OpenLying)
	f.must(ruleP1, err != nil, "a store that ignores the conditions of writes opens: %+v", b)
	f.must(ruleP1, strings.HasPrefix(err.Error(), "tenure: "),
		"a store that ignores conditions is refused with %q; want a message that begins with \"tenure: \"", err)
}

func quarantined(f *fixture, kinds ...Tampering) {
	tried := 0
	for i, what := range kinds {
		shard := driver.ShardID(fmt.Sprint("bad", i))
		a, victim := f.join("a"), f.join("victim")
		good := a.acquire(driver.ShardID(fmt.Sprint("good", i)))
		bad := victim.acquire(shard)
		name := string(shard)
		if what == CorruptMember {
			name = string(victim.ID())
		}
		err := f.store.Tamper(f.ctx, what, name)
		if errors.Is(err, errors.ErrUnsupported) {
			continue
		}
		f.setup(string(what), err)
		tried++
		f.named(what, name, f.state())
		v, err := f.read().Observe(f.ctx, driver.ObserveQuery{})
		f.must(ruleO1, err == nil, "%s: observing answers %v; want every other record", what, err)
		f.must(ruleO1, ownerIn(v, good.Shard) == seen(good), "%s: the view has %+v of a shard beside it; want %+v", what,
			ownerIn(v, good.Shard), seen(good))
		v, err = f.open().Observe(f.ctx, driver.ObserveQuery{})
		f.must(ruleO1, err == nil && ownerIn(v, good.Shard) == seen(good),
			"%s: a backend opened afterwards observes %+v, %v", what, v, err)

		fresh := driver.ShardID(fmt.Sprint("fresh", i))
		res, err := a.Acquire(f.ctx, []driver.Claim{{Shard: fresh},
			{Shard: shard, Seen: driver.Owner{Session: a.ID(), Token: bad.Token}}})
		f.must(ruleA4, err == nil && len(res) == 2 && res[0].Err == nil, "%s: a batch with a good claim answers %+v, %v",
			what, res, err)
		f.must(ruleA4, res[1].Err != nil, "%s: the claim with another view was granted: %+v", what, res[1].Fence)
		claims := []driver.Claim{{Shard: shard}, {Shard: shard, Seen: seen(bad)}}
		if what != CorruptMember { // the record exists, so preempting it is allowed
			claims = append(claims, driver.Claim{Shard: shard, Seen: seen(bad), Preempt: true},
				driver.Claim{Shard: shard, Preempt: true})
		}
		for _, c := range claims {
			r := a.claimCtx(f.ctx, c) // once, because an unreadable record may be answered with ErrRetry
			f.must(ruleA4, r.Err != nil, "%s: the claim that saw %+v (preempting: %v) was granted: %+v", what, c.Seen,
				c.Preempt, r.Fence)
			f.must(ruleD1, what == CorruptMember || isDamaged(r.Err, shard),
				"%s: the claim that saw %+v answers %v; want a DamagedError", what, c.Seen, r.Err)
		}
		f.must(ruleA4, a.write(good, 1, appendOp("x")).Err == nil, "%s: a commit to a shard beside it is refused", what)
		a.beat()
		if what != CorruptMember {
			r := a.writeCtx(f.ctx, newWrite(driver.Fence{Shard: shard, Session: a.ID(), Token: bad.Token}, 1,
				appendOp("x")))
			f.must(ruleA4, r.Err != nil, "%s: a commit under a fence that was never granted is accepted", what)
			r = victim.writeCtx(f.ctx, newWrite(bad, 1, appendOp("x")))
			f.must(ruleD1, isDamaged(r.Err, shard), "%s: a commit of its owner answers %v; want a DamagedError, which may "+
				"not be tried again", what, r.Err)
			f.must(ruleD1, victim.tryRelease(bad) == nil, "%s: its owner cannot release it", what)
		}
	}
	if tried == 0 {
		f.skip("the store's schema makes this tampering impossible")
	}
}

// isDamaged reports whether err identifies a damaged record of the shard and is not ErrRetry.
func isDamaged(err error, shard driver.ShardID) bool {
	d, ok := errors.AsType[*driver.DamagedError](err)
	return ok && errors.Is(err, driver.ErrDamaged) && !errors.Is(err, driver.ErrRetry) && d.Shard == shard &&
		d.Why != "" &&
		strings.Contains(d.Key, string(shard)) && utf8.ValidString(d.Error()) &&
		!strings.ContainsAny(d.Error(), "\x1b\n") && len(d.Error()) < 1000
}

func namedIn(damaged []*driver.DamagedError, name string) bool {
	for _, d := range damaged {
		if strings.Contains(d.Key, name) && d.Why != "" {
			return true
		}
	}
	return false
}

// A full view must list the damaged record.
func (f *fixture) named(what Tampering, name string, v *driver.View) {
	f.t.Helper()
	f.must(ruleD1, namedIn(v.Damaged, name), "%s: the view does not name it; it names %v", what, v.Damaged)
	f.must(ruleD1, len(v.Damaged) <= listing.MaxDamaged, "%s: the view names %d records", what, len(v.Damaged))
}

func damagedHead(f *fixture) {
	a, b := f.join("a"), f.join("b")
	bad, good := a.acquire("bad"), a.acquire("good")
	a.commit(bad, appendOp("x"))
	f.setup("tamper", f.store.Tamper(f.ctx, CorruptHead, "bad"))
	for number := driver.WriteNo(1); number <= 3; number++ {
		r := a.writeCtx(f.ctx, newWrite(bad, number, appendOp("y")))
		f.must(ruleD1, isDamaged(r.Err, "bad"), "commit %d under a damaged head answers %v; want a DamagedError", number,
			r.Err)
	}
	_, err := f.open().ReadLog(f.ctx, "bad", 0, 10)
	f.must(ruleD1, isDamaged(err, "bad"), "reading the log under it answers %v", err)
	tailing := f.tailing(f.open())
	f.must(ruleD1, a.write(good, 1, appendOp("z")).Err == nil, "a commit to a shard beside it is refused")
	f.must(ruleD1, tailing("good", 1), "the tail does not go on")
	f.must(ruleD1, a.tryRelease(bad) == nil, "the lease cannot be released")

	b.refusedHead("bad", func() driver.Owner { return f.owner("bad") })
	b.beat()
}

// refusedHead claims a shard with a damaged head. The results of seen are used as Claim.Seen. A
// store may grant the claim once before it detects the damage.
func (m *member) refusedHead(shard driver.ShardID, seen func() driver.Owner) {
	f := m.f
	f.t.Helper()
	granted := 0
	for range 3 {
		before := f.owner(shard)
		r := m.claimCtx(f.ctx, driver.Claim{Shard: shard, Seen: seen()})
		f.must(ruleA4, r.Err != nil, "a shard whose head is damaged was granted: %+v", r)
		if now := f.owner(shard); now != before {
			granted++
			f.must(ruleA4, driver.Unknown(r.Err), "the claim answers %v, and the record went from %+v to %+v", r.Err, before,
				now)
			f.must(ruleD1, m.tryRelease(driver.Fence{Shard: shard, Session: now.Session, Token: now.Token}) == nil,
				"the granted lease cannot be released")
			continue
		}
		f.must(ruleD1, isDamaged(r.Err, shard), "the claim answers %v; want a DamagedError", r.Err)
	}
	f.must(ruleD1, granted <= 1, "a shard whose head is damaged changed owner %d times", granted)
}

func damagedEntry(f *fixture) {
	a := f.join("a")
	bad, good := a.acquire("bad"), a.acquire("good")
	a.commit(bad, appendOp("x"))
	a.commit(bad, appendOp("y"))
	f.setup("tamper", f.store.Tamper(f.ctx, CorruptEntry, "bad"))
	_, err := f.open().ReadLog(f.ctx, "bad", 0, 10)
	f.must(ruleD1, isDamaged(err, "bad"), "reading a damaged entry answers %v; want a DamagedError", err)
	page, err := f.read().ReadLog(f.ctx, "bad", 1, 10)
	f.must(ruleL2, err == nil && len(page.Entries) == 1 && string(page.Entries[0].Payload) == "y",
		"the entry behind it reads as %+v, %v", page, err)
	tailing := f.tailing(f.open())
	f.must(ruleD1, a.write(bad, 3, appendOp("z")).Err == nil, "a commit behind it is refused")
	f.must(ruleD1, a.write(good, 1, appendOp("z")).Err == nil, "a commit to a shard beside it is refused")
	f.must(ruleL4, tailing("bad", 3) && tailing("good", 1), "the tail does not go on")
}

func lostEntry(f *fixture) {
	a := f.join("a")
	fences := map[driver.ShardID]driver.Fence{"only": a.acquire("only"), "first": a.acquire("first")}
	good := a.acquire("good")
	a.commit(fences["only"], appendOp("x"))
	a.commit(fences["first"], appendOp("x"))
	a.commit(fences["first"], appendOp("y"))
	for shard := range fences {
		err := f.store.Tamper(f.ctx, RemoveEntry, string(shard))
		if errors.Is(err, errors.ErrUnsupported) {
			f.skip("the harness cannot remove an entry")
		}
		f.setup("tamper", err)
		page, err := f.open().ReadLog(f.ctx, shard, 0, 10)
		f.must(ruleD1, isDamaged(err, shard), "reading the log of %q without its first entry answers %+v, %v; want a DamagedError", shard,
			page, err)
	}
	page, err := f.read().ReadLog(f.ctx, "first", 1, 10)
	f.must(ruleL2, err == nil && len(page.Entries) == 1 && string(page.Entries[0].Payload) == "y",
		"the entry behind a lost one reads as %+v, %v", page, err)
	tailing := f.tailing(f.open())
	f.must(ruleD1, a.write(fences["only"], 2, appendOp("z")).Err == nil, "a commit behind it is refused")
	f.must(ruleD1, a.write(good, 1, appendOp("z")).Err == nil, "a commit to a shard beside it is refused")
	f.must(ruleL4, tailing("only", 2) && tailing("good", 1), "the tail does not go on")
}

func oddItem(f *fixture) {
	a := f.join("a")
	at := a.acquire("odd")
	a.commit(at, put("k1", "v"), put("k3", "v"))
	err := f.store.Tamper(f.ctx, OddItem, "odd")
	if errors.Is(err, errors.ErrUnsupported) {
		f.skip("the harness cannot write an item past the driver")
	}
	f.setup("tamper", err)
	b := f.open()
	for _, prefix := range []string{"", "k"} {
		for limit, want := range []string{"k1 k3", "k1", "k1 k3", "k1 k3"} {
			items, err := b.List(f.ctx, "odd", prefix, limit, 0)
			var keys []string
			for _, it := range items {
				keys = append(keys, it.Key)
			}
			f.must(ruleD1, err == nil, "listing %d items beside one under an odd key answers %v", limit, err)
			f.must(ruleL2, strings.Join(keys, " ") == want, "listing %d items answers %q; want %q", limit, keys, want)
		}
	}
	v, err := b.Observe(f.ctx, driver.ObserveQuery{})
	f.setup("observe", err)
	f.named(OddItem, "odd", v)
	items, err := b.List(f.ctx, "odd", "k2", 1, 0)
	f.must(ruleD1, err == nil && len(items) == 0, "listing what has the odd key's prefix answers %+v, %v; want nothing", items, err)
	f.must(ruleD1, a.write(at, 2, put("k2", "v")).Err == nil, "a commit beside it is refused")
}

// tailing starts tailing all logs. The function that it returns reports whether the tail delivers a
// shard's entry, directly or in a head, within the time limit for news.
func (f *fixture) tailing(b driver.Backend) func(driver.ShardID, driver.Seq) bool {
	f.t.Helper()
	page, err := b.TailLog(f.ctx, "", 10)
	f.setup("tail", err)
	seen := make(map[driver.ShardID]driver.Seq)
	return func(shard driver.ShardID, seq driver.Seq) bool {
		ctx, cancel := context.WithTimeout(f.ctx, f.prompt(b))
		defer cancel()
		for seen[shard] < seq {
			next, err := b.TailLog(ctx, page.Cursor, 10)
			if err != nil {
				return false
			}
			page = next
			for _, e := range page.Entries {
				seen[e.Shard] = max(seen[e.Shard], e.Seq)
			}
			for _, h := range page.Heads {
				seen[h.Shard] = max(seen[h.Shard], h.Head.Seq)
			}
		}
		return true
	}
}
