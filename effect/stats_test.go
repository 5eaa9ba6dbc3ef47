package effect

import (
	"context"
	"errors"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func (w *world) counted(when string, s *Stats, want Counts) {
	w.Helper()
	if got := s.Counts(); !reflect.DeepEqual(got, want) {
		w.Errorf("%s:\n got %+v\nwant %+v", when, got, want)
	}
}

// TestStats: each effect is counted once, regardless of how it ends, and every attempt after the
// first is a retry.
func TestStats(t *testing.T) {
	bubble(t, func(w *world) {
		s := &Stats{}
		w.counted("at first", s, Counts{})
		one := w.lead("a")
		l := one.open(Options{Stats: s, Attempts: 3, MaxInDoubt: 1})
		w.counted("without effects", s, Counts{})
		p := newProvider(false)
		for range 2 {
			if _, err := w.do(l, "pay/1", p.pay("paid")); err != nil {
				w.Error(err)
			}
		}
		busy := func(context.Context, string) ([]byte, error) { return nil, NotDone(errors.New("busy")) }
		declined := func(context.Context, string) ([]byte, error) { return nil, Refused(errors.New("declined")) }
		for key, fn := range map[string]Func{"pay/2": busy, "pay/3": declined} {
			if _, err := w.do(l, key, fn); !errors.Is(err, ErrFailed) {
				w.Error(err)
			}
		}
		want := Counts{Begun: 3, Done: 1, Failed: 1, Refused: 1, Retries: 2}
		w.counted("when all have ended", s, want)
		began := now()
		for range 2 {
			if _, err := w.do(l, "pay/4", p.lose(100)); !errors.Is(err, ErrInDoubt) {
				w.Error(err)
			}
		}
		if _, err := w.do(l, "pay/5", never); !errors.Is(err, ErrFull) {
			w.Error(err)
		}
		want.Begun, want.Full = 4, 1
		want.Unresolved, want.Shards = Waiting{1, began}, []ShardCounts{{Shard: "pay", Unresolved: 1}}
		w.counted("when one waits for a person", s, want)
		time.Sleep(time.Minute)
		if age := s.Counts().Unresolved.Age(); age < time.Minute || age > time.Minute+time.Second {
			w.Errorf("it waits for %v", age)
		}
		l.Close()
		want.Unresolved, want.Shards = Waiting{}, nil
		w.counted("after Close", s, want)
		one.resign()
	})
}

// TestStatsTakeover: when a lease ends, its counts drop the waiting effects, and the next leader's
// counts include them.
func TestStatsTakeover(t *testing.T) {
	for name, x := range map[string]struct {
		o      Options
		person bool
	}{"nobody else decides": {Options{}, true}, "the next Do decides": {Options{Repeatable: true}, false}} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(w *world) {
				former, next := &Stats{}, &Stats{}
				one := w.lead("a")
				l := one.open(Options{Stats: former})
				if _, err := w.do(l, "pay/1", newProvider(false).lose(100)); !errors.Is(err, ErrInDoubt) {
					w.Error(err)
				}
				began := former.Counts().Unresolved.Oldest
				time.Sleep(time.Second)
				go func() {
					_, _ = w.do(l, "pay/2", func(ctx context.Context, _ string) ([]byte, error) { <-ctx.Done(); return nil, ctx.Err() })
				}()
				synctest.Wait()
				one.die()
				w.counted("of the leader that died", former, Counts{Begun: 2})

				x.o.Stats = next
				two := w.lead("b")
				m := two.open(x.o)
				want := Counts{InDoubt: Waiting{2, began}, Shards: []ShardCounts{{Shard: "pay", InDoubt: 2}}}
				if x.person {
					want = Counts{Unresolved: Waiting{2, began}, Shards: []ShardCounts{{Shard: "pay", Unresolved: 2}}}
				}
				w.counted("of the next leader", next, want)
				l.Close()
				m.Close()
				w.counted("after Close", next, Counts{})
				two.resign()
				one.bury()
			})
		})
	}
}

// TestStatsResolve: an effect is in doubt until Resolve has returned a decision. If Resolve leaves
// the effect in doubt, the effect waits for a person.
func TestStatsResolve(t *testing.T) {
	for state, want := range map[State]Counts{
		Done: {Done: 1}, Failed: {Failed: 1},
		InDoubt: {Unresolved: Waiting{Number: 1}, Shards: []ShardCounts{{Shard: "pay", Unresolved: 1}}},
		Repeat:  {InDoubt: Waiting{Number: 1}, Shards: []ShardCounts{{Shard: "pay", InDoubt: 1}}},
	} {
		t.Run(strings.ReplaceAll(string(state), " ", "-"), func(t *testing.T) {
			bubble(t, func(w *world) {
				one := w.lead("a")
				former, s, up := &Stats{}, &Stats{}, &atomic.Bool{}
				l := one.open(Options{Stats: former})
				if _, err := w.do(l, "pay/1", newProvider(false).lose(100)); !errors.Is(err, ErrInDoubt) {
					w.Error(err)
				}
				began := former.Counts().Unresolved.Oldest
				l.Close()
				one.resign()
				asked := Counts{InDoubt: Waiting{1, began}, Shards: []ShardCounts{{Shard: "pay", InDoubt: 1}}}
				two := w.lead("b")
				l = two.open(Options{Stats: s, Resolve: func(context.Context, Effect) (Decision, error) {
					time.Sleep(time.Second)
					w.counted("while Resolve is asked", s, asked)
					if !up.Load() {
						return Decision{}, errors.New("the provider is down")
					}
					return Decision{State: state}, nil
				}})
				time.Sleep(laterEvery / 2)
				w.counted("when Resolve has failed", s, asked)
				up.Store(true)
				time.Sleep(2 * laterEvery)
				if want.InDoubt.Number > 0 {
					want.InDoubt.Oldest = began
				}
				if want.Unresolved.Number > 0 {
					want.Unresolved.Oldest = began
				}
				w.counted("when it was decided", s, want)
				if state == Repeat {
					if _, err := w.do(l, "pay/1", newProvider(false).pay("paid")); err != nil {
						w.Error(err)
					}
					w.counted("when it was repeated", s, Counts{Done: 1, Retries: 1})
				}
				l.Close()
				two.resign()
			})
		})
	}
}

func TestAge(t *testing.T) {
	t.Parallel()
	if a := (Waiting{1, time.Now().Add(time.Hour)}).Age(); a != 0 {
		t.Errorf("got %v", a)
	}
	if a := (Waiting{}).Age(); a != 0 {
		t.Errorf("got %v of none", a)
	}
}
