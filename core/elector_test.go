package core

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenure-go/tenure/backends/memory"
	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/proof/kvfault"
	"github.com/tenure-go/tenure/internal/seam"
)

func TestLeaseFromGrantToRelease(t *testing.T) {
	bubble(t, func(w *world) {
		m := w.member("a")
		var h leases
		w.must(m.Contend(h.hold, "s"))
		l := h.await(w, 1)
		if l.Shard() != "s" || l.Token() <= 0 || l.Fence().Session != m.View().Session {
			w.Errorf("lease of %q with fence %v; the session is %q", l.Shard(), l.Fence(), m.View().Session)
		}
		for range 50 {
			time.Sleep(ttl / 5)
			if err := l.Err(); err != nil {
				w.Fatalf("not valid although heartbeats succeed: %v", err)
			}
			if r := l.Remaining(); r < ttl/2 || r > ttl {
				w.Fatalf("remaining %v of a TTL of %v", r, ttl)
			}
		}
		w.must(m.Withdraw(w.Context(), "s"))
		if err := l.Err(); !errors.Is(err, ErrReleased) || !errors.Is(err, ErrLost) || !NotApplied(err) {
			w.Errorf("after the release Err is %v, want ErrReleased, which is ErrLost", err)
		}
		if got := context.Cause(l.Context()); got != l.Err() {
			w.Errorf("cause of the lease's context: %v, want %v", got, l.Err())
		}
		if l.Remaining() != 0 {
			w.Errorf("remaining %v after the release", l.Remaining())
		}
		synctest.Wait()
		want := []string{"session joined", "grant s", "start s", "return s: <nil>", "revoke s: asked to stop"}
		if got := m.said(""); !slices.Equal(got, want) {
			w.Errorf("hooks:\n got %q\nwant %q", got, want)
		}
		if o, ok := m.View().Owner("s"); !ok || o.Session != "" || o.Token != l.Token() {
			w.Errorf("owner after the release: %+v, %v", o, ok)
		}
		w.must(m.end())
	})
}

func TestHandlerContextEndsBeforeLease(t *testing.T) {
	bubble(t, func(w *world) {
		m := w.member("a")
		closing := make(chan error, 1)
		started := make(chan struct{})
		w.must(m.Contend(func(ctx context.Context, l *Lease) error {
			close(started)
			<-ctx.Done()
			if !errors.Is(context.Cause(ctx), ErrWithdrawn) {
				w.Errorf("cause %v, want ErrWithdrawn", context.Cause(ctx))
			}
			_, err := l.Append(l.Context(), []byte("closing"))
			closing <- err
			return nil
		}, "s"))
		<-started
		w.must(m.Withdraw(w.Context(), "s"))
		if err := <-closing; err != nil {
			w.Errorf("closing write: %v", err)
		}
	})
}

func TestLapseAndRegain(t *testing.T) {
	bubble(t, func(w *world) {
		m := w.member("a")
		var h leases
		w.must(m.Contend(h.hold, "s"))
		l := h.await(w, 1)
		session := m.View().Session
		m.link.Cut()
		left := l.Remaining()
		time.Sleep(left - 1)
		w.must(l.Err())
		m.Elector.mu.Lock() // so that no timer can have ended the lease
		time.Sleep(time.Nanosecond)
		err := l.Err()
		m.Elector.mu.Unlock()
		if !errors.Is(err, ErrLapsed) || !errors.Is(err, ErrLost) {
			w.Fatalf("at the end of trust Err is %v", err)
		}
		synctest.Wait()
		if l.Context().Err() == nil {
			w.Error("the lease's context has not ended with its trust (S9)")
		}
		if _, err := l.Append(w.Context(), nil); !errors.Is(err, ErrLost) || !NotApplied(err) {
			w.Errorf("append after the lapse: %v", err)
		}
		if _, err := l.Get(w.Context(), "k"); !errors.Is(err, ErrLost) {
			w.Errorf("read after the lapse: %v", err)
		}
		time.Sleep(3 * ttl)
		if m.View().Trusted {
			w.Error("trusted while cut off")
		}
		m.link.Heal()
		again := h.await(w, 2)
		if again.Token() <= l.Token() || again.Fence().Session != session {
			w.Errorf("regained with fence %v after %v, want a higher token of the same session", again.Fence(), l.Fence())
		}
		if l.Err() == nil {
			w.Error("the former lease is valid again (S6)")
		}
	})
}

// TestNews: a member has fresh news while the store answers its reads. One TTL after the answers
// stop, its news is no longer fresh, whether or not heartbeats succeed. A member that contends for
// no shard has fresh news until its next full read.
func TestNews(t *testing.T) {
	for name, kinds := range map[string]kvfault.Kind{"cut off": kvfault.All, "reads fail": kvfault.Watch | kvfault.Read} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(w *world) {
				m, idle := w.member("a"), w.member("b")
				var h leases
				w.must(m.Contend(h.hold, "s"))
				h.await(w, 1)
				for range 140 {
					time.Sleep(ttl)
					age, fresh := m.inside().News()
					if _, ok := idle.inside().News(); !fresh || !ok || age > ttl {
						w.Fatalf("the last news of a member are %v old, of an idle one fresh: %v", age, ok)
					}
				}
				if kinds == kvfault.All {
					m.link.Cut()
				} else {
					m.link.SetError(kinds, errors.New("no reads"))
				}
				time.Sleep(ttl + ttl/2)
				if age, fresh := m.inside().News(); fresh || age <= ttl {
					w.Errorf("without the store the news are %v old", age)
				}
				m.link.Heal()
				time.Sleep(2 * ttl)
				if age, fresh := m.inside().News(); !fresh {
					w.Errorf("with the store again the news are %v old", age)
				}
				idle.link.Cut()
				time.Sleep(70 * ttl)
				if age, fresh := idle.inside().News(); fresh {
					w.Errorf("an idle member without the store has fresh news, %v old", age)
				}
			})
		})
	}
}

func TestSuspendedTimeCounts(t *testing.T) {
	bubble(t, func(w *world) {
		m := w.newMember("a")
		away := make(chan time.Duration, 1)
		var ahead time.Duration
		m.clk = newClock(func() (time.Duration, bool) {
			select {
			case ahead = <-away:
			default:
			}
			return 5*time.Hour + ahead, true
		})
		m.run()
		var h leases
		w.must(m.Contend(h.hold, "s"))
		l := h.await(w, 1)
		away <- 10 * ttl // the computer slept
		time.Sleep(m.o.Margin/2 + time.Millisecond)
		synctest.Wait()
		if cause := context.Cause(l.Context()); !errors.Is(cause, ErrLapsed) {
			w.Fatalf("half a margin after a suspension the cause is %v, want ErrLapsed", cause)
		}
		if again := h.await(w, 2); again.Token() <= l.Token() {
			w.Errorf("token %d after %d", again.Token(), l.Token())
		}
	})
}

func TestFailover(t *testing.T) {
	bubble(t, func(w *world) {
		var ha, hb leases
		a, b := w.member("a"), w.member("b")
		w.must(a.Contend(ha.hold, "s"))
		la := ha.await(w, 1)
		w.must(b.Contend(hb.hold, "s"))
		time.Sleep(3*ttl + 123*time.Millisecond)
		if hb.count() != 0 {
			w.Fatal("two owners")
		}
		a.link.Cut() // like a crash
		cut := time.Now()
		lb := hb.await(w, 1)
		if took, limit := hb.at[0].Sub(cut), ttl+ttl/20+50*time.Millisecond; took > limit {
			w.Errorf("took %v, want at most %v", took, limit)
		}
		if lb.Token() <= la.Token() || la.Err() == nil {
			w.Errorf("token %d after %d; the former lease: %v", lb.Token(), la.Token(), la.Err())
		}
		if got := b.said("peer a"); !slices.Equal(got, []string{"peer a joined", "peer a silent", "peer a evicted", "peer a gone"}) {
			w.Errorf("b saw %q", got)
		}
		a.link.Heal()
		w.eventually("a joins anew", func() bool {
			return a.View().Trusted && len(a.said("session session lost")) == 1
		})
		if o, _ := a.View().Owner("s"); o.Node != "b" || o.Token != lb.Token() {
			w.Errorf("a sees %+v, want b's", o)
		}
	})
}

func TestHandOver(t *testing.T) {
	bubble(t, func(w *world) {
		var ha, hb leases
		a, b := w.member("a"), w.member("b")
		w.must(a.Contend(ha.hold, "s", "lost"))
		la := ha.await(w, 2)
		w.must(b.Contend(hb.hold, "s"))
		w.eventually("a sees b", func() bool { return len(a.View().Members) == 2 })
		before := time.Now()
		w.must(a.HandOver(w.Context(), b.View().Session, "s"))
		lb := hb.await(w, 1)
		if took := time.Since(before); took > 10*time.Millisecond {
			w.Errorf("hand-over took %v", took)
		}
		if lb.Token() <= la.Token() {
			w.Errorf("token %d after %d", lb.Token(), la.Token())
		}
		time.Sleep(2 * ttl)
		if ha.count() != 2 {
			w.Error("the shard came back to where it is not wanted")
		}
		if err := a.HandOver(w.Context(), "0123", "lost"); !errors.Is(err, ErrNoTarget) {
			w.Errorf("hand-over to nobody: %v, want ErrNoTarget", err)
		}
		if o, _ := a.View().Owner("lost"); o.Session != "" {
			w.Errorf("not released: %+v", o)
		}
		if err := a.HandOver(w.Context(), a.View().Session, "lost"); !errors.Is(err, ErrInvalid) {
			w.Errorf("hand-over to oneself: %v, want ErrInvalid", err)
		}
	})
}

// A free shard goes to the preferred member, regardless of the order of the other members. If the
// first choice is gone, the shard goes to the second choice.
func TestPrefer(t *testing.T) {
	bubble(t, func(w *world) {
		var ha, hb, hc leases
		names := shardNames(20)
		a, b, c, gone := w.member("a"), w.member("b"), w.member("c"), w.member("gone")
		w.must(a.Contend(ha.hold, names...))
		ha.await(w, len(names))
		w.must(b.Contend(hb.hold, names...))
		w.must(c.Contend(hc.hold, names...))
		w.must(gone.Contend((&leases{}).hold, "other"))
		all := func(n int) func() bool {
			return func() bool { return len(b.View().Members) == n && len(c.View().Members) == n }
		}
		w.eventually("all see all", all(4))
		// The preferred member leaves before a does. If members see the release and the departure
		// in different views, the second choice and other members may have equal turns.
		left := gone.View().Session
		w.must(gone.end())
		w.eventually("all see who left", all(3))
		var prefs []seam.Preference
		for i, s := range names {
			first, second := left, c.View().Session
			if i%2 == 0 {
				first, second = c.View().Session, ""
			}
			prefs = append(prefs, seam.Preference{Shard: s, First: first, Second: second})
		}
		for _, m := range []*member{a, b, c} {
			w.must(m.inside().Prefer(prefs...))
		}
		w.must(a.end())
		hc.await(w, len(names))
		if hb.count() != 0 {
			w.Errorf("b was granted %d shards that c is preferred for", hb.count())
		}
		if err := b.inside().Prefer(seam.Preference{Shard: "a/b"}); !errors.Is(err, ErrInvalid) {
			w.Errorf("a bad name: %v, want ErrInvalid", err)
		}
	})
}

func TestHandOverEndsWithCause(t *testing.T) {
	bubble(t, func(w *world) {
		m := w.member("a")
		cause := make(chan error, 1)
		var h leases
		w.must(m.Contend(func(ctx context.Context, l *Lease) error {
			err := h.hold(ctx, l)
			cause <- context.Cause(ctx)
			return err
		}, "s"))
		h.await(w, 1)
		if err := m.HandOver(w.Context(), "0123", "s"); !errors.Is(err, ErrNoTarget) {
			w.Error(err)
		}
		if got := <-cause; got != ErrHandOver {
			w.Errorf("cause %v, want ErrHandOver", got)
		}
	})
}

func TestStuckHandler(t *testing.T) {
	bubble(t, func(w *world) {
		a, b := w.member("a"), w.member("b")
		free := make(chan struct{})
		var ha, hb leases
		w.must(a.Contend(func(_ context.Context, l *Lease) error { ha.add(l); <-free; return nil }, "deaf"))
		w.must(a.Contend(ha.hold, "good"))
		ha.await(w, 2)
		w.must(b.Contend(hb.hold, "deaf", "good"))

		began := time.Now()
		err := a.Withdraw(w.Context(), "deaf", "good")
		var stuck *StuckError
		if !errors.As(err, &stuck) || !slices.Equal(stuck.Shards, []string{"deaf"}) {
			w.Fatalf("withdraw: %v", err)
		}
		if took := time.Since(began); took != 2*time.Second {
			w.Errorf("stuck after %v, want the drain budget of 2s", took)
		}
		if l := hb.await(w, 1); l.Shard() != "good" || hb.at[0].Sub(began) > 100*time.Millisecond {
			w.Errorf("b has %q after %v: one stuck shard delayed another", l.Shard(), hb.at[0].Sub(began))
		}
		var shown []ShardID
		for _, l := range a.View().Leases {
			if l.State == LeaseStuck {
				shown = append(shown, l.Fence.Shard)
			}
		}
		if !slices.Equal(shown, []ShardID{"deaf"}) {
			w.Errorf("view says stuck: %q", shown)
		}
		time.Sleep(5 * ttl)
		if hb.count() != 1 {
			w.Error("a shard was released while its work may go on")
		}
		if got := a.said("stuck"); !slices.Equal(got, []string{"stuck deaf: drain budget spent"}) {
			w.Errorf("hooks: %q", got)
		}
		close(free)
		hb.await(w, 2)
	})
}

func TestAbandonedHandler(t *testing.T) {
	bubble(t, func(w *world) {
		a, b := w.member("a", func(o *Options) { o.AbandonAfter = 3 * time.Second }), w.member("b")
		free := make(chan struct{})
		var ha, hb leases
		w.must(a.Contend(func(_ context.Context, l *Lease) error { ha.add(l); <-free; return nil }, "s"))
		ha.await(w, 1)
		w.must(b.Contend(hb.hold, "s"))
		began := time.Now()
		if err := a.Withdraw(w.Context(), "s"); !errors.Is(err, ErrStuck) {
			w.Fatal(err)
		}
		hb.await(w, 1)
		if took := hb.at[0].Sub(began); took < 5*time.Second || took > 5*time.Second+100*time.Millisecond {
			w.Errorf("abandoned after %v, want drain budget 2s and then 3s", took)
		}
		close(free)
	})
}

func TestWatchdog(t *testing.T) {
	bubble(t, func(w *world) {
		m := w.member("a", func(o *Options) { o.Watchdog = 300 * time.Millisecond })
		stall := make(chan struct{})
		var h leases
		w.must(m.Contend(func(ctx context.Context, l *Lease) error {
			h.add(l)
			tick := time.NewTicker(200 * time.Millisecond)
			defer tick.Stop()
			for {
				select {
				case <-tick.C:
					l.Progress()
				case <-stall:
					<-ctx.Done()
					return context.Cause(ctx)
				case <-ctx.Done():
					return nil
				}
			}
		}, "s"))
		l := h.await(w, 1)
		time.Sleep(5 * time.Second)
		w.must(l.Err())
		stall <- struct{}{}
		time.Sleep(300 * time.Millisecond)
		synctest.Wait()
		if err := l.Err(); !errors.Is(err, ErrStalled) {
			w.Errorf("Err is %v, want ErrStalled", err)
		}
		if got := m.said("stuck"); !slices.Equal(got, []string{"stuck s: stalled"}) {
			w.Errorf("hooks: %q", got)
		}
		if again := h.await(w, 2); again.Token() <= l.Token() {
			w.Errorf("token %d after %d", again.Token(), l.Token())
		}
	})
}

// S12: each shard is released once its handler has returned, without waiting for the slow handler.
// The session is closed last.
func TestShutdownOrder(t *testing.T) {
	bubble(t, func(w *world) {
		m := w.member("a")
		var h leases
		handler := func(wait time.Duration) Handler {
			return func(ctx context.Context, l *Lease) error {
				h.add(l)
				<-ctx.Done()
				if context.Cause(ctx) != ErrShutdown {
					w.Errorf("cause %v, want ErrShutdown", context.Cause(ctx))
				}
				time.Sleep(wait)
				m.tap.note("returned " + l.Shard())
				return nil
			}
		}
		w.must(m.Contend(handler(time.Second), "slow"))
		w.must(m.Contend(handler(time.Millisecond), "quick"))
		h.await(w, 2)
		began := time.Now()
		w.must(m.end())
		if took := time.Since(began); took > time.Second+100*time.Millisecond {
			w.Errorf("shutdown took %v", took)
		}
		want := []string{"returned quick", "release quick", "returned slow", "release slow", "close"}
		if got := m.tap.noted(); !slices.Equal(got, want) {
			w.Errorf("got %q\nwant %q", got, want)
		}
		if err := m.Contend(h.hold, "s"); !errors.Is(err, ErrStopped) {
			w.Errorf("contend after the end: %v", err)
		}
		if err := m.Withdraw(w.Context(), "slow"); err != nil {
			w.Errorf("withdraw after the end: %v", err)
		}
		if _, err := m.WaitView(w.Context(), m.View()); !errors.Is(err, ErrStopped) {
			w.Errorf("wait for a view after the end: %v", err)
		}
		if err := m.Run(w.Context()); !errors.Is(err, ErrStopped) {
			w.Errorf("second Run: %v", err)
		}
	})
}

func TestShutdownWithStuckHandlerLeavesSession(t *testing.T) {
	bubble(t, func(w *world) {
		a, b := w.member("a"), w.member("b")
		free := make(chan struct{})
		var ha, hb leases
		w.must(a.Contend(func(_ context.Context, l *Lease) error { ha.add(l); <-free; return nil }, "deaf"))
		w.must(a.Contend(ha.hold, "good"))
		ha.await(w, 2)
		w.must(b.Contend(hb.hold, "deaf", "good"))
		w.eventually("a sees b", func() bool { return len(a.View().Members) == 2 })
		began := time.Now()
		var stuck *StuckError
		if err := a.end(); !errors.As(err, &stuck) || !slices.Equal(stuck.Shards, []string{"deaf"}) {
			w.Fatalf("Run: %v", err)
		}
		if took := time.Since(began); took > 2*time.Second+100*time.Millisecond {
			w.Errorf("shutdown took %v", took)
		}
		if got := a.tap.noted(); !slices.Equal(got, []string{"transfer good"}) { // to the only other member
			w.Errorf("store calls %q, want good handed on, and no close", got)
		}
		hb.await(w, 2) // after eviction
		if took := hb.at[1].Sub(began); took < 2*time.Second+ttl/2 {
			w.Errorf("b owns the stuck shard after %v: it was released", took)
		}
		close(free)
	})
}

// If the store does not apply or does not answer the close of a session, the close is repeated. The
// other members therefore need not wait for the session's TTL.
func TestCloseIsTriedAgain(t *testing.T) {
	refused := func(context.Context) error { return fmt.Errorf("row locked: %w", ErrRetry) }
	cut := func(context.Context) error { return errors.New("connection reset") }
	silent := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
	bubble(t, func(w *world) {
		m := w.newMember("a")
		w.must(m.Contend(func(ctx context.Context, _ *Lease) error { <-ctx.Done(); return nil }, "s"))
		m.run()
		for !slices.Contains(m.said(""), "start s") {
			time.Sleep(time.Millisecond)
		}
		m.tap.mu.Lock()
		m.tap.closes = []func(context.Context) error{refused, cut, silent}
		m.tap.mu.Unlock()
		start := time.Now()
		w.must(m.end())
		if n := len(m.tap.noted()); n != 5 {
			w.Errorf("%v, want the release, three closes that fail and one that does not", m.tap.noted())
		}
		if took, most := time.Since(start), m.o.CallTimeout/2; took > most {
			w.Errorf("took %v, want at most %v", took, most)
		}
	})
}

func TestShutdownWhileStoreIsAway(t *testing.T) {
	bubble(t, func(w *world) {
		m := w.member("a")
		var h leases
		w.must(m.Contend(h.hold, "s"))
		h.await(w, 1)
		m.link.Cut()
		began := time.Now()
		if err := m.end(); err == nil || !strings.Contains(err.Error(), "left to be evicted") {
			w.Errorf("Run: %v, want an error that says that the session is left", err)
		}
		if took, limit := time.Since(began), m.o.DrainBudget+2*m.o.CallTimeout; took > limit {
			w.Errorf("took %v, want at most %v", took, limit)
		}
	})
}

// A failing handler is called repeatedly (V2), at growing intervals (V4).
func TestEarlyReturnBacksOff(t *testing.T) {
	bubble(t, func(w *world) {
		m := w.member("a", func(o *Options) { o.BackoffMin, o.BackoffMax = 100*time.Millisecond, time.Second })
		var h leases
		boom := errors.New("boom")
		w.must(m.Contend(func(_ context.Context, l *Lease) error { h.add(l); return boom }, "s"))
		h.await(w, 8)
		for i, limit := range []time.Duration{50, 100, 200, 400, 400, 400, 400} {
			if gap := h.at[i+1].Sub(h.at[i]); gap < limit*time.Millisecond {
				w.Errorf("wait %d is %v, want at least %v", i, gap, limit*time.Millisecond)
			}
			if h.all[i+1].Token() <= h.all[i].Token() {
				w.Errorf("token %d after %d", h.all[i+1].Token(), h.all[i].Token())
			}
		}
		if got := m.said("return s: boom"); len(got) < 8 {
			w.Errorf("%d returns told", len(got))
		}
	})
}

func TestStoreChangedHalts(t *testing.T) {
	bubble(t, func(w *world) {
		m := w.member("a")
		var h leases
		w.must(m.Contend(h.hold, "s"))
		l := h.await(w, 1)
		w.store.Wipe()
		w.eventually("halt", func() bool { return m.View().Err != nil })
		if err := l.Err(); !errors.Is(err, ErrStoreChanged) {
			w.Errorf("Err is %v, want ErrStoreChanged", err)
		}
		time.Sleep(20 * ttl)
		if h.count() != 1 {
			w.Error("granted after the store changed")
		}
		if len(m.said("session halted")) != 1 {
			w.Errorf("hooks: %q", m.said("session"))
		}
		if err := m.end(); !errors.Is(err, ErrStoreChanged) {
			w.Errorf("Run: %v, want ErrStoreChanged", err)
		}
	})
}

// With ReturnHalted, Run returns at the halt, once its handlers have returned.
func TestReturnHalted(t *testing.T) {
	bubble(t, func(w *world) {
		m := w.member("a", func(o *Options) { o.ReturnHalted = true })
		var h leases
		w.must(m.Contend(h.hold, "s"))
		l := h.await(w, 1)
		w.store.Wipe()
		began := time.Now()
		m.done <- <-m.done
		if took := time.Since(began); took > 2*ttl {
			w.Errorf("Run returned after %v", took)
		}
		if l.Context().Err() == nil {
			w.Error("the handler's context goes on")
		}
		if err := m.end(); !errors.Is(err, ErrStoreChanged) {
			w.Errorf("Run: %v, want ErrStoreChanged", err)
		}
	})
}

// If a member would contend for more than 200,000 shards, the entire call is refused before any
// shard is claimed.
func TestContendTooMany(t *testing.T) {
	bubble(t, func(w *world) {
		m := w.member("a")
		var h leases
		w.must(m.Contend(h.hold, "first"))
		h.await(w, 1)
		names := make([]string, seam.MaxContended)
		for i := range names {
			names[i] = fmt.Sprint("s", i)
		}
		if err := m.Contend(h.hold, names...); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "200000 is the most") {
			w.Errorf("%d shards beside one: %v", len(names), err)
		}
		if v := m.View(); v.Contended != 1 || len(v.Shards) != 1 {
			w.Errorf("%d are contended, %d are known", v.Contended, len(v.Shards))
		}
		w.must(m.Contend(h.hold, names[:9]...))
		h.await(w, 10)
	})
}

func TestContendEdges(t *testing.T) {
	bubble(t, func(w *world) {
		m := w.newMember("a")
		var h leases
		w.must(m.Contend(h.hold, "early", "never"))
		w.must(m.Withdraw(w.Context(), "never"))
		for _, c := range []struct {
			h      Handler
			shards []string
			want   error
		}{
			{h.hold, []string{"x", "early"}, ErrContended},
			{h.hold, []string{"x", "x"}, ErrInvalid},
			{h.hold, []string{"a/b"}, ErrInvalid},
			{nil, []string{"x"}, ErrInvalid},
		} {
			if err := m.Contend(c.h, c.shards...); !errors.Is(err, c.want) {
				w.Errorf("contend %q: %v, want %v", c.shards, err, c.want)
			}
		}
		if n := m.View().Contended; n != 1 {
			w.Errorf("%d contended: a refused Contend took something", n)
		}
		if err := m.Withdraw(w.Context(), "a/b"); !errors.Is(err, ErrInvalid) {
			w.Errorf("withdraw of a bad name: %v", err)
		}
		m.run()
		if l := h.await(w, 1); l.Shard() != "early" {
			w.Errorf("got %q", l.Shard())
		}
		w.must(m.Withdraw(w.Context(), "unknown"))

		// A Withdraw whose ctx ends continues, and a new Contend waits for it (S11).
		slow := make(chan struct{})
		w.must(m.Contend(func(ctx context.Context, l *Lease) error { h.add(l); <-slow; return nil }, "s"))
		first := h.await(w, 2)
		ctx, cancel := context.WithTimeout(w.Context(), time.Millisecond)
		defer cancel()
		if err := m.Withdraw(ctx, "s"); !errors.Is(err, context.DeadlineExceeded) {
			w.Errorf("withdraw: %v", err)
		}
		w.must(m.Contend(h.hold, "s"))
		time.Sleep(time.Second)
		if h.count() != 2 {
			w.Fatal("two handlers of one shard at a time")
		}
		close(slow)
		if again := h.await(w, 3); again.Token() <= first.Token() {
			w.Errorf("token %d after %d", again.Token(), first.Token())
		}
		time.Sleep(5 * ttl)
		if n := h.count(); n != 3 {
			w.Errorf("%d leases, want 3", n)
		}
	})
}

func TestSlowHookDelaysNoHeartbeat(t *testing.T) {
	bubble(t, func(w *world) {
		block := make(chan struct{})
		m := w.member("a", func(o *Options) { onEvent(o, func(Event) { <-block }, LeaseGranted) })
		var h leases
		w.must(m.Contend(h.hold, "s"))
		l := h.await(w, 1)
		time.Sleep(20 * ttl)
		w.must(l.Err())
		close(block)
	})
}

func TestHooksThatDoNotReturn(t *testing.T) {
	bubble(t, func(w *world) {
		block := make(chan struct{})
		m := w.member("a", func(o *Options) { onEvent(o, func(Event) { <-block }, LeaseGranted) })
		var h leases
		w.must(m.Contend(h.hold, "s"))
		h.await(w, 1)
		if err := m.end(); err == nil || !strings.Contains(err.Error(), "hook") {
			w.Errorf("Run: %v, want an error about the hook", err)
		}
		close(block)
	})
}

func TestView(t *testing.T) {
	bubble(t, func(w *world) {
		a, b := w.member("a"), w.member("b", func(o *Options) { o.Meta = map[string]string{"addr": "b:1"} })
		var h leases
		v := b.View()
		if v != b.View() {
			w.Error("an unchanged view was built again")
		}
		w.must(a.Contend(h.hold, "s2", "s1"))
		w.must(b.Contend(h.hold, "s1"))
		var err error
		for {
			if o, _ := v.Owner("s2"); o.Node == "a" && len(v.Members) == 2 {
				break
			}
			last := v
			ctx, cancel := context.WithTimeout(w.Context(), time.Minute)
			v, err = b.WaitView(ctx, v)
			cancel()
			w.must(err)
			if v == last {
				w.Fatal("WaitView returned what it was to be newer than")
			}
		}
		if o, ok := v.Owner("s3"); ok {
			w.Errorf("owner of an unknown shard: %+v", o)
		}
		if m, ok := v.Member(b.View().Session); !ok || m.Node != "b" || m.Meta["addr"] != "b:1" || m.Weight != 1 {
			w.Errorf("own member: %+v", m)
		}
		h.await(w, 2)
		time.Sleep(ttl) // until the last changes arrive
		ctx, cancel := context.WithTimeout(w.Context(), 10*ttl)
		defer cancel()
		if _, err := b.WaitView(ctx, b.View()); !errors.Is(err, context.DeadlineExceeded) {
			w.Errorf("an idle cluster changed its view: %v", err)
		}
		va := a.View()
		if len(va.Leases)+len(b.View().Leases) != 2 || va.Leases[0].State != LeaseHeld {
			w.Errorf("leases %+v and %+v", va.Leases, b.View().Leases)
		}
		for range 50 {
			w.must(a.Withdraw(w.Context(), "s2"))
			w.must(a.Contend(h.hold, "s2"))
			w.eventually("s2 is held", func() bool { o, _ := a.View().Owner("s2"); return o.Node == "a" })
		}
		moves := a.View().Moves
		if len(moves) != maxMoves || moves[len(moves)-1].Kind != LeaseGranted ||
			!slices.IsSortedFunc(moves, func(x, y Event) int { return x.At.Compare(y.At) }) {
			w.Errorf("%d moves, the last %+v", len(moves), moves[len(moves)-1])
		}
	})
}

// S10: a process that restarts under the same label is a new member, and ends the former session.
func TestSupersedeEndsFormer(t *testing.T) {
	bubble(t, func(w *world) {
		own := func(o *Options) { o.Supersede = true }
		var h1, h2 leases
		m := w.member("a", own)
		w.must(m.Contend(h1.hold, "s"))
		h1.await(w, 1)
		m.link.Cut()
		began := time.Now()
		again := w.member("a", own)
		w.must(again.Contend(h2.hold, "s"))
		h2.await(w, 1)
		if took := h2.at[0].Sub(began); took > ttl/10 {
			w.Errorf("a restarted process has its shard back after %v", took)
		}
		m.stop()
	})
}

// TestSessionLostSaysByWhom: the hook and the log name the session that ended this session, and how
// it ended. The log line contains "session" once.
func TestSessionLostSaysByWhom(t *testing.T) {
	for name, c := range map[string]struct {
		cause driver.Loss
		end   func(w *world, m *member) *member
	}{
		"evicted": {driver.LossEvicted, func(w *world, m *member) *member {
			other := w.member("other")
			w.must(other.Contend((&leases{}).hold, "t"))
			w.eventually("they see each other", func() bool { return len(other.said("peer a joined")) > 0 })
			m.link.Cut()
			w.eventually("it is evicted", func() bool { return len(other.said("peer a evicted")) > 0 })
			return other
		}},
		"evicted by an operator": {driver.LossEvicted, func(w *world, m *member) *member {
			tool := w.member("tool.alice-host")
			w.must(tool.Contend((&leases{}).hold, "t"))
			w.eventually("they see each other", func() bool { return len(tool.said("peer a joined")) > 0 })
			m.link.Cut()
			w.eventually("it is evicted", func() bool { return len(tool.said("peer a evicted")) > 0 })
			return tool
		}},
		"superseded": {driver.LossSuperseded, func(w *world, _ *member) *member {
			return w.member("a", func(o *Options) { o.Supersede = true })
		}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(w *world) {
				var log bytes.Buffer
				var mu sync.Mutex
				var lost *SessionLostError
				m := w.member("a", func(o *Options) {
					o.Logger = slog.New(slog.NewTextHandler(&log, nil))
					onEvent(o, func(ev Event) {
						mu.Lock()
						defer mu.Unlock()
						lost, _ = errors.AsType[*SessionLostError](ev.Err)
					}, SessionLost)
				})
				w.must(m.Contend((&leases{}).hold, "s"))
				w.eventually("it has joined", func() bool { return m.View().Session != "" })
				former := m.View().Session
				other := c.end(w, m)
				w.must(other.Contend((&leases{}).hold, "s"))
				w.eventually("the other has joined", func() bool { return other.View().Session != "" })
				by := other.View().Session
				m.link.Heal()
				w.eventually("it has lost its session", func() bool { mu.Lock(); defer mu.Unlock(); return lost != nil })
				if want := (SessionLostError{Session: former, Cause: c.cause, By: by, Node: other.o.Node}); *lost != want {
					w.Errorf("got %+v, want %+v", *lost, want)
				}
				if operator := strings.HasPrefix(lost.Node, "tool."); operator != strings.Contains(lost.Error(), `by an operator, from "alice-host"`) ||
					operator && strings.Contains(lost.Error(), "silent") {
					w.Errorf("it says %v", lost)
				}
				if !errors.Is(lost, ErrSessionLost) {
					w.Errorf("%v does not match ErrSessionLost", lost)
				}
				if err := m.end(); err != nil {
					w.Error(err)
				}
				text := log.String()
				if strings.Contains(text, "session session") || !strings.Contains(text, `msg="tenure: session lost"`) ||
					!strings.Contains(text, string(by)) {
					w.Errorf("the log has %s", text)
				}
			})
		})
	}
}

func TestIdleIsQuiet(t *testing.T) {
	bubble(t, func(w *world) {
		a, b := w.member("a"), w.member("b")
		var h leases
		w.must(a.Contend(h.hold, shardNames(100)...))
		w.must(b.Contend(h.hold, shardNames(100)...))
		h.await(w, 100)
		time.Sleep(2 * ttl)
		before := w.store.Counts()
		time.Sleep(10 * ttl)
		after := w.store.Counts()
		if n := after.Writes - before.Writes; n != 0 {
			w.Errorf("%d writes besides heartbeats", n)
		}
		if n := after.Heartbeats - before.Heartbeats; n < 60 || n > 72 {
			w.Errorf("%d heartbeats of 2 members in 10 TTL, want about 63", n)
		}
	})
}

func TestObserverOnly(t *testing.T) {
	bubble(t, func(w *world) {
		a, o := w.member("a"), w.member("observer")
		var h leases
		w.must(a.Contend(h.hold, "s"))
		l := h.await(w, 1)
		sees := func(node string) func() bool {
			return func() bool { got, _ := o.View().Owner("s"); return got.Node == node && got.Token == l.Token() }
		}
		w.eventually("the owner", sees("a"))
		if v := o.View(); v.Session != "" || len(v.Members) != 1 || len(o.said("session")) != 0 {
			w.Errorf("the observer joined: %+v", v)
		}
		w.must(a.end())
		w.eventually("the end", sees(""))
	})
}

// A handler that continues after its lease was lost is stuck after the drain budget.
func TestHandlerOutlivesLostLease(t *testing.T) {
	bubble(t, func(w *world) {
		m := w.member("a")
		free := make(chan struct{})
		var h leases
		w.must(m.Contend(func(_ context.Context, l *Lease) error { h.add(l); <-free; return nil }, "s"))
		l := h.await(w, 1)
		m.link.Cut()
		time.Sleep(l.Remaining() + time.Millisecond)
		synctest.Wait()
		if got := m.View().Leases; len(got) != 1 || got[0].State != LeaseRevoked {
			w.Errorf("leases %+v", got)
		}
		m.link.Heal()
		time.Sleep(m.o.DrainBudget)
		synctest.Wait()
		if got := m.said("stuck"); !slices.Equal(got, []string{"stuck s: trust lapsed"}) {
			w.Errorf("hooks: %q", got)
		}
		if h.count() != 1 {
			w.Error("two handlers of one shard at a time (S11)")
		}
		if err := m.HandOver(w.Context(), "0123", "s"); !errors.Is(err, ErrStuck) {
			w.Errorf("hand-over of a stuck shard: %v", err)
		}
		close(free)
		w.eventually("given back", func() bool { o, _ := m.View().Owner("s"); return o.Session == "" })
	})
}

func TestHandOverOfLostLease(t *testing.T) {
	bubble(t, func(w *world) {
		a, b := w.member("a"), w.member("b")
		var h leases
		w.must(a.Contend(func(ctx context.Context, l *Lease) error {
			h.add(l)
			<-l.Context().Done()
			return nil
		}, "s"))
		w.must(b.Contend(h.hold, "t"))
		h.await(w, 2)
		w.eventually("a sees b", func() bool { return len(a.View().Members) == 2 })
		to := b.View().Session
		a.link.Cut()
		if err := a.HandOver(w.Context(), to, "s"); !errors.Is(err, ErrLapsed) || !errors.Is(err, ErrLost) {
			w.Errorf("hand-over: %v, want ErrLapsed", err)
		}
	})
}

func TestLogger(t *testing.T) {
	bubble(t, func(w *world) {
		var log strings.Builder
		m := w.member("a", func(o *Options) {
			o.Hooks = Hooks{}
			o.Logger = slog.New(slog.NewTextHandler(&log, nil)) // called by one goroutine
		})
		var h leases
		w.must(m.Contend(func(ctx context.Context, l *Lease) error { h.add(l); <-ctx.Done(); return errors.New("boom") }, "s"))
		l := h.await(w, 1)
		w.takeOver(m, 0)
		_, err := l.Append(w.Context(), nil)
		if !errors.Is(err, ErrLost) {
			w.Errorf("append: %v", err)
		}
		w.must(m.end())
		for _, want := range []string{"session joined", `lease granted" shard=s token=`, `lease ended" shard=s`, "boom"} {
			if !strings.Contains(log.String(), want) {
				w.Errorf("the log does not say %q:\n%s", want, log.String())
			}
		}
	})
}

// Views show a planned stop for Options.LameDuck before any handler is asked to stop.
func TestLameDuck(t *testing.T) {
	bubble(t, func(w *world) {
		m := w.member("a", func(o *Options) { o.LameDuck = 5 * ttl })
		var h leases
		w.must(m.Contend(h.hold, "s"))
		l := h.await(w, 1)
		if m.Leave(); !m.View().Leaving || m.View().Stopped {
			w.Errorf("after Leave: leaving %v, stopped %v", m.View().Leaving, m.View().Stopped)
		}
		m.inside().Stay()
		if m.View().Leaving {
			w.Error("leaving after Stay")
		}
		begun := time.Now()
		m.stop()
		w.eventually("it shows", func() bool { return m.View().Leaving })
		time.Sleep(4 * ttl)
		synctest.Wait()
		if v := m.View(); v.Stopped || l.Err() != nil || len(v.Leases) != 1 || v.Leases[0].State != LeaseHeld {
			w.Errorf("before the lame-duck period ended: %+v, %v", v.Leases, l.Err())
		}
		_, err := l.Append(w.Context(), nil)
		w.must(err)
		w.must(m.end())
		if took := time.Since(begun); took < 5*ttl || took > 6*ttl {
			w.Errorf("Run ended after %v, want 5 TTL and no more than a call or two", took)
		}
	})
}

// Fixed attributes of the log line explain why a lease ended, and name the session that ended it.
// The log shows if a newer grant to the same process ends a lease or refuses a write.
func TestNewerGrantToThisProcess(t *testing.T) {
	bubble(t, func(w *world) {
		var log bytes.Buffer
		a := w.member("a", func(o *Options) { o.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
		var h leases
		w.must(a.Contend(h.hold, "s"))
		l := h.await(w, 1)
		a.tap.onCommit(func(_ driver.Session, ctx context.Context, ws []driver.Write) ([]driver.CommitResult, error) {
			f := ws[0].Fence
			a.tap.onCommit(nil)
			s := a.Elector.sessionNow()
			if _, err := s.Transfer(ctx, []driver.Transfer{{Fence: f, To: f.Session}}); err != nil {
				w.Error(err)
			}
			return s.Commit(ctx, ws)
		})
		if _, err := l.Append(w.Context(), nil); !errors.Is(err, ErrFenced) {
			w.Errorf("a commit under the former lease: %v", err)
		}
		h.await(w, 2)
		w.must(a.end())
		for _, want := range []string{"lease ended by a newer grant to this process", "write of a former lease refused: this process has a newer one"} {
			if n := strings.Count(log.String(), want); n != 1 {
				w.Errorf("%d lines say %q:\n%s", n, want, log.String())
			}
		}
	})
}

func (e *Elector) sessionNow() driver.Session {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.sessions[e.m.Session()]
}

func TestSessionLostAttributes(t *testing.T) {
	bubble(t, func(w *world) {
		var log strings.Builder // called by one goroutine
		a := w.member("a", func(o *Options) { o.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
		var h leases
		w.must(a.Contend(h.hold, "s"))
		h.await(w, 1)
		b := w.member("a", func(o *Options) { o.Supersede = true })
		w.must(b.Contend(h.hold, "s"))
		w.eventually("a lost its session", func() bool { return len(a.said("session session lost")) > 0 })
		w.must(a.end())
		want := "cause=superseded by_session="
		if line := regexp.MustCompile(`.*tenure: session lost.*`).FindString(log.String()); !strings.Contains(line, want) ||
			!strings.Contains(line, "by_node=a") || !strings.Contains(line, "node=a") {
			t.Errorf("the log does not say %q: %q", want, line)
		}
	})
}

func TestOnCall(t *testing.T) {
	bubble(t, func(w *world) {
		var mu sync.Mutex
		calls := make(map[string]int)
		var failed []string
		m := w.member("a", func(o *Options) {
			o.Hooks.OnCall = func(c Call) {
				mu.Lock()
				defer mu.Unlock()
				calls[c.Kind]++
				if c.Err != nil {
					failed = append(failed, c.Kind)
				}
			}
		})
		var h leases
		w.must(m.Contend(h.hold, "s"))
		l := h.await(w, 1)
		_, err := l.Append(w.Context(), nil)
		w.must(err)
		m.link.SetError(kvfault.Watch|kvfault.Read, errReset)
		time.Sleep(ttl / 2)
		m.link.Heal()
		w.must(m.Withdraw(w.Context(), "s"))
		w.must(m.end())
		for _, k := range []string{callJoin, callAcquire, callCommit, callRelease, callClose} {
			if calls[k] != 1 {
				w.Errorf("%d calls of %s, want 1", calls[k], k)
			}
		}
		if calls[callBeat] < 1 || calls[callObserve] < 2 || calls[callObserve] > 20 || len(failed) != calls[callObserve] {
			w.Errorf("calls %v, failed %v", calls, failed)
		}
	})
}

func TestRunSingleton(t *testing.T) {
	bubble(t, func(w *world) {
		b, err := memory.Open(w.Context(), w.store, "test", nil)
		w.must(err)
		defer b.Close()
		boom := errors.New("boom")
		n := 0
		w.must(RunSingleton(w.Context(), b, "job", func(ctx context.Context, l *Lease) error {
			if n++; n < 3 {
				return boom
			}
			_, err := l.Append(ctx, []byte("done"))
			return err
		}, &Options{Node: "a", TTL: ttl}))
		if n != 3 {
			w.Errorf("called %d times, want 3", n)
		}
		page, err := b.ReadLog(w.Context(), "job", 0, 10)
		w.must(err)
		if len(page.Entries) != 1 {
			w.Errorf("%d entries", len(page.Entries))
		}
		ctx, cancel := context.WithTimeout(w.Context(), 5*ttl)
		defer cancel()
		err = RunSingleton(ctx, b, "job", func(ctx context.Context, l *Lease) error { <-ctx.Done(); return nil }, &Options{Node: "a", TTL: ttl})
		if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, ErrStuck) {
			w.Errorf("ended by ctx: %v", err)
		}
		h := func(context.Context, *Lease) error { return nil }
		for what, err := range map[string]error{
			"no shard's name": RunSingleton(w.Context(), b, "a/b", h, nil),
			"no handler":      RunSingleton(w.Context(), b, "x", nil, nil),
			"no backend":      RunSingleton(w.Context(), nil, "x", h, nil),
		} {
			if !errors.Is(err, ErrInvalid) {
				w.Errorf("%s: %v, want ErrInvalid", what, err)
			}
		}
	})
}

// The log line of a lapse names the reason: the store's last error, the store's silence, or that
// this process did not run.
func TestLapseSaysWhy(t *testing.T) {
	for name, c := range map[string]struct {
		fault func(*member)
		want  string
	}{
		"error":   {func(m *member) { m.link.SetError(kvfault.All, errReset) }, errReset.Error()},
		"silence": {func(m *member) { m.link.Cut() }, "no answer"},
		"stopped": {func(m *member) { m.clk.away.Add(int64(3 * ttl)) }, "this process did not run for 2."},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(w *world) {
				var log strings.Builder // called by one goroutine
				m := w.member("a", func(o *Options) { o.Hooks, o.Logger = Hooks{}, slog.New(slog.NewTextHandler(&log, nil)) })
				var h leases
				w.must(m.Contend(h.hold, "s"))
				h.await(w, 1)
				c.fault(m)
				time.Sleep(2 * ttl)
				m.link.Heal()
				w.must(m.end())
				line := regexp.MustCompile(`.*trust lapsed.*`).FindString(log.String())
				if !strings.Contains(line, c.want) {
					t.Errorf("the log does not say %q: %q", c.want, line)
				}
			})
		})
	}
}

// A handler's error is logged even without Options.Logger, unless the error means only that the
// handler was asked to stop.
func TestHandlerErrorWithoutLogger(t *testing.T) {
	if os.Getenv("TENURE_TEST_DEFAULT_LOGGER") == "" { // the default logger belongs to the process
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestHandlerErrorWithoutLogger$", "-test.v")
		cmd.Env = append(os.Environ(), "TENURE_TEST_DEFAULT_LOGGER=1")
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v:\n%s", err, out)
		}
		if n := strings.Count(string(out), "tenure: handler returned an error"); n != 1 || !strings.Contains(string(out), "shard=s1") ||
			!strings.Contains(string(out), "error=boom") {
			t.Errorf("%d lines on the default logger, want 1, of shard s1 with its error:\n%s", n, out)
		}
		return
	}
	synctest.Test(t, func(t *testing.T) {
		w := &world{T: t, store: memory.New()}
		m := w.member("a", func(o *Options) { o.Hooks, o.Logger = Hooks{}, nil })
		var n atomic.Int32
		w.must(m.Contend(func(ctx context.Context, _ *Lease) error {
			if n.Add(1) == 1 {
				return errors.New("boom")
			}
			<-ctx.Done()
			return fmt.Errorf("stopping: %w", ctx.Err())
		}, "s1"))
		w.eventually("a second lease", func() bool { return n.Load() == 2 })
		w.must(m.end())
	})
}

// If the backend is closed before or during Run, Run returns an error that says so.
func TestClosedBackend(t *testing.T) {
	bubble(t, func(w *world) {
		for _, before := range []bool{true, false} {
			b, err := memory.Open(w.Context(), w.store, "test", nil)
			w.must(err)
			e, err := NewElector(b, &Options{Node: "a", TTL: ttl})
			w.must(err)
			var h leases
			w.must(e.Contend(h.hold, "s"))
			if before {
				w.must(b.Close())
			} else {
				go func() { h.await(w, 1); _ = b.Close() }()
			}
			ctx, cancel := context.WithTimeout(w.Context(), 100*ttl)
			begun := time.Now()
			if err := e.Run(ctx); !errors.Is(err, ErrClosed) || ctx.Err() != nil || time.Since(begun) > 2*ttl {
				w.Errorf("Run, closed before %v: %v after %v, want ErrClosed at once", before, err, time.Since(begun))
			}
			cancel()
			if !before && (h.count() != 1 || h.all[0].Err() == nil) {
				w.Errorf("%d leases, and the first is still valid", h.count())
			}
		}
		b, err := memory.Open(w.Context(), w.store, "test", nil)
		w.must(err)
		w.must(b.Close())
		ctx, cancel := context.WithTimeout(w.Context(), 100*ttl)
		defer cancel()
		if err := RunSingleton(ctx, b, "job", func(context.Context, *Lease) error { return nil }, nil); !errors.Is(err, ErrClosed) || ctx.Err() != nil {
			w.Errorf("RunSingleton: %v, want ErrClosed at once", err)
		}
	})
}

// RunSingleton returns the reason why its function did not succeed.
func TestRunSingletonTellsLastError(t *testing.T) {
	bubble(t, func(w *world) {
		b, err := memory.Open(w.Context(), w.store, "test", nil)
		w.must(err)
		defer b.Close()
		boom := errors.New("boom")
		o := &Options{Node: "a", TTL: ttl, Logger: slog.New(slog.DiscardHandler)}
		ctx, cancel := context.WithTimeout(w.Context(), 10*ttl)
		defer cancel()
		err = RunSingleton(ctx, b, "job", func(context.Context, *Lease) error { return boom }, o)
		if !errors.Is(err, boom) || !errors.Is(err, context.DeadlineExceeded) {
			w.Errorf("%v, want both that time was up and what failed", err)
		}
		ctx, cancel = context.WithTimeout(w.Context(), 10*ttl)
		defer cancel()
		n := 0
		err = RunSingleton(ctx, b, "job", func(ctx context.Context, _ *Lease) error {
			if n++; n == 1 {
				return boom
			}
			<-ctx.Done()
			return fmt.Errorf("stopping: %w", context.Cause(ctx))
		}, o)
		if errors.Is(err, boom) || errors.Is(err, ErrShutdown) || !errors.Is(err, context.DeadlineExceeded) {
			w.Errorf("%v, want only that time was up: the last call did not fail", err)
		}
	})
}
