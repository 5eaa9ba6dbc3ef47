package effect

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/core/control"
	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/keyspace"
	"github.com/tenure-go/tenure/internal/proof/loglines"
)

func never(context.Context, string) ([]byte, error) { panic("called") }

// TestDoOnce: an effect that is requested several times happens once, and its result is kept.
func TestDoOnce(t *testing.T) {
	bubble(t, func(w *world) {
		p := newProvider(false)
		one := w.lead("a")
		l := one.open(Options{})
		var group sync.WaitGroup
		for range 10 {
			group.Go(func() {
				if out, err := w.do(l, "pay/1", func(ctx context.Context, id string) ([]byte, error) {
					time.Sleep(time.Second)
					return p.pay("paid")(ctx, id)
				}); out != "paid" || err != nil {
					w.Errorf("got %q, %v", out, err)
				}
			})
		}
		group.Wait()
		if out, err := w.do(l, "pay/1", never); out != "paid" || err != nil {
			w.Errorf("got %q, %v again", out, err)
		}
		l.Close()
		one.resign()

		two := w.lead("b")
		l = two.open(Options{})
		if out, err := w.do(l, "pay/1", never); out != "paid" || err != nil {
			w.Errorf("got %q, %v of the next leader", out, err)
		}
		e, err := l.Lookup(context.Background(), "pay/1")
		if err != nil || e.State != Done || string(e.Result) != "paid" || e.Attempts != 1 || e.ID != ID("test/pay", "pay/1") {
			w.Errorf("looked up %+v, %v", e, err)
		}
		if e, err := l.Lookup(context.Background(), "pay/2"); e != nil || err != nil {
			w.Errorf("looked up %+v, %v of what was never begun", e, err)
		}
		if n := p.count(ID("test/pay", "pay/1")); n != 1 {
			w.Errorf("%d charges", n)
		}
		l.Close()
		two.resign()
	})
}

// TestTakeover: if a leader dies after it has begun an effect, the effect is in doubt for the next
// leader, and is not attempted again.
func TestTakeover(t *testing.T) {
	bubble(t, func(w *world) {
		p := newProvider(false)
		one := w.lead("a")
		l := one.open(Options{})
		died := make(chan error, 1)
		go func() {
			_, err := w.do(l, "pay/1", func(ctx context.Context, id string) ([]byte, error) {
				p.charge(id)
				one.die()
				<-ctx.Done()
				if !errors.Is(context.Cause(ctx), core.ErrLost) {
					w.Errorf("fn's context ended by %v", context.Cause(ctx))
				}
				return []byte("paid"), nil
			})
			died <- err
		}()
		if err := <-died; !errors.Is(err, ErrInDoubt) || !errors.Is(err, core.ErrLost) || core.NotApplied(err) {
			w.Errorf("the one that died got %v", err)
		}
		if _, err := w.do(l, "pay/2", never); !errors.Is(err, core.ErrLost) || errors.Is(err, ErrInDoubt) || !core.NotApplied(err) {
			w.Errorf("an effect after the end: %v", err)
		}
		l.Close()

		two := w.lead("b")
		var told []error
		l = two.open(Options{Logger: loglines.Failures("tenure: effect", func(err error) { told = append(told, err) })})
		if e, err := l.Lookup(context.Background(), "pay/1"); err != nil || e.State != InDoubt {
			w.Errorf("looked up %+v, %v", e, err)
		}
		for range 2 {
			if _, err := w.do(l, "pay/1", never); !errors.Is(err, ErrInDoubt) || !errors.Is(err, core.ErrUnknown) {
				w.Errorf("got %v", err)
			}
		}
		if len(told) != 1 {
			w.Errorf("the log has %v, want once", told)
		}
		all, err := l.InDoubt(context.Background())
		if err != nil || len(all) != 1 || all[0].Key != "pay/1" || all[0].State != InDoubt || all[0].Token != two.lease.Token() {
			w.Errorf("in doubt: %+v, %v", all, err)
		}
		all, err = ReadOpen(context.Background(), two.b, "pay", 10)
		if err != nil || len(all) != 1 || all[0].Key != "pay/1" || !strings.Contains(all[0].Reason, "ended before the outcome") {
			w.Errorf("read without a lease: %+v, %v", all, err)
		}
		l.Close()
		two.resign()
		one.bury()
	})
}

// TestLateCall: a leader is stopped after it has written the intent, and makes its call after the
// next leader has decided. The call does no harm if keys are honored, or if unknown outcomes are
// left in doubt. If a resolver repeats an unknown effect, there are two charges. The package
// comment states this limit.
func TestLateCall(t *testing.T) {
	for name, x := range map[string]struct {
		honours bool
		decides State
		charges int
		listed  int
	}{
		"keys": {true, Repeat, 1, 0}, "left in doubt": {false, InDoubt, 1, 1}, "careless": {false, Repeat, 2, 0},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(w *world) {
				p, id := newProvider(x.honours), ID("test/pay", "pay/1")
				one := w.lead("a")
				l := one.open(Options{})
				goOn := make(chan struct{})
				go func() {
					_, _ = w.do(l, "pay/1", func(_ context.Context, id string) ([]byte, error) {
						<-goOn // the leader is stopped here
						return p.pay("paid late")(context.Background(), id)
					})
				}()
				synctest.Wait()
				one.die()
				two := w.lead("b")
				next := two.open(Options{Resolve: func(_ context.Context, e Effect) (Decision, error) {
					if p.count(e.ID) != 0 {
						w.Error("charged before the call")
					}
					return Decision{State: x.decides}, nil
				}})
				_, err := w.do(next, "pay/1", p.pay("paid"))
				if (err == nil) != (x.decides == Repeat) {
					w.Error(err)
				}
				close(goOn)
				l.Close()
				open, err := ReadOpen(context.Background(), two.b, "pay", 10)
				if p.count(id) != x.charges || len(open) != x.listed || err != nil {
					w.Errorf("%d charges, in doubt: %+v, %v", p.count(id), open, err)
				}
				next.Close()
				two.resign()
				one.bury()
			})
		})
	}
}

// TestResolve: the next leader's resolver decides an open effect before a Do with the effect's key
// continues.
func TestResolve(t *testing.T) {
	for state, want := range map[State]string{Done: "found", Repeat: "paid", Failed: "failed", InDoubt: "in doubt", "": "in doubt"} {
		t.Run("state="+string(state), func(t *testing.T) {
			bubble(t, func(w *world) {
				one := w.lead("a")
				l := one.open(Options{})
				_, err := w.do(l, "pay/1", func(context.Context, string) ([]byte, error) {
					one.die()
					return nil, errLost
				})
				if !errors.Is(err, ErrInDoubt) {
					w.Error(err)
				}
				l.Close()
				two := w.lead("b")
				var asked atomic.Int32
				l = two.open(Options{Resolve: func(_ context.Context, e Effect) (Decision, error) {
					time.Sleep(time.Second)
					if e.Key != "pay/1" || e.State != Begun || e.ID != ID("test/pay", "pay/1") || e.Began.IsZero() {
						w.Errorf("asked about %+v", e)
					}
					if asked.Add(1) == 1 {
						return Decision{}, errors.New("no answer")
					}
					return Decision{State: state, Result: []byte("found"), Reason: "asked\x1b"}, nil
				}})
				out, err := w.do(l, "pay/1", newProvider(false).pay("paid"))
				if err == nil && out != want || err != nil && !strings.Contains(err.Error(), want) {
					w.Errorf("got %q, %v, want %s", out, err, want)
				}
				e, err := l.Lookup(context.Background(), "pay/1")
				if err != nil || strings.Contains(e.Reason, "\x1b") || state != Repeat && e.Reason != "asked?" {
					w.Errorf("looked up %+v, %v", e, err)
				}
				if asked.Load() != 2 {
					w.Errorf("asked %d times", asked.Load())
				}
				l.Close()
				two.resign()
				one.bury()
			})
		})
	}
}

// TestResolveLater: an effect for which the resolver fails stays open, and the resolver is called
// again a minute later.
func TestResolveLater(t *testing.T) {
	bubble(t, func(w *world) {
		one := w.lead("a")
		var down atomic.Bool
		down.Store(true)
		l := one.open(Options{Resolve: func(context.Context, Effect) (Decision, error) {
			if down.Load() {
				return Decision{}, errors.New("the provider is down")
			}
			return Decision{State: Done, Result: []byte("found")}, nil
		}})
		if _, err := w.do(l, "pay/1", newProvider(false).lose(1)); !errors.Is(err, ErrInDoubt) || !strings.Contains(err.Error(), "is down") {
			w.Error(err)
		}
		down.Store(false)
		time.Sleep(2 * laterEvery)
		if e, err := l.Lookup(context.Background(), "pay/1"); err != nil || e.State != Done {
			w.Errorf("looked up %+v, %v", e, err)
		}
		l.Close()
		one.resign()
	})
}

// TestUnknownOutcome: if an attempt gets no answer, it is repeated with the same key only if the
// receiver honors keys.
func TestUnknownOutcome(t *testing.T) {
	bubble(t, func(w *world) {
		one := w.lead("a")
		id := ID("test/pay", "pay/1")
		p := newProvider(false)
		l := one.open(Options{})
		if _, err := w.do(l, "pay/1", p.lose(1)); !errors.Is(err, ErrInDoubt) {
			w.Error(err)
		}
		if p.calls != 1 || p.count(id) != 1 {
			w.Errorf("%d calls, %d charges", p.calls, p.count(id))
		}
		l.Close()

		p, id = newProvider(true), ID("test/pay", "pay/2")
		l = one.open(Options{Repeatable: true, Attempts: 3})
		if out, err := w.do(l, "pay/2", p.lose(2)); out != "paid" || err != nil {
			w.Errorf("got %q, %v", out, err)
		}
		if p.calls != 3 || p.count(id) != 1 {
			w.Errorf("%d calls, %d charges", p.calls, p.count(id))
		}
		p = newProvider(true)
		if _, err := w.do(l, "pay/3", p.lose(4)); !errors.Is(err, ErrInDoubt) || p.calls != 3 {
			w.Errorf("got %v after %d calls", err, p.calls)
		}
		if out, err := w.do(l, "pay/3", p.lose(4)); out != "paid" || err != nil || p.calls != 5 {
			w.Errorf("got %q, %v after %d calls", out, err, p.calls)
		}
		l.Close()
		one.resign()
	})
}

// TestKnownOutcome: if an effect certainly did not happen, it is never in doubt, and the function's
// error determines whether it is attempted again.
func TestKnownOutcome(t *testing.T) {
	bubble(t, func(w *world) {
		one := w.lead("a")
		l := one.open(Options{Attempts: 3})
		calls := 0
		declined, busy := errors.New("declined\nby the bank"), errors.New("busy")
		if out, err := w.do(l, "pay/1", func(context.Context, string) ([]byte, error) {
			if calls++; calls < 3 {
				return nil, NotDone(busy)
			}
			return []byte("paid"), nil
		}); out != "paid" || err != nil || calls != 3 {
			w.Errorf("got %q, %v after %d calls", out, err, calls)
		}
		calls = 0
		_, err := w.do(l, "pay/2", func(context.Context, string) ([]byte, error) { calls++; return nil, Refused(declined) })
		if !errors.Is(err, ErrFailed) || !errors.Is(err, declined) || calls != 1 || strings.Contains(err.Error(), "\n") {
			w.Errorf("got %v after %d calls", err, calls)
		}
		if _, err := w.do(l, "pay/2", never); !errors.Is(err, ErrFailed) || !strings.Contains(err.Error(), "declined") {
			w.Errorf("got %v again", err)
		}
		calls = 0
		_, err = w.do(l, "pay/3", func(context.Context, string) ([]byte, error) { calls++; return nil, NotDone(busy) })
		if !errors.Is(err, ErrFailed) || calls != 3 {
			w.Errorf("got %v after %d calls", err, calls)
		}
		l.Close()
		// After an attempt without an answer, no later refusal proves that nothing happened.
		l = one.open(Options{Repeatable: true})
		calls = 0
		_, err = w.do(l, "pay/4", func(context.Context, string) ([]byte, error) {
			if calls++; calls == 1 {
				return nil, errLost
			}
			return nil, Refused(declined)
		})
		if !errors.Is(err, ErrInDoubt) || errors.Is(err, ErrFailed) {
			w.Errorf("got %v", err)
		}
		l.Close()
		one.resign()
	})
}

// TestDeadline: a function's context ends after the deadline. If the ledger is closed between two
// attempts, the effect is left to the next leader.
func TestDeadline(t *testing.T) {
	bubble(t, func(w *world) {
		one := w.lead("a")
		l := one.open(Options{Deadline: time.Second, Attempts: 100, BackoffMin: 10 * time.Second, BackoffMax: 20 * time.Second})
		type value struct{}
		from := time.Now()
		ctx := context.WithValue(context.Background(), value{}, "of the caller")
		_, err := l.Do(ctx, "pay/1", func(ctx context.Context, _ string) ([]byte, error) {
			if ctx.Value(value{}) != "of the caller" {
				w.Error("the context has not the caller's values")
			}
			<-ctx.Done()
			return nil, ctx.Err()
		})
		if took := time.Since(from); !errors.Is(err, ErrInDoubt) || took < time.Second || took > 1100*time.Millisecond {
			w.Errorf("got %v after %v", err, took)
		}
		l.Close()
		l = one.open(Options{Attempts: 100, BackoffMin: 10 * time.Second, BackoffMax: 20 * time.Second})
		done := make(chan error, 1)
		go func() {
			_, err := w.do(l, "pay/2", func(context.Context, string) ([]byte, error) { return nil, NotDone(errors.New("busy")) })
			done <- err
		}()
		synctest.Wait()
		l.Close()
		if err := <-done; !errors.Is(err, core.ErrRetry) || errors.Is(err, ErrInDoubt) {
			w.Errorf("got %v", err)
		}
		if _, err := w.do(l, "pay/3", never); !errors.Is(err, core.ErrClosed) {
			w.Errorf("got %v after Close", err)
		}
		l = one.open(Options{})
		if out, err := w.do(l, "pay/2", newProvider(false).pay("paid")); out != "paid" || err != nil {
			w.Errorf("got %q, %v", out, err)
		}
		l.Close()
		one.resign()
	})
}

// TestCallerGoes: when a caller's context ends, the caller stops waiting, but an effect that has
// begun continues. An effect that has not begun does not begin.
func TestCallerGoes(t *testing.T) {
	bubble(t, func(w *world) {
		one := w.lead("a")
		l := one.open(Options{Concurrent: 1})
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		var group sync.WaitGroup
		group.Go(func() {
			_, err := l.Do(ctx, "pay/1", func(ctx context.Context, _ string) ([]byte, error) {
				time.Sleep(5 * time.Second)
				return []byte("paid"), ctx.Err()
			})
			if !errors.Is(err, core.ErrUnknown) || !errors.Is(err, context.DeadlineExceeded) || core.NotApplied(err) {
				w.Errorf("the first got %v", err)
			}
		})
		synctest.Wait()
		if _, err := l.Do(ctx, "pay/2", never); !errors.Is(err, core.ErrRetry) || !core.NotApplied(err) {
			w.Errorf("the second got %v", err)
		}
		if _, err := l.Do(ctx, "pay/3", never); !errors.Is(err, core.ErrRetry) {
			w.Errorf("the third got %v", err)
		}
		l.Close()
		group.Wait()
		l = one.open(Options{})
		if out, err := w.do(l, "pay/1", never); out != "paid" || err != nil {
			w.Errorf("got %q, %v", out, err)
		}
		if e, err := l.Lookup(context.Background(), "pay/2"); e != nil || err != nil {
			w.Errorf("looked up %+v, %v of what did not begin", e, err)
		}
		l.Close()
		one.resign()
	})
}

// TestIntentNotWritten: fn is not called before the intent is in the store.
func TestIntentNotWritten(t *testing.T) {
	bubble(t, func(w *world) {
		one := w.lead("a")
		l := one.open(Options{})
		one.link.Cut()
		if _, err := w.do(l, "pay/1", never); err == nil || errors.Is(err, ErrInDoubt) {
			w.Errorf("got %v", err)
		}
		l.Close()
		one.bury()
	})
}

// TestNotKept: a result that is too large does not hide that the effect happened.
func TestNotKept(t *testing.T) {
	bubble(t, func(w *world) {
		one := w.lead("a")
		l := one.open(Options{MaxResult: 10})
		out, err := w.do(l, "pay/1", newProvider(false).pay("eleven bytes"))
		if out != "eleven bytes" || !errors.Is(err, ErrNotKept) {
			w.Errorf("got %q, %v", out, err)
		}
		if out, err := w.do(l, "pay/1", never); out != "" || !errors.Is(err, ErrNotKept) {
			w.Errorf("got %q, %v again", out, err)
		}
		if e, err := l.Lookup(context.Background(), "pay/1"); err != nil || e.State != Done || e.NotKept != 12 {
			w.Errorf("looked up %+v, %v", e, err)
		}
		l.Close()
		one.resign()
	})
}

// TestTrim: ended effects are kept for Keep, and then removed with all their items. Open effects
// stay.
func TestTrim(t *testing.T) {
	bubble(t, func(w *world) {
		one := w.lead("a")
		l := one.open(Options{Keep: time.Hour, Concurrent: 1000})
		var group sync.WaitGroup
		for i := range 1000 {
			group.Go(func() {
				if _, err := w.do(l, fmt.Sprintf("pay/%d", i), newProvider(false).pay("paid")); err != nil {
					w.Error(err)
				}
			})
		}
		group.Wait()
		if _, err := w.do(l, "doubt", newProvider(false).lose(1)); !errors.Is(err, ErrInDoubt) {
			w.Error(err)
		}
		time.Sleep(50 * time.Minute)
		if _, err := w.do(l, "late", newProvider(false).pay("late")); err != nil {
			w.Error(err)
		}
		if n := len(w.items(one, recordPrefix)); n != 1002 {
			w.Errorf("%d records, want all", n)
		}
		time.Sleep(30 * time.Minute)
		for prefix, want := range map[string]string{recordPrefix: "effect/e/doubt effect/e/late", openPrefix: "effect/o/doubt"} {
			if got := strings.Join(w.items(one, prefix), " "); got != want {
				w.Errorf("left: %s, want %s", got, want)
			}
		}
		if ends := w.items(one, endPrefix); len(ends) != 1 || !strings.HasSuffix(ends[0], "/late") {
			w.Errorf("left: %s", ends)
		}
		if out, err := w.do(l, "pay/1", newProvider(false).pay("again")); out != "again" || err != nil {
			w.Errorf("got %q, %v after Keep", out, err)
		}
		l.Close()
		one.resign()
	})
}

// TestTrimWhole: one write removes both a record and its entry in the index of ends, even if a
// commit takes an odd number of operations. Otherwise, the leftover entry would remove the record
// of a later effect with the same key, which may be open.
func TestTrimWhole(t *testing.T) {
	bubble(t, func(w *world) {
		w.writeOps = 15
		one := w.lead("a")
		l := one.open(Options{Keep: time.Minute})
		var group sync.WaitGroup
		for i := range 50 {
			group.Go(func() {
				if _, err := w.do(l, fmt.Sprintf("pay/%d", i), newProvider(false).pay("paid")); err != nil {
					w.Error(err)
				}
			})
		}
		group.Wait()
		time.Sleep(3 * time.Minute)
		if left := w.items(one, Prefix); len(left) > 0 {
			w.Errorf("left: %s", left)
		}
		if w.torn.Load() {
			w.Error("a write removed one of them without the other")
		}
		l.Close()
		one.resign()
	})
}

func (w *world) items(p *leader, prefix string) (keys []string) {
	items, err := p.b.List(context.Background(), "pay", prefix, 0, 0)
	if err != nil {
		w.Error(err)
	}
	for _, it := range items {
		keys = append(keys, it.Key)
	}
	return keys
}

// TestGroupCommit: 64 concurrent effects share their calls. Each effect has two writes, and costs
// at most a tenth of a call. A Do for an effect that is already done returns its result, and does
// not delay other effects.
func TestGroupCommit(t *testing.T) {
	bubble(t, func(w *world) {
		one := w.lead("a")
		l := one.open(Options{})
		const effects = 6400
		p := newProvider(false)
		run := func(from, to int) {
			var group sync.WaitGroup
			next := make(chan int)
			for range 64 {
				group.Go(func() {
					for i := range next {
						if _, err := w.do(l, fmt.Sprintf("pay/%d", i), p.pay("paid")); err != nil {
							w.Error(err)
						}
					}
				})
			}
			for i := from; i < to; i++ {
				next <- i
			}
			close(next)
			group.Wait()
		}
		run(0, effects)
		synctest.Wait() // for the hook
		if w.ops != 5*effects || w.commits*10 > effects {
			w.Errorf("%d effects cost %d calls of %d operations", effects, w.commits, w.ops)
		}
		w.Logf("%.3f calls an effect", float64(w.commits)/effects)
		run(effects-32, effects+32)
		if p.calls != effects+32 {
			w.Errorf("%d calls of the provider, want %d", p.calls, effects+32)
		}
		l.Close()
		one.resign()
	})
}

// TestFull: if too many effects are in doubt, no new effect begins, and Do still returns the
// results of known effects.
func TestFull(t *testing.T) {
	bubble(t, func(w *world) {
		one := w.lead("a")
		l := one.open(Options{MaxInDoubt: 3})
		p := newProvider(false)
		if _, err := w.do(l, "pay/1", p.pay("paid")); err != nil {
			w.Error(err)
		}
		for i := range 3 {
			if _, err := w.do(l, fmt.Sprintf("doubt/%d", i), p.lose(100)); !errors.Is(err, ErrInDoubt) {
				w.Error(err)
			}
		}
		for range 2 {
			if _, err := w.do(l, "pay/2", never); !errors.Is(err, ErrFull) {
				w.Errorf("got %v", err)
			}
			if _, err := w.do(l, "doubt/1", never); !errors.Is(err, ErrInDoubt) {
				w.Errorf("got %v", err)
			}
			if out, err := w.do(l, "pay/1", never); out != "paid" || err != nil {
				w.Errorf("got %q, %v", out, err)
			}
			l.Close()
			l = one.open(Options{MaxInDoubt: 3})
		}
		l.Close()
		l = one.open(Options{MaxInDoubt: 3, Resolve: func(context.Context, Effect) (Decision, error) { return Decision{State: Done}, nil }})
		time.Sleep(time.Second)
		if _, err := w.do(l, "pay/2", p.pay("paid")); err == nil {
			w.Error("what was left to a person under this lease was decided")
		}
		l.Close()
		one.resign()
	})
}

// TestDamaged: errors name damaged records, which do not harm other records.
func TestDamaged(t *testing.T) {
	bubble(t, func(w *world) {
		one := w.lead("a")
		for key, value := range map[string]string{
			"o/a": "{", "o/b": `{"state":"begun","began":"2026-01-02T03:04:05Z"}`, "o/c": `{"state":"odd"}`, "e/a": "\x00",
			"e/b": `{"state":"begun","began":"2026-01-02T03:04:05Z"}`,
			"e/n": `{"state":"repeat","began":"2026-01-02T03:04:05Z","repeats":-1}`, "e/m": `{"state":"done","attempts":-1}`,
			"e/d": `{"state":"done","result":"` + strings.Repeat("A", maxRecord) + `"}`, "t/x/a": "", "t/999999999999999999999999/a": "",
		} {
			if _, err := one.lease.Commit(context.Background(), core.Put(Prefix+key, []byte(value))); err != nil {
				w.Fatal(err)
			}
		}
		var told error
		l := one.open(Options{Logger: loglines.Failures("tenure: effect", func(err error) { told = errors.Join(told, err) })})
		if !errors.Is(told, core.ErrDamaged) || len(told.Error()) > 2000 {
			w.Errorf("told %v", told)
		}
		all, err := l.InDoubt(context.Background())
		if len(all) != 1 || all[0].Key != "b" || !errors.Is(err, core.ErrDamaged) {
			w.Errorf("in doubt %+v, %v", all, err)
		}
		for _, key := range []string{"a", "d", "n", "m"} {
			if _, err := w.do(l, key, never); !errors.Is(err, core.ErrDamaged) {
				w.Errorf("got %v", err)
			}
		}
		if out, err := w.do(l, "e", newProvider(false).pay("paid")); out != "paid" || err != nil {
			w.Errorf("got %q, %v", out, err)
		}
		l.Close()
		one.resign()
	})
}

// TestRefusedArguments: invalid arguments are refused before anything is done.
func TestRefusedArguments(t *testing.T) {
	bubble(t, func(w *world) {
		one := w.lead("a")
		for _, o := range []Options{
			{Concurrent: -1}, {Concurrent: maxConcurrent + 1}, {MaxInDoubt: mostInDoubt + 1}, {MaxResult: MaxMaxResult + 1}, {Attempts: -1},
			{Deadline: -1}, {BackoffMin: time.Second, BackoffMax: time.Millisecond}, {Keep: time.Millisecond}, {Scope: "a\x00b"},
		} {
			if _, err := Open(context.Background(), one.lease, &o); !errors.Is(err, core.ErrInvalid) {
				w.Errorf("%+v: %v", o, err)
			}
		}
		w.shard = driver.LockPrefix + "x"
		locked := w.lead("b")
		if _, err := Open(context.Background(), locked.lease, nil); !errors.Is(err, core.ErrInvalid) {
			w.Errorf("a ledger on a lock: %v", err)
		}
		locked.resign()
		if _, err := Open(context.Background(), nil, nil); !errors.Is(err, core.ErrInvalid) {
			w.Error(err)
		}
		l := one.open(Options{})
		for _, key := range []string{"", "a b", "/a", "a\n", strings.Repeat("a", maxKey+1)} {
			if _, err := w.do(l, key, never); !errors.Is(err, core.ErrInvalid) || len(err.Error()) > 300 {
				w.Errorf("%q: %v", key, err)
			}
		}
		if _, err := w.do(l, "a", nil); !errors.Is(err, core.ErrInvalid) {
			w.Error(err)
		}
		l.Close()
		l.Close()
		one.resign()
	})
}

// TestByHand: an operator's rule decides an effect in doubt once, and only in the state that the
// rule names. Author and reason are kept.
func TestByHand(t *testing.T) {
	for name, want := range map[string]State{control.OutcomeDone: Done, control.OutcomeFailed: Failed, control.OutcomeRepeat: Repeat} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(w *world) {
				var mu sync.Mutex
				var rules []control.Rule
				one := w.lead("a")
				l := one.open(Options{Rules: func() []control.Rule {
					mu.Lock()
					defer mu.Unlock()
					return rules
				}})
				p := newProvider(false)
				if _, err := w.do(l, "pay/1", p.lose(100)); !errors.Is(err, ErrInDoubt) {
					w.Error(err)
				}
				look := func() *Effect {
					e, err := l.Lookup(context.Background(), "pay/1")
					if err != nil {
						w.Fatal(err)
					}
					return e
				}
				e := look()
				rule := control.Rule{Kind: control.Resolve, Shards: "pay", Effect: "pay/1", Outcome: name, Began: e.Began, Repeats: e.Repeats,
					Author: "me", Reason: "I asked", At: time.Now()}
				if name == control.OutcomeDone {
					rule.Result = "found"
				}
				for _, change := range []func(r *control.Rule){
					func(r *control.Rule) { r.Shards = "other" }, func(r *control.Rule) { r.Began = r.Began.Add(1) },
					func(r *control.Rule) { r.Repeats++ },
					func(r *control.Rule) { r.Expires = time.Now() }, func(r *control.Rule) { r.Effect = "pay/2" },
				} {
					other := rule
					change(&other)
					mu.Lock()
					rules = append(rules, other)
					mu.Unlock()
				}
				time.Sleep(5 * time.Second)
				if e := look(); e.State != InDoubt {
					w.Errorf("a rule about something else decided: %+v", e)
				}
				mu.Lock()
				rules = []control.Rule{rule}
				mu.Unlock()
				if err := rule.Validate(); err != nil {
					w.Error(err)
				}
				time.Sleep(5 * time.Second)
				if e := look(); e.State != want || e.Author != "me" || e.Reason != "I asked" || string(e.Result) != rule.Result {
					w.Errorf("decided: %+v", e)
				}
				out, err := w.do(l, "pay/1", p.lose(100))
				switch want {
				case Done:
					if out != "found" || err != nil || p.calls != 1 {
						w.Errorf("got %q, %v", out, err)
					}
				case Failed:
					if !errors.Is(err, ErrFailed) || p.calls != 1 {
						w.Error(err)
					}
				default:
					time.Sleep(5 * time.Second)
					if e := look(); !errors.Is(err, ErrInDoubt) || p.calls != 2 || e.State != InDoubt || e.Repeats != 1 {
						w.Errorf("got %v after %d calls: %+v", err, p.calls, e)
					}
				}
				l.Close()
				one.resign()
			})
		})
	}
}

// TestID: an idempotency key depends on scope and key, has the form of a UUID, and is the same in
// every version of Tenure.
func TestID(t *testing.T) {
	t.Parallel()
	if got := ID("shop/orders-1", "pay/17"); got != "b7831d1d-6a95-83cc-9253-3e2036ccfa07" {
		t.Errorf("got %s", got)
	}
	if ID("a/b", "c") == ID("a", "b/c") || ID("a", "b") == ID("b", "a") {
		t.Error("two effects have one key")
	}
	if NotDone(nil) != nil || Refused(nil) != nil {
		t.Error("an error of nil")
	}
	if text := clean(string(bytes.Repeat([]byte("ä"), 400))); len(text) > maxReason {
		t.Errorf("%d bytes", len(text))
	}
}

// In a keyspace, effects continue in another shard when a range is split, and the idempotency key
// stays the same. If Open cannot know the keyspace, its error states that Scope must be set.
func TestScopeOfAKeyspace(t *testing.T) {
	bubble(t, func(w *world) {
		bank, ran := newProvider(true), 0
		for _, w.shard = range []string{"orders-0000", "orders-0002"} {
			p := w.lead("a")
			handler := keyspace.With(context.Background(), "orders")
			if _, err := Open(handler, p.lease, &Options{Scope: "test/" + w.shard}); !errors.Is(err, core.ErrInvalid) {
				w.Errorf("opened with the shard's own scope: %v", err)
			}
			if w.shard == "orders-0002" {
				handler = context.Background() // the name shows the keyspace
			}
			l, err := Open(handler, p.lease, &Options{Repeatable: true})
			if err != nil {
				w.Fatal(err)
			}
			if _, err := w.do(l, "pay/order-17", func(_ context.Context, id string) ([]byte, error) {
				ran++
				bank.charge(id)
				return nil, nil
			}); err != nil {
				w.Error(err)
			}
			l.Close()
			p.resign()
		}
		if n := bank.count(ID("test/orders", "pay/order-17")); n != 1 || ran != 2 || len(bank.charges) != 1 {
			w.Errorf("%d charges, in %d calls: %v", n, ran, bank.charges)
		}
	})
}

// Take transfers the effects of a range with their idempotency keys. Ended effects are not
// repeated, and open effects are decided.
func TestTake(t *testing.T) {
	bubble(t, func(w *world) {
		bank := newProvider(true)
		has := func(key string) bool { return strings.HasPrefix(key, "go/") }
		w.shard = "one"
		p := w.lead("a")
		l := p.open(Options{Keep: time.Hour})
		for _, key := range []string{"go/done", "stay/done"} {
			if _, err := w.do(l, key, bank.pay("paid")); err != nil {
				w.Fatal(err)
			}
		}
		refuse := func(context.Context, string) ([]byte, error) { return nil, Refused(errLost) }
		if _, err := w.do(l, "go/failed", refuse); !errors.Is(err, ErrFailed) {
			w.Fatal(err)
		}
		charge := func(_ context.Context, id string) ([]byte, error) { bank.charge(id); return nil, errLost }
		if _, err := w.do(l, "go/open", charge); !errors.Is(err, ErrInDoubt) {
			w.Fatal(err)
		}
		l.Close()

		w.shard = "two"
		q := w.lead("b")
		m := q.open(Options{Keep: time.Hour}) // before the range arrives
		if _, err := w.do(m, "go/stale", func(context.Context, string) ([]byte, error) { return nil, errLost }); !errors.Is(err, ErrInDoubt) {
			w.Fatal(err)
		}
		m.Close()
		for range 2 { // a failure makes the slice call Take again
			ops, err := Take(context.Background(), p.b, q.lease, "one", has)
			if err != nil {
				w.Fatal(err)
			}
			if _, err := q.lease.Commit(context.Background(), ops...); err != nil {
				w.Fatal(err)
			}
		}
		m = q.open(Options{Keep: time.Hour, Repeatable: true})
		if e, err := m.Lookup(context.Background(), "stay/done"); e != nil || err != nil {
			w.Errorf("what stays came along: %+v, %v", e, err)
		}
		if e, err := m.Lookup(context.Background(), "go/stale"); e != nil || err != nil {
			w.Errorf("what the giver did not have stayed: %+v, %v", e, err)
		}
		if doubts, err := m.InDoubt(context.Background()); err != nil || len(doubts) > 1 {
			w.Errorf("in doubt: %+v, %v", doubts, err)
		}
		if out, err := w.do(m, "go/done", bank.pay("again")); out != "paid" || err != nil {
			w.Errorf("done: %q, %v", out, err)
		}
		if _, err := w.do(m, "go/failed", bank.pay("again")); !errors.Is(err, ErrFailed) {
			w.Errorf("failed: %v", err)
		}
		if out, err := w.do(m, "go/open", bank.pay("open")); out != "open" || err != nil {
			w.Errorf("open: %q, %v", out, err)
		}
		if n := bank.count(ID("test/one", "go/open")); n != 1 || bank.calls != 4 || len(bank.charges) != 3 {
			w.Errorf("%d charges of the open one, %d calls: %v", n, bank.calls, bank.charges)
		}
		time.Sleep(2 * time.Hour) // ended effects are also trimmed in the new shard
		if items, err := q.lease.List(context.Background(), Prefix, 0, 0); err != nil || len(items) > 0 {
			w.Errorf("after Keep: %+v, %v", items, err)
		}
		m.Close()
		p.resign()
		q.resign()
	})
}
