package core

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenure-go/tenure/core/driver"
)

// told returns the state of a node's member, as this member sees it.
func (m *member) told(node string) (st MemberState) {
	for _, x := range m.View().Members {
		if x.Node == node {
			st = x.MemberState
		}
	}
	return st
}

func (w *world) tells(m *member, node string, want MemberState) {
	w.Helper()
	got := m.told(node)
	if got.Priority != want.Priority || got.Weight != want.Weight || got.Draining != want.Draining || !maps.Equal(got.Meta, want.Meta) {
		w.Errorf("the view of %s has %+v, want %+v", node, got, want)
	}
}

func TestUpdateIsSeen(t *testing.T) {
	bubble(t, func(w *world) {
		a := w.member("a", func(o *Options) { o.Priority, o.Meta = 1, map[string]string{"k": "v"} })
		b := w.member("b")
		var h leases
		w.must(a.Contend(h.hold, "s", "t"))
		w.must(b.Contend(h.hold, "s", "t"))
		h.await(w, 2)
		w.eventually("both see each other", func() bool { return len(a.View().Members) == 2 && len(b.View().Members) == 2 })
		session := a.View().Session
		w.must(a.Update(w.Context(), func(st *MemberState) { st.Weight, st.Meta["k"] = 9, "w" }))
		w.must(a.Update(w.Context(), func(st *MemberState) { st.Draining, st.Priority = true, -5 }))
		want := MemberState{Priority: -5, Weight: 9, Meta: map[string]string{"k": "w"}, Draining: true}
		synctest.Wait()
		w.tells(a, "a", want)
		w.tells(b, "a", want)
		if a.View().Session != session || h.count() != 2 {
			w.Errorf("after updates the session is %s and was %s; %d grants, want 2", a.View().Session, session, h.count())
		}
		if got := b.said("peer a updated"); len(got) < 1 || len(got) > 2 {
			w.Errorf("hooks say %q, want two updates, which may be merged", got)
		}
		before := w.writes(a)
		w.must(a.Update(w.Context(), func(st *MemberState) { st.Weight = 9 }))
		if after := w.writes(a); after != before {
			w.Errorf("an update that changes nothing made %d calls", after-before)
		}
		err := a.Update(w.Context(), func(st *MemberState) { st.Weight = -1 })
		if !errors.Is(err, ErrInvalid) {
			w.Errorf("a negative weight answers %v, want ErrInvalid", err)
		}
		w.tells(a, "a", want)
		w.must(a.end())
		if err := a.Update(w.Context(), func(*MemberState) {}); !errors.Is(err, ErrStopped) {
			w.Errorf("after the end of Run an update answers %v, want ErrStopped", err)
		}
	})
}

// writes returns the number of a member's updates in the store's order.
func (w *world) writes(m *member) driver.UpdateNo { return m.told("a").Update }

// TestUpdateOutlivesTheSession: the next join publishes the last state, even if there was no
// session yet.
func TestUpdateOutlivesTheSession(t *testing.T) {
	bubble(t, func(w *world) {
		a, b := w.newMember("a"), w.member("b")
		w.must(a.Update(w.Context(), func(st *MemberState) { st.Weight = 3 }))
		a.run()
		var h leases
		w.must(b.Contend(h.hold, "other"))
		w.must(a.Contend(h.hold, "s"))
		h.await(w, 2)
		w.eventually("a is seen", func() bool { return b.told("a").Weight == 3 })
		w.must(a.Update(w.Context(), func(st *MemberState) { st.Draining = true }))
		first := a.View().Session
		a.tap.onBeat(func() error { return driver.ErrSessionLost })
		w.eventually("the session is lost", func() bool { return a.View().Session != first })
		w.must(a.Update(w.Context(), func(st *MemberState) { st.Weight = 4 }))
		a.tap.onBeat(nil)
		w.eventually("a has joined again", func() bool {
			s := a.View().Session
			st := b.told("a")
			return s != "" && s != first && st.Weight == 4 && st.Draining
		})
	})
}

// TestUpdateIsRepeated: a failed or unanswered update is repeated until the store has it, even if
// the caller stops waiting.
func TestUpdateIsRepeated(t *testing.T) {
	bubble(t, func(w *world) {
		a, b := w.member("a"), w.member("b")
		var h leases
		w.must(b.Contend(h.hold, "other"))
		w.must(a.Contend(h.hold, "s"))
		h.await(w, 2)
		var calls atomic.Int64
		down := errors.New("the store is away")
		a.tap.onUpdate(func(send func() error) error {
			if calls.Add(1) == 1 {
				_ = send() // the reply is lost
			}
			return down
		})
		ctx, cancel := context.WithTimeout(w.Context(), ttl)
		err := a.Update(ctx, func(st *MemberState) { st.Weight = 5 })
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, down) {
			w.Errorf("an update without an answer: %v, want that time was up, and why", err)
		}
		done := make(chan error, 1)
		go func() { done <- a.Update(w.Context(), func(st *MemberState) { st.Draining = true }) }()
		time.Sleep(3 * ttl)
		if n := calls.Load(); n < 3 || n > 60 {
			w.Errorf("%d calls, want some, and not many", n)
		}
		w.tells(b, "a", MemberState{Weight: 5})
		a.tap.onUpdate(nil)
		w.must(<-done)
		synctest.Wait()
		w.tells(b, "a", MemberState{Weight: 5, Draining: true})
	})
}

// TestUpdatedPriorityDecides: of two members that want a free shard, the one with the higher
// current priority claims it first.
func TestUpdatedPriorityDecides(t *testing.T) {
	bubble(t, func(w *world) {
		a, b, c := w.member("a"), w.member("b"), w.member("c")
		var held, ha, hb leases
		names := shardNames(20)
		w.must(c.Contend(held.hold, names...))
		held.await(w, len(names))
		w.must(a.Contend(ha.hold, names...))
		w.must(b.Contend(hb.hold, names...))
		w.eventually("all see each other", func() bool {
			return !slices.ContainsFunc([]*member{a, b, c}, func(m *member) bool { return len(m.View().Members) != 3 })
		})
		w.must(b.Update(w.Context(), func(st *MemberState) { st.Priority = 1 }))
		synctest.Wait()
		w.must(c.Withdraw(w.Context(), names...))
		hb.await(w, len(names))
		if ha.count() != 0 {
			w.Errorf("a has got %d shards although b has the higher priority", ha.count())
		}
	})
}

func TestUpdateDelaysNoHeartbeat(t *testing.T) {
	bubble(t, func(w *world) {
		m := w.member("a")
		var h leases
		w.must(m.Contend(h.hold, "s"))
		l := h.await(w, 1)
		w.must(m.Update(w.Context(), func(st *MemberState) {
			time.Sleep(5 * ttl)
			st.Weight = 3
		}))
		if err := l.Err(); err != nil || h.count() != 1 {
			w.Errorf("after a slow change: %v, %d grants; want the first lease to be valid", err, h.count())
		}
	})
}
