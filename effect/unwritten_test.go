package effect

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/core/control"
	"github.com/tenure-go/tenure/internal/proof/kvfault"
	"github.com/tenure-go/tenure/internal/proof/loglines"
)

func (w *world) stored(p *leader, key string) Effect {
	w.Helper()
	e, err := Read(context.Background(), p.b, "pay", key)
	if err != nil || e == nil {
		w.Fatalf("the store has %+v, %v", e, err)
	}
	return *e
}

// TestOutcomeUnwritten: if the store refuses an outcome while the lease stays valid, the outcome is
// written later. Therefore, no effect remains in state Begun under the current token.
func TestOutcomeUnwritten(t *testing.T) {
	asked := func(context.Context, Effect) (Decision, error) {
		return Decision{State: Done, Result: []byte("found")}, nil
	}
	for name, x := range map[string]struct {
		o      Options
		err    error // of fn
		refuse error // of the store
		want   State
		result string
	}{
		"done":      {refuse: core.ErrTooLarge, want: Done, result: "paid"},
		"damaged":   {refuse: core.ErrDamaged, want: Done, result: "paid"},
		"refused":   {err: Refused(errors.New("declined")), refuse: core.ErrDamaged, want: Failed},
		"no-answer": {err: errLost, refuse: core.ErrDamaged, want: InDoubt},
		"repeat":    {err: errLost, refuse: core.ErrDamaged, o: Options{Repeatable: true, Attempts: 1}, want: Repeat},
		"resolved":  {err: errLost, refuse: core.ErrDamaged, o: Options{Resolve: asked}, want: Done, result: "found"},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(w *world) {
				one := w.lead("a")
				x.o.Stats = &Stats{}
				l := one.open(x.o)
				out, err := w.do(l, "pay/1", func(context.Context, string) ([]byte, error) {
					one.link.SetError(kvfault.Write, x.refuse)
					return []byte("paid"), x.err
				})
				if !errors.Is(err, ErrInDoubt) || errors.Is(err, core.ErrLost) || x.err == nil && out != "paid" {
					w.Errorf("got %q, %v", out, err)
				}
				time.Sleep(3*laterEvery + laterEvery/2) // not at the instant of an attempt
				if e := w.stored(one, "pay/1"); e.State != Begun || e.Token != one.lease.Token() {
					w.Errorf("the store refused what it has: %+v", e)
				}
				if e, err := l.Lookup(context.Background(), "pay/1"); err != nil || e.State != InDoubt || strings.Contains(e.Reason, "lease") {
					w.Errorf("looked up %+v, %v", e, err)
				}
				if c := x.o.Stats.Counts(); c.InDoubt.Number != 1 {
					w.Errorf("counted %+v", c)
				}
				one.link.Heal()
				time.Sleep(2 * laterEvery)
				if e := w.stored(one, "pay/1"); e.State != x.want || string(e.Result) != x.result || e.Attempts > 1 {
					w.Errorf("the store has %+v", e)
				}
				c, open := x.o.Stats.Counts(), 0
				if x.want.Open() {
					open = 1
				}
				if c.InDoubt.Number+c.Unresolved.Number != open || int(c.Done+c.Failed+c.Refused) != 1-open || (c.Refused == 1) != (x.want == Failed) {
					w.Errorf("counted %+v", c)
				}
				if x.want == Done {
					if out, err := w.do(l, "pay/1", never); out != x.result || err != nil {
						w.Errorf("got %q, %v", out, err)
					}
				}
				l.Close()
				one.resign()
			})
		})
	}
}

// TestOutcomeWrittenByDo: if an outcome could not be written, a Do with the effect's key writes the
// outcome and returns it. If the decision was to repeat the effect, Do repeats it.
func TestOutcomeWrittenByDo(t *testing.T) {
	bubble(t, func(w *world) {
		one := w.lead("a")
		l := one.open(Options{Repeatable: true, Attempts: 1})
		p := newProvider(true)
		for key, err := range map[string]error{"done": nil, "failed": Refused(errLost), "repeat": errLost} {
			_, _ = w.do(l, key, func(context.Context, string) ([]byte, error) {
				one.link.SetError(kvfault.Write, core.ErrDamaged)
				return []byte("paid"), err
			})
			one.link.Heal()
		}
		if out, err := w.do(l, "done", never); out != "paid" || err != nil {
			w.Errorf("got %q, %v", out, err)
		}
		if _, err := w.do(l, "failed", never); !errors.Is(err, ErrFailed) {
			w.Errorf("got %v", err)
		}
		if out, err := w.do(l, "repeat", p.pay("again")); out != "again" || err != nil {
			w.Errorf("got %q, %v", out, err)
		}
		for key, want := range map[string]State{"done": Done, "failed": Failed, "repeat": Done} {
			if e := w.stored(one, key); e.State != want || key == "repeat" && e.Repeats != 1 {
				w.Errorf("the store has %+v", e)
			}
		}
		l.Close()
		one.resign()
	})
}

// TestOutcomeOfClosedLedger: if a closed ledger left an effect begun, a later ledger of the same
// lease marks it as in doubt.
func TestOutcomeOfClosedLedger(t *testing.T) {
	bubble(t, func(w *world) {
		one := w.lead("a")
		l := one.open(Options{})
		if _, err := w.do(l, "pay/1", func(context.Context, string) ([]byte, error) {
			one.link.SetError(kvfault.Write, core.ErrDamaged)
			return nil, nil
		}); !errors.Is(err, ErrInDoubt) {
			w.Error(err)
		}
		l.Close()
		one.link.Heal()
		l = one.open(Options{})
		time.Sleep(time.Second)
		if e := w.stored(one, "pay/1"); e.State != InDoubt {
			w.Errorf("the store has %+v", e)
		}
		l.Close()
		one.resign()
	})
}

// TestStoreTakesLess: if a result is too large for the store, the ledger still records that the
// effect happened.
func TestStoreTakesLess(t *testing.T) {
	bubble(t, func(w *world) {
		one := w.lead("a")
		l := one.open(Options{})
		w.takes.Store(1000)
		result := strings.Repeat("x", 1500)
		if out, err := w.do(l, "pay/1", newProvider(false).pay(result)); out != result || !errors.Is(err, ErrNotKept) {
			w.Errorf("got %d bytes, %v", len(out), err)
		}
		if e := w.stored(one, "pay/1"); e.State != Done || e.NotKept != len(result) {
			w.Errorf("the store has %+v", e)
		}
		l.Close()
		one.resign()
	})
}

// TestGoexit: an effect whose function ends its goroutine is in doubt.
func TestGoexit(t *testing.T) {
	bubble(t, func(w *world) {
		one := w.lead("a")
		s := &Stats{}
		l := one.open(Options{MaxInDoubt: 1, Stats: s})
		exit := func(context.Context, string) ([]byte, error) { runtime.Goexit(); return nil, nil }
		if _, err := w.do(l, "pay/1", exit); !errors.Is(err, ErrInDoubt) || !strings.Contains(err.Error(), "its goroutine") {
			w.Errorf("got %v", err)
		}
		if c := s.Counts(); c.InDoubt.Number != 1 {
			w.Errorf("counted %+v", c)
		}
		if _, err := w.do(l, "pay/2", never); !errors.Is(err, ErrFull) {
			w.Errorf("got %v", err)
		}
		time.Sleep(2 * laterEvery)
		if e := w.stored(one, "pay/1"); e.State != InDoubt {
			w.Errorf("the store has %+v", e)
		}
		if c := s.Counts(); c.Unresolved.Number != 1 {
			w.Errorf("counted %+v", c)
		}
		l.Close()

		var asked atomic.Int32 // a resolver that ends its goroutine is called again
		l = one.open(Options{Resolve: func(context.Context, Effect) (Decision, error) {
			if asked.Add(1) <= 5 { // every attempt of the first Do
				runtime.Goexit()
			}
			return Decision{State: Done}, nil
		}})
		if _, err := w.do(l, "pay/3", newProvider(false).lose(1)); !errors.Is(err, ErrInDoubt) {
			w.Errorf("got %v", err)
		}
		time.Sleep(2 * laterEvery)
		if e := w.stored(one, "pay/3"); e.State != Done {
			w.Errorf("the store has %+v", e)
		}
		l.Close()
		one.resign()
	})
}

// TestResolveGoexit: if a resolver, rules function or hook ends its goroutine, neither other
// effects nor Close are delayed.
func TestResolveGoexit(t *testing.T) {
	bubble(t, func(w *world) {
		one := w.lead("a")
		l := one.open(Options{})
		keys := []string{"pay/1", "pay/2", "pay/3"}
		for _, key := range keys {
			if _, err := w.do(l, key, newProvider(false).lose(1)); !errors.Is(err, ErrInDoubt) {
				w.Errorf("got %v", err)
			}
		}
		l.Close()
		one.resign()
		one = w.lead("b")
		var asked atomic.Int32
		l = one.open(Options{Concurrent: 1, Logger: loglines.Failures("tenure: effect", func(error) { runtime.Goexit() }),
			Rules: func() []control.Rule { runtime.Goexit(); return nil },
			Resolve: func(context.Context, Effect) (Decision, error) {
				if asked.Add(1) <= 10 {
					runtime.Goexit()
				}
				return Decision{State: Done}, nil
			}})
		time.Sleep(20 * laterEvery)
		for _, key := range keys {
			if e := w.stored(one, key); e.State != Done {
				w.Errorf("the store has %+v", e)
			}
		}
		l.Close()
		one.resign()
	})
}

// TestOrphan: an effect that is listed as open but has no record is removed from the list and the
// counts.
func TestOrphan(t *testing.T) {
	for name, resolve := range map[string]func(context.Context, Effect) (Decision, error){
		"alone": nil, "resolver": func(context.Context, Effect) (Decision, error) { return Decision{}, errors.New("asked") },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(w *world) {
				one := w.lead("a")
				orphan := core.Put(openPrefix+"pay/1", encode(Effect{State: Begun, Token: 1, Began: now()}))
				if _, err := one.lease.Commit(context.Background(), orphan); err != nil {
					w.Fatal(err)
				}
				var told atomic.Pointer[error]
				l := one.open(Options{MaxInDoubt: 1, Resolve: resolve, Logger: loglines.Failures("tenure: effect", func(err error) { told.Store(&err) })})
				time.Sleep(time.Second)
				if got := w.items(one, openPrefix); len(got) != 0 {
					w.Errorf("listed: %s", got)
				}
				if err := told.Load(); err == nil || !errors.Is(*err, core.ErrDamaged) || !strings.Contains((*err).Error(), "pay/1") {
					w.Errorf("the log has %v", err)
				}
				if out, err := w.do(l, "pay/2", newProvider(false).pay("paid")); out != "paid" || err != nil {
					w.Errorf("got %q, %v", out, err)
				}
				l.Close()
				one.resign()
			})
		})
	}
}
