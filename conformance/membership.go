package conformance

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tenure-go/tenure/core/driver"
)

func membershipCases() []testCase {
	const area = "Membership"
	return append([]testCase{
		{Area: area, Property: "JoinTellsAll", Rules: []rule{ruleM3, ruleO1}, run: joinTellsAll,
			Shows: "a view has everything that a member joined with"},
		{Area: area, Property: "LateJoinFails", Rules: []rule{ruleM3}, Needs: []string{"Wire.Hold"}, run: lateJoinFails,
			Shows: "a join that arrives after a later one creates nothing"},
		{Area: area, Property: "RepeatedJoinFails", Rules: []rule{ruleM3}, run: repeatedJoinFails,
			Shows: "a used id cannot join again, alive or dead"},
		{Area: area, Property: "RacingJoins", Rules: []rule{ruleM3}, run: racingJoins,
			Shows: "simultaneous joins of one label succeed; those that supersede may report not applied"},
		{Area: area, Property: "BeatChangesVersion", Rules: []rule{ruleM1}, run: beatChangesVersion,
			Shows: "each heartbeat raises the record's version"},
		{Area: area, Property: "BeatNeedsOnlyExistence", Rules: []rule{ruleM1, ruleI1}, Needs: []string{"Wire.DropReplies"}, run: beatNeedsOnlyExistence,
			Shows: "a heartbeat's lost reply does not end the session"},
		{Area: area, Property: "BeatAfterCancelledBeat", Rules: []rule{ruleM1, ruleI1}, run: beatAfterCancelledBeat,
			Shows: "overlapping and cancelled heartbeats do not end the session"},
		{Area: area, Property: "BeatAfterEvictIsLost", Rules: []rule{ruleM1}, run: beatAfterEvictIsLost,
			Shows: "an evicted session can only release, and write until the next grant"},
		{Area: area, Property: "BeatAfterCloseIsLost", Rules: []rule{ruleM1}, run: beatAfterCloseIsLost,
			Shows: "the same for a closed session; closing twice succeeds"},
		{Area: area, Property: "EvictExactVersionOnly", Rules: []rule{ruleM2}, run: evictExactVersionOnly,
			Shows: "an evict of another version fails and reports the present one"},
		{Area: area, Property: "EvictLosesToBeat", Rules: []rule{ruleM1, ruleM2}, run: evictLosesToBeat,
			Shows: "of a heartbeat and an evict that race exactly one succeeds"},
		{Area: area, Property: "LossIsExplained", Rules: []rule{ruleM1, ruleM3, ruleX1}, run: lossIsExplained,
			Shows: "a lost session can say who evicted or superseded it"},
		{Area: area, Property: "CloseFreesAll", Rules: []rule{ruleM1, ruleA1}, run: closeFreesAll,
			Shows: "a closed session's shards, and no others, are free immediately"},
		{Area: area, Property: "CloseIsOneWrite", Rules: []rule{ruleM1}, Needs: []string{"Calls"}, alone: true, run: closeIsOneWrite,
			Shows: "closing costs one write, whatever the session holds"},
		{Area: area, Property: "SupersedeEndsFormer", Rules: []rule{ruleM3}, run: supersedeEndsFormer,
			Shows: "a superseding join ends its former session in one write, and no other"},
		{Area: area, Property: "TwoLiveSameNameNeverShare", Rules: []rule{ruleM3, ruleA1}, run: twoLiveSameNameNeverShare,
			Shows: "two live sessions under one label are two members"},
		{Area: area, Property: "IdNeverRevived", Rules: []rule{ruleM1, ruleM3}, run: idNeverRevived,
			Shows: "an id whose record is gone never returns"},
		{Area: area, Property: "IdNeverRevivedOnReconnect", Rules: []rule{ruleM1, ruleM3}, Needs: []string{"Wire.Cut"}, run: idNeverRevivedOnReconnect,
			Shows: "a reconnect revives no evicted session"},
		{Area: area, Property: "BeatCostConstant", Rules: []rule{ruleM1}, Needs: []string{"Calls"}, alone: true, run: beatCostConstant,
			Shows: "a heartbeat costs the same with one shard and with many"},
		{Area: area, Property: "BeatsNotBehindWrites", Rules: []rule{ruleE4}, alone: true, run: beatsNotBehindWrites,
			Shows: "heartbeats and pings pass while the process writes all it can"},
		{Area: area, Property: "SilentServerIsLeft", Rules: []rule{ruleE4}, Needs: []string{"OpenSeveral"}, run: silentServer,
			Shows: "no heartbeat or call waits for its time-out on a silent server"},
		{Area: area, Property: "MissingIdentityRefused", Rules: []rule{ruleI1}, Needs: []string{"OpenExisting"}, run: missingIdentityRefused,
			Shows: "without Create a missing namespace is refused and not created"},
	}, updateCases()...)
}

func joinTellsAll(f *fixture) {
	b := f.open()
	want := f.newcomer(b, "node-1.example")
	want.Priority, want.Weight = -3, 7
	want.Meta = map[string]string{"addr": "10.0.0.1:99 \"ü\"", "empty": ""}
	_, err := f.tryJoin(b, want)
	f.setup("join", err)
	for _, got := range f.state().Members {
		if got.Session != want.Session {
			continue
		}
		if got.Node != want.Node || got.TTL != want.TTL || got.Priority != want.Priority || got.Weight != want.Weight || !maps.Equal(got.Meta, want.Meta) {
			f.fail(ruleO1, "the view has %+v of a member that joined as %+v", got, want)
		}
		return
	}
	f.fail(ruleM3, "a session that joined is not in the view")
}

func lateJoinFails(f *fixture) {
	b, w := f.wire("Hold", func(w *Wire) bool { return w.Hold != nil })
	// A join may take several requests, but only the last request matters. The first attempt begins
	// the hold before the call. Later attempts begin the hold and the call at the same time.
	const tries = 25
	late := map[driver.SessionID]bool{}
	var err error
	for i := range tries {
		node := fmt.Sprint("n", i)
		m := f.newcomer(b, node)
		var release func()
		if i == 0 {
			release = w.Hold()
		}
		together(
			func() {
				ctx, cancel := context.WithTimeout(f.ctx, 30*time.Millisecond)
				defer cancel()
				_, err = b.Join(ctx, m)
			},
			func() {
				if release == nil {
					release = w.Hold()
				}
			},
		)
		f.joinOn(f.read(), node)
		if driver.Unknown(err) && !f.isMember(m.Session) {
			late[m.Session] = true
		}
		release()
	}
	if len(late) == 0 {
		f.heldNone("a join", err)
	}
	f.setup("join behind the late ones", f.settle(func() error {
		_, err := b.Join(f.ctx, f.newcomer(b, "after"))
		return err
	}))
	f.never(ruleM3, func() string {
		for _, m := range f.state().Members {
			if late[m.Session] {
				return "a join that was given up, and arrived after a later join under its label, created its session"
			}
		}
		return ""
	})
}

// delivered waits until the requests that a Wire released have arrived. To detect their arrival, it
// sends a write under a fence that never existed, and waits for the answer.
func (f *fixture) delivered(m *member, shard driver.ShardID) {
	f.t.Helper()
	fence := driver.Fence{Shard: shard, Session: newID(), Token: 1}
	err := f.settle(func() error { return m.writeCtx(f.ctx, newWrite(fence, 1, appendOp("behind"))).Err })
	if !errors.Is(err, driver.ErrFenced) {
		f.setup("write behind what was held", fmt.Errorf("under a fence that never was: %v; want ErrFenced", err))
	}
}

func repeatedJoinFails(f *fixture) {
	for _, end := range []string{"alive", "closed", "evicted", "superseded"} {
		b := f.open()
		m := f.newcomer(b, "n-"+end)
		s, err := f.tryJoin(b, m)
		f.setup("join", err)
		first := &member{Session: s, f: f, b: b, node: m.Node}
		switch end {
		case "closed":
			f.setup("close", s.Close(f.ctx))
		case "evicted":
			f.evict(first)
		case "superseded":
			next := f.newcomer(b, m.Node)
			next.Supersede = true
			_, err := f.tryJoin(b, next)
			f.setup("supersede", err)
			if f.isMember(m.Session) {
				f.fail(ruleM3, "superseding left session %s alive", m.Session)
			}
		}
		for _, again := range []driver.Backend{b, f.open()} {
			_, err = f.tryJoin(again, m)
			if !errors.Is(err, driver.ErrConflict) {
				f.fail(ruleM3, "joining again under an id that is %s answers %v; want ErrConflict", end, err)
			}
		}
		if alive := f.isMember(m.Session); alive != (end == "alive") {
			f.fail(ruleM3, "after joining again under an id that is %s, its record exists: %v", end, alive)
		}
	}
}

func racingJoins(f *fixture) {
	const n = 4
	backends := make([]driver.Backend, n)
	for i := range backends {
		backends[i] = f.open()
	}
	f.rounds(20, time.Second, func(i int) { // like the processes on a host that is starting
		errs := make([]error, 2*n)
		together(times(len(errs), func(k int) {
			_, errs[k] = backends[k%n].Join(f.ctx, f.newcomer(backends[k%n], fmt.Sprintf("host-%d", i)))
		})...)
		f.must(ruleM3, errors.Join(errs...) == nil, "%d joins at once under one label answer %v; want success", len(errs), errs)
	})
	f.rounds(100, time.Second, func(i int) {
		node := fmt.Sprintf("n%d", i)
		members := make([]driver.Member, n)
		errs := make([]error, n)
		together(times(n, func(k int) {
			members[k] = f.newcomer(backends[k], node)
			members[k].Supersede = true
			_, errs[k] = backends[k].Join(f.ctx, members[k])
		})...)
		alive := map[driver.SessionID]bool{}
		for _, m := range f.state().Members {
			alive[m.Session] = m.Node == node
		}
		joined, living := 0, 0
		for k, err := range errs {
			switch {
			case err == nil:
				joined++
			case !driver.NotApplied(err):
				f.fail(ruleM3, "a join that raced others answers %v; want success or ErrRetry", err)
			case alive[members[k].Session]:
				f.fail(ruleM3, "a join that answered %v created its session", err)
			}
			if alive[members[k].Session] {
				living++
			}
		}
		if joined == 0 || living != 1 {
			f.fail(ruleM3, "of %d superseding joins at once under one label %d succeeded and %d sessions live; want at least 1, and 1", n, joined, living)
		}
	})
}

func beatChangesVersion(f *fixture) {
	m := f.join("a")
	last := driver.Version(0)
	for i := range 20 {
		if i > 0 {
			m.beat()
		}
		v, found := f.beatOf(m.ID())
		f.must(ruleM1, found && v > 0, "a live session's record has version %d (found: %v); want a positive one", v, found)
		f.must(ruleM1, v > last, "heartbeat %d gave version %d after %d; want a greater one", i, v, last)
		last = v
	}
}

func beatNeedsOnlyExistence(f *fixture) {
	b, w := f.wire("DropReplies", func(w *Wire) bool { return w.DropReplies != nil })
	m := f.joinOn(b, "a")
	m.beat()
	for range 3 {
		end := w.DropReplies()
		ctx, cancel := context.WithTimeout(f.ctx, 50*time.Millisecond)
		err := m.Beat(ctx)
		cancel()
		end()
		f.must(ruleM1, err != nil, "a heartbeat without a reply succeeded")
		err = f.settle(func() error { return m.Beat(f.ctx) })
		switch {
		case errors.Is(err, driver.ErrStoreChanged):
			f.fail(ruleI1, "the heartbeat after one whose reply was lost answers %v", err)
		case err != nil:
			f.fail(ruleM1, "the heartbeat after one whose reply was lost answers %v", err)
		}
	}
}

// settle repeats a harmless call, up to a limit, while its outcome is unknown, for example after a
// fault that broke connections.
func (f *fixture) settle(call func() error) error {
	var err error
	f.eventually(f.patience(), func() bool {
		err = call()
		return err == nil || driver.NotApplied(err) && !errors.Is(err, driver.ErrRetry)
	})
	return err
}

func beatAfterCancelledBeat(f *fixture) {
	m := f.join("a")
	f.rounds(200, 500*time.Millisecond, func(int) {
		ctx, cancel := context.WithCancel(f.ctx)
		var mu sync.Mutex
		var errs []error
		beat := func(ctx context.Context) func() {
			return func() {
				err := m.Beat(ctx)
				mu.Lock()
				defer mu.Unlock()
				errs = append(errs, err)
			}
		}
		together(beat(ctx), beat(ctx), beat(ctx), cancel)
		errs = append(errs, f.settle(func() error { return m.Beat(f.ctx) }))
		for i, err := range errs {
			switch {
			case errors.Is(err, driver.ErrStoreChanged):
				f.fail(ruleI1, "overlapping heartbeats answer %v in a store that nobody touched", err)
			case errors.Is(err, driver.ErrSessionLost), i == len(errs)-1 && err != nil:
				f.fail(ruleM1, "a heartbeat beside cancelled ones answers %v", err)
			}
		}
	})
}

func beatAfterEvictIsLost(f *fixture) {
	f.lost("evicted", f.evict)
}

func beatAfterCloseIsLost(f *fixture) {
	f.lost("closed", func(m *member) {
		f.setup("close", m.Close(f.ctx))
		if err := m.Close(f.ctx); err != nil {
			f.broken(ruleM1, "closing a session whose record is gone answers %v", err)
		}
	})
}

// lost ends a session, and then checks what its methods return.
func (f *fixture) lost(how string, end func(*member)) {
	f.t.Helper()
	m, other := f.join("a"), f.join("b")
	held, given := m.acquire("held"), m.acquire("given")
	end(m)
	version, _ := f.beatOf(other.ID())
	for range 2 {
		for call, err := range map[string]error{
			"Beat":     m.Beat(f.ctx),
			"Acquire":  m.claim(driver.Claim{Shard: "new"}).Err,
			"Transfer": m.transfer(held, other.ID()).Err,
			"Evict":    m.suspect(other.ID(), version).Err,
			"Update":   m.update(driver.MemberState{Update: 1}),
		} {
			if !errors.Is(err, driver.ErrSessionLost) {
				f.broken(ruleM1, "%s of a session that was %s answers %v; want ErrSessionLost", call, how, err)
			}
		}
	}
	if err := m.Release(f.ctx, []driver.Fence{given}); err != nil {
		f.broken(ruleM1, "Release of a session that was %s answers %v; want a successful no-op", how, err)
	}
	if r := m.write(held, 1, appendOp("x")); r.Err != nil {
		f.broken(ruleM1, "Commit of a session that was %s, under a fence that nobody superseded, answers %v", how, r.Err)
	}
	if !f.isMember(other.ID()) {
		f.broken(ruleM1, "a session that was %s evicted another", how)
	}
	next := other.acquire("held")
	if r := m.write(held, 2, appendOp("y")); !errors.Is(r.Err, driver.ErrFenced) {
		f.broken(ruleM1, "Commit of a session that was %s answers %v after token %d was granted; want ErrFenced", how, r.Err, next.Token)
	}
}

func evictExactVersionOnly(f *fixture) {
	a, b := f.join("a"), f.join("b")
	old, _ := f.beatOf(b.ID())
	b.beat()
	now, _ := f.beatOf(b.ID())
	absent := newID()
	res, err := a.Evict(f.ctx, []driver.Suspect{{Session: b.ID(), Version: old}, {Session: absent, Version: now}})
	f.must(ruleM2, err == nil && len(res) == 2, "evicting a stale version and an absent session answers %v and %d results", err, len(res))
	f.must(ruleM2, res[0] == driver.EvictResult{Current: now}, "evicting version %d of a record that has version %d gives %+v", old, now, res[0])
	f.must(ruleM2, res[1] == driver.EvictResult{}, "evicting a session without a record gives %+v", res[1])
	f.must(ruleM2, b.Beat(f.ctx) == nil, "a session is lost although only an old version of its record was evicted")

	now, _ = f.beatOf(b.ID())
	r := a.suspect(b.ID(), now)
	f.must(ruleM2, r.Err == nil && r.Evicted, "evicting the current version gives %+v", r)
	f.must(ruleM2, !f.isMember(b.ID()), "an evicted session is still a member")
	r = a.suspect(b.ID(), now)
	f.must(ruleM2, r == driver.EvictResult{}, "evicting a second time gives %+v", r)
}

func evictLosesToBeat(f *fixture) {
	a, backend := f.join("a"), f.open()
	b := f.joinOn(backend, "b")
	f.rounds(1000, time.Second, func(int) {
		seen, found := f.beatOf(b.ID())
		f.must(ruleM1, found, "a session that nobody evicted has no record")
		var beat error
		var evict driver.EvictResult
		together(
			func() { beat = b.Beat(f.ctx) },
			func() { evict = a.suspect(b.ID(), seen) },
		)
		switch {
		case beat == nil && evict.Evicted:
			f.fail(ruleM2, "version %d was evicted and a heartbeat replaced it", seen)
		case beat == nil && evict.Err == nil:
		case errors.Is(beat, driver.ErrSessionLost) && evict.Evicted:
			b = f.joinOn(backend, "b")
		case errors.Is(beat, driver.ErrRetry):
			if evict.Evicted {
				b = f.joinOn(backend, "b")
			}
		default:
			f.fail(ruleM1, "a heartbeat and an evict at once answer %v and %+v: one of them should have won", beat, evict)
		}
	})
}

func lossIsExplained(f *fixture) {
	evicted, superseded, closed := f.join("a"), f.join("b"), f.join("c")
	if _, ok := evicted.Session.(driver.Explainer); !ok {
		f.skip("the backend's sessions do not say how they ended (driver.Explainer)")
	}
	f.evict(evicted)
	b := f.open()
	next := f.newcomer(b, "b")
	next.Supersede = true
	_, err := f.tryJoin(b, next)
	f.setup("supersede", err)
	f.setup("close", closed.Close(f.ctx))
	for _, c := range []struct {
		m    *member
		want driver.SessionLostError
	}{
		{evicted, driver.SessionLostError{Cause: driver.LossEvicted, By: f.observer.ID(), Node: "observer"}},
		{superseded, driver.SessionLostError{Cause: driver.LossSuperseded, By: next.Session, Node: "b"}},
		{closed, driver.SessionLostError{Cause: driver.LossClosed}},
	} {
		c.want.Session = c.m.ID()
		err := c.m.Beat(f.ctx)
		var lost *driver.SessionLostError
		f.must(ruleM1, errors.Is(err, driver.ErrSessionLost), "the heartbeat of a session that was %s answers %v", c.want.Cause, err)
		f.must(ruleM1, errors.As(err, &lost) && lost.Session == c.m.ID(), "the heartbeat of a session that was %s answers %#v; want a *SessionLostError of it", c.want.Cause, err)
		got := *c.m.Session.(driver.Explainer).Explain(f.ctx)
		f.must(ruleM1, got == c.want, "a session that was %s explains it as %+v; want %+v", c.want.Cause, got, c.want)
	}
	// If the store does not answer, Explain returns in time, but with less information.
	ctx, cancel := context.WithCancel(f.ctx)
	cancel()
	got := evicted.Session.(driver.Explainer).Explain(ctx)
	f.must(ruleX1, got != nil && got.Session == evicted.ID(), "with a context that is done a lost session explains %+v", got)
}

func closeFreesAll(f *fixture) {
	a, b, c := f.join("a"), f.join("b"), f.join("c")
	fences := []driver.Fence{a.acquire("s1"), a.acquire("s2"), a.acquire("s3")}
	kept := c.acquire("kept")
	f.setup("close", a.Close(f.ctx))
	f.must(ruleM1, !f.isMember(a.ID()), "a closed session is still a member")
	for _, fence := range fences {
		r := b.claim(driver.Claim{Shard: fence.Shard, Seen: driver.Owner{Session: fence.Session, Token: fence.Token}})
		f.must(ruleA1, r.Err == nil, "claiming shard %q of a closed session answers %v", fence.Shard, r.Err)
	}
	r := b.claim(driver.Claim{Shard: "kept", Seen: driver.Owner{Session: c.ID(), Token: kept.Token}})
	f.must(ruleA1, errors.Is(r.Err, driver.ErrHeld), "after another session closed, a live one's shard can be claimed: %v", r.Err)
}

func (m *member) hold(n int) []driver.Fence {
	m.f.t.Helper()
	claims := make([]driver.Claim, n)
	for i := range claims {
		claims[i].Shard = driver.ShardID(fmt.Sprintf("many-%d", i))
	}
	res, err := m.Acquire(m.f.ctx, claims)
	m.f.setup("acquire many", err)
	fences := make([]driver.Fence, len(res))
	for i, r := range res {
		m.f.setup("acquire many", r.Err)
		fences[i] = r.Fence
	}
	return fences
}

func closeIsOneWrite(f *fixture) {
	m := f.join("a")
	m.hold(100)
	before := f.store.Calls()
	f.setup("close", m.Close(f.ctx))
	after := f.store.Calls()
	f.must(ruleM1, after.Writes-before.Writes == 1, "closing a session with 100 shards took %d writes; want 1", after.Writes-before.Writes)
}

func supersedeEndsFormer(f *fixture) {
	former, bystander := f.join("n"), f.join("other")
	fence, safe := former.acquire("s"), bystander.acquire("safe")

	b := f.open()
	next := f.newcomer(b, "n")
	next.Supersede = true
	s, err := f.tryJoin(b, next)
	f.must(ruleM3, err == nil, "a superseding join answers %v", err)
	restarted := &member{Session: s, f: f, b: b, node: "n"}
	f.must(ruleM3, !f.isMember(former.ID()), "the former session lives after a join under its label that supersedes")
	f.must(ruleM3, errors.Is(former.Beat(f.ctx), driver.ErrSessionLost), "a superseded session's heartbeat succeeds")
	r := restarted.claim(driver.Claim{Shard: "s", Seen: driver.Owner{Session: former.ID(), Token: fence.Token}})
	f.must(ruleM3, r.Err == nil, "the restarted process cannot have its shard back at once: %v", r.Err)
	f.must(ruleM3, f.isMember(bystander.ID()) && f.owner("safe") == driver.Owner{Session: bystander.ID(), Token: safe.Token},
		"superseding one label ended a session under another")

	beside := f.newcomer(b, "n")
	_, err = f.tryJoin(b, beside)
	f.must(ruleM3, err == nil, "a join without Supersede under a label in use answers %v", err)
	f.must(ruleM3, f.isMember(restarted.ID()), "a join without Supersede ended the session under its label")
}

func twoLiveSameNameNeverShare(f *fixture) {
	a, b := f.join("n"), f.join("n")
	fence := a.acquire("s")
	seen := driver.Owner{Session: a.ID(), Token: fence.Token}
	r := b.claim(driver.Claim{Shard: "s", Seen: seen})
	f.must(ruleA1, errors.Is(r.Err, driver.ErrHeld), "a second process with the same label claims a held shard: %v", r.Err)
	b.release(driver.Fence{Shard: "s", Session: b.ID(), Token: fence.Token})
	f.must(ruleA1, f.owner("s") == seen, "a release by a second process with the same label changed the record to %+v", f.owner("s"))
	f.setup("close", b.Close(f.ctx))
	f.must(ruleM3, a.Beat(f.ctx) == nil, "closing one of two sessions under a label ended the other")
}

func idNeverRevived(f *fixture) {
	b := f.open()
	me := f.newcomer(b, "a")
	s, err := f.tryJoin(b, me)
	f.setup("join", err)
	m := &member{Session: s, f: f, b: b, node: "a"}
	fence := m.acquire("s")
	f.evict(m)
	heir := f.join("heir")
	next := heir.acquire("s")

	for range 3 {
		f.must(ruleM1, errors.Is(m.Beat(f.ctx), driver.ErrSessionLost), "a heartbeat brought an evicted session back")
		m.claim(driver.Claim{Shard: "s", Seen: driver.Owner{Session: me.Session, Token: fence.Token}})
		m.claim(driver.Claim{Shard: "s2"})
		f.setup("release", m.Release(f.ctx, []driver.Fence{fence}))
		m.write(fence, 1, appendOp("x"))
	}
	_, err = f.tryJoin(f.open(), me)
	f.must(ruleM3, errors.Is(err, driver.ErrConflict), "another process joins under an evicted id: %v; want ErrConflict", err)
	f.must(ruleM3, !f.isMember(me.Session), "an evicted id is a member again")
	f.must(ruleM3, f.owner("s") == driver.Owner{Session: heir.ID(), Token: next.Token}, "an evicted session took its shard back: %+v", f.owner("s"))
}

func idNeverRevivedOnReconnect(f *fixture) {
	b, w := f.wire("Cut", func(w *Wire) bool { return w.Cut != nil })
	m := f.joinOn(b, "a")
	m.beat()
	heal := w.Cut()
	err := m.Beat(f.ctx)
	if err == nil {
		f.setup("cut the connection", errors.New("a heartbeat succeeded"))
	}
	f.must(ruleM1, !errors.Is(err, driver.ErrSessionLost), "a heartbeat without a connection answers %v, which says that the session has no record", err)
	f.evict(m)
	heal()
	err = f.settle(func() error { return m.Beat(f.ctx) })
	f.must(ruleM1, errors.Is(err, driver.ErrSessionLost), "the first heartbeat after the connection came back answers %v; the session was evicted meanwhile", err)
	f.must(ruleM3, !f.isMember(m.ID()), "the connection that came back brought an evicted session back")
}

func beatCostConstant(f *fixture) {
	m := f.join("a")
	m.acquire("s")
	cost := func() Calls {
		m.beat()
		before := f.store.Calls()
		for range 10 {
			m.beat()
		}
		after := f.store.Calls()
		return Calls{Reads: after.Reads - before.Reads, Writes: after.Writes - before.Writes}
	}
	one := cost()
	m.hold(300)
	many := cost()
	f.must(ruleM1, many == one, "10 heartbeats cost %+v calls with 1 shard and %+v with 301", one, many)
	f.must(ruleM1, one.Writes == 10, "10 heartbeats cost %d writes; want 10", one.Writes)
}

func beatsNotBehindWrites(f *fixture) {
	m := f.join("a")
	limits := m.b.Info().Limits
	const writers = 32
	fences := m.hold(writers)
	payload := make([]byte, 4096)
	if limits.WriteBytes > 0 {
		payload = payload[:min(len(payload), limits.WriteBytes)]
	}
	machine := f.gauge(ruleE4)
	ctx, stop := context.WithCancel(f.ctx)
	var load sync.WaitGroup
	var busy atomic.Int64
	for _, fence := range fences {
		load.Go(func() {
			// The pause lets a store in this process run.
			pace := time.NewTicker(time.Millisecond)
			defer pace.Stop()
			for n := driver.WriteNo(1); ctx.Err() == nil; <-pace.C {
				r := m.writeCtx(ctx, newWrite(fence, n,
					driver.Op{Kind: driver.OpAppend, Value: payload},
					trim(max(0, driver.Seq(n)-2))))
				if r.Err == nil {
					busy.Add(1)
					n++
				}
			}
		})
	}
	loaded := f.eventually(3*f.patience(), func() bool { return busy.Load() >= writers })
	// A heartbeat is due after each third of the TTL, and may take a third of the TTL.
	bound := max(limits.MinTTL, time.Second) / 3
	beat := timed(10, m.beat)
	ping := timed(10, func() {
		_, err := m.b.Get(f.ctx, driver.PingShard, "0")
		f.setup("ping the store", err)
	})
	stop()
	load.Wait()
	if !loaded {
		f.setup("load the store", fmt.Errorf("in %v the writers were not answered once each", 3*f.patience()))
	}
	machine.AtMost(fmt.Sprintf("half of the heartbeats beside %d writers", writers), beat, bound)
	machine.AtMost(fmt.Sprintf("half of the pings beside %d writers", writers), ping, bound)
}

func missingIdentityRefused(f *fixture) {
	for range 2 {
		b, err := f.tryOpen(f.store.OpenExisting)
		f.must(ruleI1, err != nil, "a namespace that was never created opens without Create: %+v", b)
		_, missing := errors.AsType[*driver.MissingError](err)
		f.must(ruleI1, missing, "a namespace that was never created answers %v; want a MissingError, which names tenure init", err)
	}
	id := f.open().Info().StoreID
	f.must(ruleI1, id != "", "Info().StoreID is empty")
	b, err := f.tryOpen(f.store.OpenExisting)
	f.must(ruleI1, err == nil, "a namespace that exists does not open without Create: %v", err)
	f.must(ruleI1, b.Info().StoreID == id && f.open().Info().StoreID == id, "the namespace's identity changed from %q to %q", id, b.Info().StoreID)
}
