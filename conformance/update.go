package conformance

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/tenure-go/tenure/core/driver"
)

func updateCases() []testCase {
	const area = "Membership"
	return []testCase{
		{Area: area, Property: "UpdateTellsAll", Rules: []rule{ruleM4, ruleO1}, run: updateTellsAll,
			Shows: "others see an update; the member's other fields stay"},
		{Area: area, Property: "UpdateIsNoBeat", Rules: []rule{ruleM4, ruleM1, ruleM2}, run: updateIsNoBeat,
			Shows: "an update changes no version, wakes no waiter, prevents no eviction"},
		{Area: area, Property: "UpdateBesideCalls", Rules: []rule{ruleM4, ruleM1, ruleA1}, run: updateBesideCalls,
			Shows: "heartbeats, claims and hand-overs succeed beside updates of their session"},
		{Area: area, Property: "UpdatesInOrder", Rules: []rule{ruleM4}, run: updatesInOrder,
			Shows: "older and repeated updates have no effect; a repeated one succeeds"},
		{Area: area, Property: "LateUpdateHasNoEffect", Rules: []rule{ruleM4}, Needs: []string{"Wire.Hold"},
			run:   lateUpdate,
			Shows: "an update that arrives late does not undo a later one"},
		{Area: area, Property: "UpdateLostReply", Rules: []rule{ruleM4, ruleE1}, Needs: []string{"Wire.DropReplies"},
			run:   updateLostReply,
			Shows: "an update's lost reply means unknown; repeating it succeeds"},
		{Area: area, Property: "UpdateRevivesNothing", Rules: []rule{ruleM4, ruleM1, ruleM3}, run: updateRevivesNothing,
			Shows: "an update prevents no racing eviction and revives no session"},
		{Area: area, Property: "UpdateRefusedBeforeSend", Rules: []rule{ruleM4, ruleE1}, run: updateRefused,
			Shows: "an update over the limits is refused before any I/O"},
	}
}

// update repeats an update until its outcome is known.
func (m *member) update(st driver.MemberState) (err error) {
	m.f.retry(func() error {
		err = m.Update(m.f.ctx, st)
		return err
	})
	return err
}

// The update must succeed.
func (m *member) updated(st driver.MemberState) {
	m.f.t.Helper()
	m.f.must(ruleM4, m.update(st) == nil, "update %d of a live session fails", st.Update)
}

// The result is a member from a full view, if the view contains it.
func (f *fixture) found(id driver.SessionID) (driver.Member, bool) {
	f.t.Helper()
	for _, m := range f.state().Members {
		if m.Session == id {
			return m, true
		}
	}
	return driver.Member{}, false
}

func sameState(a, b driver.MemberState) bool {
	return a.Priority == b.Priority && a.Weight == b.Weight && a.Draining == b.Draining && a.Update == b.Update &&
		maps.Equal(a.Meta, b.Meta)
}

// stateIs checks that the record of a live session has the given state.
func (f *fixture) stateIs(id driver.SessionID, want driver.MemberState, after string) {
	f.t.Helper()
	got, ok := f.found(id)
	f.must(ruleM4, ok, "after %s a session that nobody ended is no member", after)
	f.must(ruleM4, sameState(got.MemberState, want), "after %s the member has %+v; want %+v", after, got.MemberState, want)
}

func updateTellsAll(f *fixture) {
	b := f.open()
	joined := f.newcomer(b, "node-1.example")
	joined.Priority, joined.Weight, joined.Meta = 2, 7, map[string]string{"addr": "10.0.0.1:99", "old": "x"}
	s, err := f.tryJoin(b, joined)
	f.setup("join", err)
	m := &member{Session: s, f: f, b: b, node: joined.Node}
	other := f.open()
	view, err := other.Observe(f.ctx, driver.ObserveQuery{})
	f.setup("observe", err)
	for i, want := range []driver.MemberState{
		{Priority: -3, Weight: 0, Meta: map[string]string{"addr": "\"ü\"", "empty": ""}, Draining: true, Update: 1},
		{Update: 2},
		{Priority: 1 << 30, Weight: 1 << 30, Draining: true, Update: driver.MaxCount - 1},
		{Weight: 1, Update: driver.MaxCount},
	} {
		m.updated(want)
		got, seen := driver.Member{}, false
		for !seen {
			ctx, cancel := context.WithTimeout(f.ctx, 10*time.Second)
			next, err := other.Observe(ctx, driver.ObserveQuery{Since: view.Cursor})
			cancel()
			f.must(ruleO1, err == nil, "waiting for an update to be in the view answers %v", err)
			view = next
			for _, v := range view.Members {
				if v.Session == m.ID() {
					got, seen = v, v.Update == want.Update
				}
			}
		}
		f.must(ruleM4, sameState(got.MemberState, want), "update %d to %+v is seen as %+v", i, want, got.MemberState)
		f.must(ruleM4, got.Node == joined.Node && got.TTL == joined.TTL && got.Supersede == joined.Supersede,
			"update %d made %+v of a member that joined as %+v", i, got, joined)
		f.stateIs(m.ID(), want, "an update")
	}
}

func updateIsNoBeat(f *fixture) {
	m := f.join("a")
	m.beat()
	before, _ := f.beatOf(m.ID())
	other := f.read()
	view, err := other.Observe(f.ctx, driver.ObserveQuery{})
	f.setup("observe", err)
	asked := []driver.Beat{{Session: m.ID(), Version: before}}
	for n := range driver.UpdateNo(5) {
		m.updated(driver.MemberState{Weight: int32(n), Update: n + 1})
	}
	for last := driver.UpdateNo(0); last < 5; {
		view, err = other.Observe(f.ctx, driver.ObserveQuery{Since: view.Cursor, Beats: asked})
		f.setup("observe an update", err)
		f.must(ruleM4, len(view.Beats) == 0, "an update is reported as the heartbeats %+v", view.Beats)
		for _, v := range view.Members {
			if v.Session == m.ID() {
				last = v.Update
			}
		}
	}
	after, found := f.beatOf(m.ID())
	f.must(ruleM4, found && after == before, "after 5 updates the heartbeat's version is %d; it was %d", after, before)
	m.beat()
	next, _ := f.beatOf(m.ID())
	f.must(ruleM1, next > before, "a heartbeat behind updates gave version %d after %d", next, before)
	m.updated(driver.MemberState{Update: 6})
	r := f.join("b").suspect(m.ID(), next)
	f.must(ruleM2, r.Err == nil && r.Evicted, "evicting the version of the last heartbeat, with an update since, gives %+v",
		r)
	f.must(ruleM4, errors.Is(m.update(driver.MemberState{Update: 7}), driver.ErrSessionLost),
		"an evicted session was updated")
}

func updateBesideCalls(f *fixture) {
	m, other, heir := f.join("a"), f.join("b"), f.join("c")
	held := m.acquire("held")
	number := driver.UpdateNo(0)
	f.rounds(100, time.Second, func(i int) {
		number++
		shard := driver.ShardID(fmt.Sprintf("s%d", i))
		var update, beat error
		var claimed, stolen driver.AcquireResult
		together(
			func() { update = m.update(driver.MemberState{Weight: int32(i), Update: number}) },
			func() { beat = m.Beat(f.ctx) },
			func() { claimed = m.claim(driver.Claim{Shard: shard}) },
			func() {
				stolen = other.claim(driver.Claim{Shard: "held",
					Seen: driver.Owner{Session: m.ID(), Token: held.Token}})
			},
		)
		f.must(ruleM4, update == nil, "an update beside other calls of its session answers %v", update)
		f.must(ruleM1, beat == nil, "a heartbeat beside an update answers %v", beat)
		f.must(ruleM4, claimed.Err == nil, "a claim beside an update of the claimer answers %v", claimed.Err)
		f.must(ruleA1, errors.Is(stolen.Err, driver.ErrHeld), "a claim on a shard whose holder is being updated answers %v",
			stolen.Err)
		r := heir.transfer(heir.give(claimed.Fence, m), heir.ID())
		f.must(ruleM4, r.Err == nil, "handing over to oneself answers %v", r.Err)
	})
	f.stateIs(m.ID(), driver.MemberState{Weight: int32(number - 1), Update: number}, "updates beside other calls")
}

// The lease moves to m, whose fence is returned.
func (m *member) give(fence driver.Fence, from *member) driver.Fence {
	m.f.t.Helper()
	r := from.transfer(fence, m.ID())
	m.f.must(ruleM4, r.Err == nil, "a hand-over by a session that was updated answers %v", r.Err)
	return r.Fence
}

func updatesInOrder(f *fixture) {
	m := f.join("a")
	third := driver.MemberState{Priority: 3, Meta: map[string]string{"n": "3"}, Update: 3}
	m.updated(third)
	for _, n := range []driver.UpdateNo{1, 2} {
		err := m.update(driver.MemberState{Weight: 9, Draining: true, Update: n})
		f.must(ruleM4, errors.Is(err, driver.ErrConflict), "update %d after update 3 answers %v; want ErrConflict", n, err)
		f.stateIs(m.ID(), third, fmt.Sprintf("update %d behind update 3", n))
	}
	f.must(ruleM4, m.update(driver.MemberState{Weight: 9, Update: 3}) == nil, "repeating the last update fails")
	f.stateIs(m.ID(), third, "repeating the last update")
	view := f.state()
	f.must(ruleM4, m.update(third) == nil, "repeating the last update fails")
	fifth := driver.MemberState{Weight: 5, Update: 5}
	m.updated(fifth)
	next, err := f.read().Observe(f.ctx, driver.ObserveQuery{Since: view.Cursor})
	f.must(ruleO1, err == nil && !next.Reset && len(next.Members) == 1,
		"after an update the view has %+v, %v; want one member", next, err)
	f.stateIs(m.ID(), fifth, "update 5")

	racing := f.join("b")
	f.rounds(50, time.Second, func(i int) {
		n := driver.UpdateNo(2*i + 1)
		var low, high error
		together(
			func() { low = racing.update(driver.MemberState{Weight: 1, Update: n}) },
			func() { high = racing.update(driver.MemberState{Weight: 2, Update: n + 1}) },
		)
		f.must(ruleM4, high == nil, "the higher of two updates at once answers %v", high)
		f.must(ruleM4, low == nil || errors.Is(low, driver.ErrConflict),
			"the lower of two updates at once answers %v; want success or ErrConflict", low)
		f.stateIs(racing.ID(), driver.MemberState{Weight: 2, Update: n + 1}, "two updates at once")
	})
}

func lateUpdate(f *fixture) {
	b, w := f.wire("Hold", func(w *Wire) bool { return w.Hold != nil })
	m := f.joinOn(b, "a")
	number, unknown := driver.UpdateNo(0), 0
	var tried error
	var last driver.MemberState
	for range 25 {
		release := w.Hold()
		tried = f.held(30*time.Millisecond, func(ctx context.Context) error {
			return m.Update(ctx, driver.MemberState{Weight: 1, Draining: true, Update: number + 1})
		})
		if driver.Unknown(tried) {
			unknown++
		}
		last = driver.MemberState{Weight: 2, Update: number + 2}
		number += 2
		var err error
		together(release, func() {
			err = f.settle(func() error { return m.Update(f.ctx, last) })
		})
		f.must(ruleM4, err == nil, "an update behind one that was given up answers %v", err)
		f.stateIs(m.ID(), last, "an update that overtook another")
		if unknown == 0 && driver.NotApplied(tried) {
			break // the next update would not be applied either
		}
	}
	if unknown == 0 {
		f.heldNone("an update", tried)
	}
	f.never(ruleM4, func() string {
		if got, _ := f.found(m.ID()); !sameState(got.MemberState, last) {
			return fmt.Sprintf("an update that was given up has replaced a later one: the member has %+v",
				got.MemberState)
		}
		return ""
	})
}

func updateLostReply(f *fixture) {
	b, w := f.wire("DropReplies", func(w *Wire) bool { return w.DropReplies != nil })
	m := f.joinOn(b, "a")
	m.beat()
	for n := range driver.UpdateNo(3) {
		want := driver.MemberState{Weight: int32(n), Draining: n%2 == 0, Update: n + 1}
		end := w.DropReplies()
		ctx, cancel := context.WithTimeout(f.ctx, 50*time.Millisecond)
		err := m.Update(ctx, want)
		cancel()
		end()
		f.must(ruleE1, err != nil, "an update without a reply succeeded")
		err = f.settle(func() error { return m.Update(f.ctx, want) })
		f.must(ruleM4, err == nil, "an update that is repeated because its reply was lost answers %v", err)
		f.stateIs(m.ID(), want, "a repeated update")
	}
}

func updateRevivesNothing(f *fixture) {
	a, backend := f.join("a"), f.open()
	f.rounds(100, time.Second, func(i int) {
		b := f.joinOn(backend, fmt.Sprint("b", i%3))
		seen, _ := f.beatOf(b.ID())
		var update error
		var evict driver.EvictResult
		together(
			func() { update = b.update(driver.MemberState{Weight: 3, Update: 1}) },
			func() { evict = a.suspect(b.ID(), seen) },
		)
		f.must(ruleM4, evict.Err == nil && evict.Evicted, "an eviction beside an update gives %+v: an update is no sign "+
			"of life", evict)
		f.must(ruleM4, update == nil || errors.Is(update, driver.ErrSessionLost), "an update beside an eviction answers %v",
			update)
		for n := range driver.UpdateNo(2) {
			err := b.update(driver.MemberState{Update: 5 + n})
			f.must(ruleM4, errors.Is(err, driver.ErrSessionLost),
				"the update of an evicted session answers %v; want ErrSessionLost", err)
		}
		f.must(ruleM3, !f.isMember(b.ID()), "an update brought an evicted session back")
	})
}

func updateRefused(f *fixture) {
	m := f.join("a")
	want := driver.MemberState{Weight: 1, Update: 1}
	m.updated(want)
	many := make(map[string]string)
	for i := range driver.MaxMetaEntries + 1 {
		many[fmt.Sprint("k", i)] = ""
	}
	var before Calls
	if f.store.Calls != nil {
		before = f.store.Calls()
	}
	for what, st := range map[string]driver.MemberState{
		"no number":              {Weight: 2},
		"a negative number":      {Weight: 2, Update: -1},
		"too high a number":      {Weight: 2, Update: driver.MaxCount + 1},
		"a negative weight":      {Weight: -1, Update: 2},
		"too many metadata":      {Meta: many, Update: 2},
		"metadata without a key": {Meta: map[string]string{"": "x"}, Update: 2},
		"too long metadata":      {Meta: map[string]string{"k": strings.Repeat("x", driver.MaxMetaBytes)}, Update: 2},
	} {
		err := m.Update(f.ctx, st)
		f.must(ruleM4, errors.Is(err, driver.ErrInvalid) || errors.Is(err, driver.ErrTooLarge),
			"an update with %s answers %v; want ErrInvalid or ErrTooLarge", what, err)
	}
	if f.store.Calls != nil {
		after := f.store.Calls()
		f.must(ruleM4, after == before, "updates outside the limits reached the store: %+v before, %+v after", before,
			after)
	}
	f.stateIs(m.ID(), want, "updates that were refused")
	largest := driver.MemberState{Meta: map[string]string{"k": strings.Repeat("x", driver.MaxMetaBytes-1)}, Update: 2}
	m.updated(largest)
	f.stateIs(m.ID(), largest, "the largest update")
}
