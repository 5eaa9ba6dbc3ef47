package core

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/fsm"
	"github.com/tenure-go/tenure/internal/proof/intercept"
	"github.com/tenure-go/tenure/internal/proof/kvfault"
)

// S8: the lease is trusted from the time when the heartbeat was sent, even if the reply arrives
// late.
func TestTrustCountsFromSending(t *testing.T) {
	onLease(t, func(w *world, m *member, l *Lease) {
		var mu sync.Mutex
		newest := time.Now() // when the newest answered heartbeat was sent
		m.tap.onReply(func(_ string, do func()) {
			sent := time.Now()
			do()
			time.Sleep(7 * ttl / 20) // below a heartbeat's time-out, above the margin
			mu.Lock()
			defer mu.Unlock()
			newest = sent
		})
		for range 500 {
			time.Sleep(ttl / 100)
			synctest.Wait()
			w.must(l.Err())
			mu.Lock()
			limit := newest.Add(ttl - m.o.Margin)
			mu.Unlock()
			if end := time.Now().Add(l.Remaining()); end.After(limit) {
				w.Fatalf("trusted until %v after what the newest heartbeat's sending gives", end.Sub(limit))
			}
		}
		m.tap.onReply(nil)
	})
}

// C8: the computer slept while a heartbeat's reply was in flight. Before it handles the reply, the
// member must notice that trust has ended.
func TestReplyAfterSuspensionRevivesNothing(t *testing.T) {
	bubble(t, func(w *world) {
		m := w.newMember("a")
		var mu sync.Mutex
		var ahead time.Duration
		m.clk = newClock(func() (time.Duration, bool) {
			mu.Lock()
			defer mu.Unlock()
			return ahead, true
		})
		m.run()
		var h leases
		w.must(m.Contend(h.hold, "s"))
		l := h.await(w, 1)
		answered, deliver := make(chan struct{}, 1), make(chan struct{})
		m.tap.onReply(func(_ string, do func()) {
			do()
			select {
			case answered <- struct{}{}:
			default:
			}
			<-deliver
		})
		<-answered
		mu.Lock()
		ahead = 10 * ttl
		mu.Unlock()
		close(deliver)
		synctest.Wait() // no time passes, so no timer fires
		if cause := context.Cause(l.Context()); !errors.Is(cause, ErrLapsed) || l.Err() == nil {
			w.Errorf("after the reply the lease's cause is %v and Err is %v, want ErrLapsed", cause, l.Err())
		}
		if again := h.await(w, 2); again.Token() <= l.Token() {
			w.Errorf("token %d after %d", again.Token(), l.Token())
		}
	})
}

// S4: a shard counts as released only once the store has confirmed the release.
func TestReleaseIsConfirmed(t *testing.T) {
	onLease(t, func(w *world, m *member, l *Lease) {
		m.link.Set(kvfault.Write, kvfault.DropRequest)
		ctx, cancel := context.WithTimeout(w.Context(), 3*ttl)
		defer cancel()
		if err := m.Withdraw(ctx, "s"); !errors.Is(err, context.DeadlineExceeded) {
			w.Errorf("withdraw while no release reaches the store: %v, want its context's error", err)
		}
		m.link.Heal()
		w.must(m.Withdraw(w.Context(), "s"))
		w.eventually("the release", func() bool { o, _ := m.View().Owner("s"); return o.Session == "" })
	})
}

// W1: a claim is answered after the shard is no longer wanted.
func TestUnwantedGrantIsGivenBack(t *testing.T) {
	bubble(t, func(w *world) {
		m := w.member("a")
		granted, deliver := make(chan struct{}), make(chan struct{})
		m.tap.onReply(func(kind string, do func()) {
			do()
			if kind == callAcquire {
				close(granted)
				<-deliver
			}
		})
		var h leases
		w.must(m.Contend(h.hold, "s"))
		<-granted
		w.must(m.Withdraw(w.Context(), "s"))
		close(deliver)
		w.eventually("the grant to be given back", func() bool {
			o, _ := m.View().Owner("s")
			return o.Token > 0 && o.Session == ""
		})
		if h.count() != 0 {
			w.Error("the handler was called for a shard that is not wanted")
		}
	})
}

// S13: if a watch misses a change, the change is found within a resync interval.
func TestMissedChangeIsFound(t *testing.T) {
	resync := func(o *Options) { o.Resync = 5 * ttl }
	begin := func(w *world) (a, b *member) {
		a, b = w.member("a", resync), w.member("b", resync)
		var h leases
		w.must(a.Contend(h.hold, "s"))
		h.await(w, 1)
		w.eventually("b sees a's lease", func() bool { o, _ := b.View().Owner("s"); return o.Node == "a" })
		return a, b
	}
	within := func(w *world, limit time.Duration, what string, cond func() bool) {
		w.Helper()
		since := time.Now()
		w.eventually(what, cond)
		if took := time.Since(since); took > limit {
			w.Errorf("%s: after %v, want at most %v", what, took, limit)
		}
	}
	t.Run("member", func(t *testing.T) {
		bubble(t, func(w *world) {
			a, b := begin(w)
			var h leases
			w.must(b.Contend(h.hold, "s"))
			w.eventually("b joins", func() bool { return b.View().Trusted })
			b.tap.missChanges()
			w.must(a.Withdraw(w.Context(), "s"))
			within(w, 6*ttl, "b takes what became free", func() bool { return h.count() == 1 })
		})
	})
	t.Run("observer", func(t *testing.T) {
		bubble(t, func(w *world) {
			a, b := begin(w)
			b.tap.missChanges()
			w.must(a.Withdraw(w.Context(), "s"))
			within(w, 11*ttl, "the observer sees what became free", func() bool { o, _ := b.View().Owner("s"); return o.Session == "" })
		})
	})
}

// C5: an observer evicts a silent member even if every third heartbeat of the observer fails.
func TestFlakyObserverTakesOver(t *testing.T) {
	bubble(t, func(w *world) {
		a, b := w.member("a"), w.member("b")
		var h leases
		w.must(a.Contend(h.hold, "s"))
		h.await(w, 1)
		w.must(b.Contend(h.hold, "s"))
		w.eventually("a is seen", func() bool { return len(b.View().Members) == 2 })
		var mu sync.Mutex
		beats := 0
		b.tap.onBeat(func() error {
			mu.Lock()
			defer mu.Unlock()
			if beats++; beats%3 == 0 {
				return errReset
			}
			return nil
		})
		a.link.Cut()
		cut := time.Now()
		h.await(w, 2)
		if took := h.at[1].Sub(cut); took > 3*ttl {
			w.Errorf("took %v", took)
		}
		b.tap.onBeat(nil)
	})
}

// V1: a view may show a member's join before the member gets the reply. The member still watches
// the heartbeats of the others from then on, not only from the next resync.
func TestJoinSeenBeforeItsReply(t *testing.T) {
	bubble(t, func(w *world) {
		var h leases
		a := w.member("a")
		w.must(a.Contend(h.hold, "s"))
		h.await(w, 1)
		b := w.newMember("b")
		b.tap.onReply(func(kind string, do func()) {
			do()
			if kind == callJoin {
				time.Sleep(ttl / 10)
			}
		})
		b.run()
		w.must(b.Contend(h.hold, "s"))
		time.Sleep(ttl)
		a.link.Cut()
		time.Sleep(3 * ttl / 2)
		synctest.Wait()
		if h.count() != 2 {
			w.Errorf("nobody took over within 1.5 TTL")
		}
		a.link.Heal()
	})
}

// S4: the view shows a release whose reply was lost.
func TestReleaseKnownByTheView(t *testing.T) {
	onLease(t, func(w *world, m *member, l *Lease) {
		m.link.Set(kvfault.Write, kvfault.DropReply)
		ctx, cancel := context.WithTimeout(w.Context(), 10*ttl)
		defer cancel()
		w.must(m.Withdraw(ctx, "s"))
		m.link.Heal()
		w.must(m.Withdraw(ctx, "s"))
		if n := len(m.View().Leases); n != 0 {
			w.Errorf("%d leases are left of a shard that was given back", n)
		}
	})
}

// A5: if the reply to a hand-over is lost, the view or the answer to the next attempt shows the
// hand-over. If others have had the shard since, the outcome stays unknown.
func TestHandOverKnownByTheView(t *testing.T) {
	for _, c := range []struct {
		name           string
		blind, movedOn bool
		want           error
	}{
		{"view", false, false, nil},
		{"next answer", true, false, nil},
		{"moved on", true, true, ErrUnknown},
	} {
		t.Run(c.name, func(t *testing.T) {
			onLease(t, func(w *world, m *member, l *Lease) {
				b := w.member("b")
				var h leases
				w.must(b.Contend(h.hold, "s"))
				w.eventually("both know the other", func() bool { return len(m.View().Members) == 2 && len(b.View().Members) == 2 })
				if c.blind {
					m.tap.missChanges()
				}
				m.link.Set(kvfault.Write, kvfault.DropReply)
				ctx, cancel := context.WithTimeout(w.Context(), 10*ttl)
				defer cancel()
				done := make(chan error, 1)
				go func() { done <- m.HandOver(ctx, b.View().Session, "s") }()
				h.await(w, 1)
				if c.movedOn {
					w.must(b.Withdraw(ctx, "s"))
				}
				m.link.Heal()
				if err := <-done; !errors.Is(err, c.want) {
					w.Errorf("hand-over: %v, want %v", err, c.want)
				}
			})
		})
	}
}

// A5: if this member contends for the shard again before its hand-over is sent, the hand-over does
// not happen, although the store answers a call. This member keeps the shard, with a new token.
// Only the machine interprets replies.
func TestHandOverOfShardContendedAgain(t *testing.T) {
	bubble(t, func(w *world) {
		a, b := w.member("a"), w.member("b")
		var ha, hb leases
		stopped, free := make(chan struct{}), make(chan struct{})
		w.must(a.Contend(func(ctx context.Context, l *Lease) error {
			ha.add(l)
			<-ctx.Done()
			close(stopped)
			<-free
			return nil
		}, "s"))
		l := ha.await(w, 1)
		w.must(b.Contend(hb.hold, "s"))
		w.eventually("a sees b", func() bool { return len(a.View().Members) == 2 })
		done := make(chan error, 1)
		go func() { done <- a.HandOver(w.Context(), b.View().Session, "s") }()
		<-stopped
		w.must(a.Contend(ha.hold, "s"))
		close(free)
		if again := ha.await(w, 2); again.Token() <= l.Token() || hb.count() != 0 {
			w.Errorf("token %d after %d, %d leases of b", again.Token(), l.Token(), hb.count())
		}
		if err := <-done; err == nil || !strings.Contains(err.Error(), string(a.View().Session)) {
			w.Errorf("hand-over: %v, want an error that names a's session", err)
		}
	})
}

// A hand-over that the store keeps refusing fails with the store's error, although the machine
// tries again.
func TestHandOverRefused(t *testing.T) {
	onLease(t, func(w *world, m *member, l *Lease) {
		b := w.member("b")
		w.must(b.Contend((&leases{}).hold, "t"))
		w.eventually("both know the other", func() bool { return len(m.View().Members) == 2 })
		m.tap.onTransfer(func([]driver.Transfer) []driver.AcquireResult {
			return []driver.AcquireResult{{Err: fmt.Errorf("no room: %w", ErrTooLarge)}}
		})
		if err := m.HandOver(w.Context(), b.View().Session, "s"); !errors.Is(err, ErrTooLarge) {
			w.Errorf("hand-over: %v, want ErrTooLarge", err)
		}
		if n := len(m.View().Leases); n != 0 {
			w.Errorf("%d leases are left of a shard whose handler returned", n)
		}
		m.tap.onTransfer(nil)
		w.eventually("the next attempt", func() bool { o, _ := b.View().Owner("s"); return o.Session != l.Fence().Session })
	})
}

func TestHandOverEndsWithRun(t *testing.T) {
	onLease(t, func(w *world, m *member, l *Lease) {
		b := w.member("b")
		w.must(b.Contend((&leases{}).hold, "t"))
		w.eventually("both know the other", func() bool { return len(m.View().Members) == 2 })
		m.link.Set(kvfault.Write, kvfault.DropRequest)
		done := make(chan error, 1)
		go func() { done <- m.HandOver(w.Context(), b.View().Session, "s") }()
		synctest.Wait()
		if err := m.end(); err == nil {
			w.Error("Run: no error, although the session could not be closed")
		}
		var ended *RevokedError
		if err := <-done; !errors.As(err, &ended) || ended.Fence != l.Fence() || ended.cause != fsm.CauseLeft {
			w.Errorf("hand-over: %v, want how the lease ended", err)
		}
	})
}

// A hand-over ends with Run even if the shard's last commit is unanswered.
func TestHandOverEndsWithACommit(t *testing.T) {
	bubble(t, func(w *world) {
		a, b := w.member("a"), w.member("b")
		var h leases
		w.must(a.Contend(func(ctx context.Context, l *Lease) error { h.add(l); <-ctx.Done(); return nil }, "s"))
		l := h.await(w, 1)
		w.must(b.Contend(h.hold, "t"))
		w.eventually("a sees b", func() bool { return len(a.View().Members) == 2 })
		a.tap.onCommit(func(_ driver.Session, ctx context.Context, _ []driver.Write) ([]driver.CommitResult, error) {
			<-ctx.Done()
			return nil, ErrUnknown
		})
		go func() { _, _ = l.Append(w.Context(), nil) }()
		synctest.Wait()
		given := make(chan error, 1)
		go func() { given <- a.HandOver(w.Context(), b.View().Session, "s") }()
		synctest.Wait()
		if err := a.end(); err == nil || !strings.Contains(err.Error(), "left to be evicted") {
			w.Errorf("Run: %v", err)
		}
		var ended *RevokedError
		if err := <-given; !errors.As(err, &ended) || ended.Fence != l.Fence() || ended.cause != fsm.CauseDrainBudget {
			w.Errorf("hand-over: %v, want how the lease ended", err)
		}
	})
}

// S12: a handler that has returned is not stuck, even if the outcome of its last commit is unknown.
// The shard is not released before that outcome is known.
func TestReturnedIsNotStuck(t *testing.T) {
	for _, ends := range []bool{false, true} {
		t.Run(fmt.Sprint("run ends ", ends), func(t *testing.T) {
			bubble(t, func(w *world) {
				m := w.member("a", func(o *Options) { o.DrainBudget, o.CallTimeout = ttl/4, 5*ttl })
				var h leases
				w.must(m.Contend(func(ctx context.Context, l *Lease) error {
					h.add(l)
					<-ctx.Done()
					return nil
				}, "s"))
				l := h.await(w, 1)
				m.tap.onCommit(func(_ driver.Session, ctx context.Context, _ []driver.Write) ([]driver.CommitResult, error) {
					<-ctx.Done()
					return nil, ErrUnknown
				})
				go func() { _, _ = l.Append(w.Context(), nil) }()
				synctest.Wait()
				if ends {
					start := time.Now()
					err := m.end()
					if err == nil || errors.Is(err, ErrStuck) || !strings.Contains(err.Error(), "last commit") {
						w.Errorf("Run: %v", err)
					}
					if took, most := time.Since(start), ttl/4+2*5*ttl; took > most {
						w.Errorf("Run took %v to end, more than %v", took, most)
					}
				} else {
					m.link.Cut()
					w.eventually("the handler to return", func() bool { return len(m.said("return")) > 0 })
				}
				if got := m.said("stuck"); len(got) > 0 {
					w.Errorf("hooks: %q", got)
				}
			})
		})
	}
}

// C6: full reads that take longer than the time between two resyncs, and longer than TTL/2,
// restore a member whose trust lapsed.
func TestSlowReadsEndALapse(t *testing.T) {
	onLease(t, func(w *world, m *member, l *Lease) {
		m.link.Cut()
		w.eventually("the lapse", func() bool { return l.Err() != nil })
		m.tap.onLook(func(q driver.ObserveQuery) error {
			if q.Since == "" {
				time.Sleep(ttl * 3 / 4)
			}
			return nil
		})
		m.link.Heal()
		start := time.Now()
		w.eventually("trust again", func() bool { return m.View().Trusted })
		if took := time.Since(start); took > 5*ttl {
			w.Errorf("trusted again after %v", took)
		}
	})
}

// S13: a full read that takes longer than the time between two resyncs continues to its end, and
// another follows. A resync ends a call that only waits for changes.
func TestResyncLeavesAFullRead(t *testing.T) {
	onLease(t, func(w *world, m *member, l *Lease) {
		m.tap.onLook(func(q driver.ObserveQuery) error {
			if q.Since == "" {
				time.Sleep(ttl / 4)
			}
			return nil
		})
		resync := func() (reading, ended bool) {
			m.Elector.mu.Lock()
			defer m.Elector.mu.Unlock()
			end := m.observing
			m.observing = func() { ended = true; end() }
			m.do(&fsm.Effect{Kind: fsm.EffResync})
			m.observing = end
			return m.reading, ended
		}
		if reading, ended := resync(); reading || !ended {
			w.Errorf("a call that waits: reading %v, ended %v", reading, ended)
		}
		time.Sleep(ttl / 8)
		if reading, ended := resync(); !reading || ended {
			w.Errorf("a full read under way: reading %v, ended %v", reading, ended)
		}
		time.Sleep(ttl)
	})
}

// I1, S14: a changed store halts the member, regardless of which call finds the change.
func TestStoreChangedIsFoundByAnyCall(t *testing.T) {
	changed := fmt.Errorf("another store: %w", ErrStoreChanged)
	for name, find := range map[string]func(w *world, m *member, l *Lease){
		"commit": func(w *world, m *member, l *Lease) {
			m.tap.onCommit(func(driver.Session, context.Context, []driver.Write) ([]driver.CommitResult, error) {
				return nil, changed
			})
			if _, err := l.Append(w.Context(), nil); !errors.Is(err, ErrStoreChanged) {
				w.Errorf("append: %v", err)
			}
		},
		"head went back": func(w *world, m *member, l *Lease) {
			_, err := l.Append(w.Context(), nil)
			w.must(err)
			m.tap.onCommit(func(_ driver.Session, _ context.Context, ws []driver.Write) ([]driver.CommitResult, error) {
				return []driver.CommitResult{{Err: &driver.ConflictError{Shard: "s", Op: driver.NumberConflict, Head: driver.Head{}}}}, nil
			})
			if _, err := l.Append(w.Context(), nil); !errors.Is(err, ErrStoreChanged) {
				w.Errorf("append: %v", err)
			}
		},
		"commit in doubt": func(w *world, m *member, l *Lease) {
			first := true
			m.tap.onCommit(func(next driver.Session, ctx context.Context, ws []driver.Write) ([]driver.CommitResult, error) {
				if first {
					first = false
					return loseReply(next, ctx, ws)
				}
				return nil, changed
			})
			if _, err := l.Append(w.Context(), nil); !errors.Is(err, ErrUnknown) {
				w.Errorf("append: %v, want ErrUnknown", err)
			}
		},
		"read": func(w *world, m *member, l *Lease) {
			m.tap.onReadLog(func() error { return changed })
			if _, err := l.ReadLog(w.Context(), 0, 1); !errors.Is(err, ErrStoreChanged) {
				w.Errorf("read: %v", err)
			}
		},
		"view": func(w *world, m *member, l *Lease) {
			m.tap.onLook(func(driver.ObserveQuery) error { return changed })
			other := w.member("b")
			var h leases
			w.must(other.Contend(h.hold, "other")) // ends the call in progress
		},
	} {
		t.Run(name, func(t *testing.T) {
			onLease(t, func(w *world, m *member, l *Lease) {
				find(w, m, l)
				w.eventually("halt", func() bool { return m.View().Err != nil })
				if err := l.Err(); !errors.Is(err, ErrStoreChanged) {
					w.Errorf("Err is %v, want ErrStoreChanged", err)
				}
				if err := m.end(); !errors.Is(err, ErrStoreChanged) {
					w.Errorf("Run: %v, want ErrStoreChanged", err)
				}
			})
		})
	}
}

// I1, S14: reads of a shard's head also find a changed store, before the handler starts and for a
// commit in doubt.
func TestStoreChangedIsFoundByHead(t *testing.T) {
	changed := fmt.Errorf("another store: %w", ErrStoreChanged)
	halts := func(w *world, m *member) {
		w.Helper()
		w.eventually("halt", func() bool { return m.View().Err != nil })
		if err := m.end(); !errors.Is(err, ErrStoreChanged) {
			w.Errorf("Run: %v, want ErrStoreChanged", err)
		}
	}
	t.Run("grant", func(t *testing.T) {
		onLease(t, func(w *world, m *member, l *Lease) {
			b := w.member("b")
			var h leases
			w.must(b.Contend(h.hold, "s"))
			w.eventually("both know the other", func() bool { return len(m.View().Members) == 2 && len(b.View().Members) == 2 })
			b.tap.onReadLog(func() error { return changed })
			b.tap.withoutHeads() // a successor learns of its lease from its view
			w.must(m.HandOver(w.Context(), b.View().Session, "s"))
			halts(w, b)
			if h.count() != 0 {
				w.Error("the handler was called")
			}
		})
	})
	t.Run("commit in doubt", func(t *testing.T) {
		onLease(t, func(w *world, m *member, l *Lease) {
			m.tap.onReadLog(func() error { return changed })
			m.tap.onCommit(times(1, func(next driver.Session, ctx context.Context, ws []driver.Write) ([]driver.CommitResult, error) {
				res, err := loseReply(next, ctx, ws)
				w.takeOver(m, 0)
				return res, err
			}))
			if _, err := l.Append(w.Context(), nil); !errors.Is(err, ErrUnknown) {
				w.Errorf("append: %v, want ErrUnknown", err)
			}
			halts(w, m)
		})
	})
}

// V1: one server is silent while another answers, so the first call of one kind is not answered.
// The shard still gets an owner within two TTLs after a process starts, or after the former owner
// dies or hands over.
func TestSilentCallDelaysNoTakeover(t *testing.T) {
	t.Parallel()
	for _, op := range []intercept.Op{intercept.Join, intercept.Observe, intercept.Acquire, intercept.Evict, intercept.ReadLog} {
		for _, ttl := range []time.Duration{200 * time.Millisecond, time.Second, 10 * time.Second} {
			t.Run(fmt.Sprint(op, "/", ttl), func(t *testing.T) {
				bubble(t, func(w *world) {
					var h leases
					opts := func(o *Options) { o.TTL, o.CallTimeout = ttl, 0 }
					m := w.newMember("a", opts)
					var silent atomic.Bool
					m.b = intercept.Wrap(m.tap, func(ctx context.Context, c *intercept.Call, proceed func(context.Context) error) error {
						if c.Op == op && !silent.Swap(true) {
							<-ctx.Done()
							return ctx.Err()
						}
						return proceed(ctx)
					})
					leases, began := 1, time.Now()
					if op == intercept.Evict || op == intercept.ReadLog {
						former := w.member("former", opts)
						w.must(former.Contend(h.hold, "s"))
						h.await(w, 1)
						m.tap.withoutHeads()
						w.must(m.Contend(h.hold, "s"))
						m.run()
						w.eventually("each sees the other", func() bool { return len(m.View().Members)+len(former.View().Members) == 4 })
						leases, began = 2, time.Now()
						if op == intercept.Evict {
							former.link.Cut()
						} else {
							w.must(former.HandOver(w.Context(), m.View().Session, "s"))
						}
					} else {
						w.must(m.Contend(h.hold, "s"))
						m.run()
					}
					h.await(w, leases)
					took := time.Since(began)
					t.Logf("owned after %.2f TTLs", took.Seconds()/ttl.Seconds())
					if took > 2*ttl || !silent.Load() {
						w.Errorf("owned after %v, want at most %v; a call had no answer: %v", took, 2*ttl, silent.Load())
					}
				})
			})
		}
	}
}

// TestSlowConnectionDelaysNoOwnerForEver: a member can join and claim even if connecting to the
// store takes longer than half a TTL. A backend that gives up while it connects reports that
// nothing was applied, which does not count as an answer of the store (C4).
func TestSlowConnectionDelaysNoOwnerForEver(t *testing.T) {
	t.Parallel()
	for _, op := range []intercept.Op{intercept.Join, intercept.Acquire} {
		t.Run(fmt.Sprint(op), func(t *testing.T) {
			bubble(t, func(w *world) {
				const ttl = time.Second
				var h leases
				m := w.newMember("a", func(o *Options) { o.TTL, o.CallTimeout = ttl, 0 })
				m.b = intercept.Wrap(m.tap, func(ctx context.Context, c *intercept.Call, proceed func(context.Context) error) error {
					if c.Op == op {
						select {
						case <-ctx.Done():
							return fmt.Errorf("tenure: %w: no connection: %w", driver.ErrRetry, ctx.Err())
						case <-time.After(ttl * 3 / 4):
						}
					}
					return proceed(ctx)
				})
				w.must(m.Contend(h.hold, "s"))
				began := time.Now()
				m.run()
				for h.count() == 0 && time.Since(began) < 20*ttl {
					time.Sleep(ttl / 10)
				}
				if took := time.Since(began); took > 5*ttl {
					w.Errorf("owned after %v, want at most %v", took, 5*ttl)
				}
			})
		})
	}
}

// TestSlowConnectionIsRegainedThrough: trust that lapsed in an outage is regained even if
// connecting takes longer than half a TTL after the outage (C6, V1).
func TestSlowConnectionIsRegainedThrough(t *testing.T) {
	bubble(t, func(w *world) {
		const ttl = time.Second
		var h leases
		var away atomic.Bool
		var mu sync.Mutex
		connected := map[intercept.Op]bool{intercept.Beat: true, intercept.Get: true}
		m := w.newMember("a", func(o *Options) { o.TTL, o.CallTimeout = ttl, 0 })
		m.b = intercept.Wrap(m.tap, func(ctx context.Context, c *intercept.Call, proceed func(context.Context) error) error {
			if c.Op != intercept.Beat && c.Op != intercept.Get {
				return proceed(ctx)
			}
			mu.Lock()
			ready := connected[c.Op]
			mu.Unlock()
			connecting := time.After(ttl * 3 / 4)
			if away.Load() {
				connecting = nil
			}
			if !ready || away.Load() {
				select {
				case <-ctx.Done():
					return fmt.Errorf("tenure: %w: no connection: %w", driver.ErrRetry, ctx.Err())
				case <-connecting:
				}
				mu.Lock()
				connected[c.Op] = true
				mu.Unlock()
			}
			return proceed(ctx)
		})
		w.must(m.Contend(h.hold, "s"))
		m.run()
		h.await(w, 1)
		away.Store(true)
		mu.Lock()
		clear(connected)
		mu.Unlock()
		w.eventually("a lapse", func() bool { return !m.View().Trusted })
		time.Sleep(3 * ttl)
		away.Store(false)
		began := time.Now()
		for !m.View().Trusted && time.Since(began) < 30*ttl {
			time.Sleep(ttl / 10)
		}
		if took := time.Since(began); took > 10*ttl {
			w.Errorf("trusted again %v after the outage, want at most %v", took, 10*ttl)
		}
	})
}
