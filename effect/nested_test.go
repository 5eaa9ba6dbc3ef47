package effect

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenure-go/tenure/core"
)

// Any number of concurrent effects whose functions perform other effects end. The inner effects do
// not wait for a turn, even if another call began them and is still waiting for its turn.
func TestNested(t *testing.T) {
	bubble(t, func(w *world) {
		p := w.lead("a")
		l := p.open(Options{Concurrent: 2, Deadline: time.Hour})
		began, ready := time.Now(), make(chan struct{})
		var all sync.WaitGroup
		do := func(ctx context.Context, key string, fn Func) {
			if out, err := l.Do(ctx, key, fn); string(out) != "booked" || err != nil {
				w.Errorf("%s: %q, %v", key, out, err)
			}
		}
		book := func(context.Context, string) ([]byte, error) { return []byte("booked"), nil }
		for _, trip := range []string{"trip/1", "trip/2", "trip/3"} {
			all.Go(func() {
				do(context.Background(), trip, func(ctx context.Context, _ string) ([]byte, error) {
					<-ready
					for _, part := range []string{"/flight", "/hotel"} {
						do(ctx, trip+part, func(ctx context.Context, _ string) ([]byte, error) {
							return l.Do(ctx, trip+part+"/seat", book)
						})
					}
					do(ctx, "shared", book)
					return l.Do(ctx, trip+"/flight", never)
				})
			})
		}
		synctest.Wait() // two of three have a turn
		all.Go(func() { do(context.Background(), "shared", book) })
		synctest.Wait() // this effect waits for its turn, together with the third
		close(ready)
		all.Wait()
		if took := time.Since(began); took > time.Minute {
			w.Errorf("took %v", took)
		}
		if n := len(l.places) + l.nested + len(l.flights); n != 0 {
			w.Errorf("%d turns, nested or not, and flights are left", n)
		}
		l.Close()
		p.resign()
	})
}

// A former leader left more outer and inner effects open than there are turns.
func TestNestedAfterTakeover(t *testing.T) {
	bubble(t, func(w *world) {
		p := w.lead("a")
		l := p.open(Options{})
		keys := []string{"trip/1", "trip/2", "trip/1/hotel", "trip/2/hotel", "trip/1/seat", "trip/2/seat"}
		for _, key := range keys {
			if _, err := w.do(l, key, newProvider(false).lose(9)); !errors.Is(err, ErrInDoubt) {
				w.Error(err)
			}
		}
		l.Close()
		p.resign()
		p = w.lead("b")
		ask := make(chan struct{})
		l = p.open(Options{Concurrent: 1, Resolve: func(context.Context, Effect) (Decision, error) {
			<-ask
			return Decision{State: Repeat}, nil
		}})
		var all sync.WaitGroup
		for _, trip := range keys[:2] {
			all.Go(func() {
				_, err := w.do(l, trip, func(ctx context.Context, _ string) ([]byte, error) {
					for _, inner := range []string{"/hotel", "/seat"} {
						if _, err := l.Do(ctx, trip+inner, newProvider(true).pay("booked")); err != nil {
							return nil, err
						}
					}
					return nil, nil
				})
				if err != nil {
					w.Error(err)
				}
			})
		}
		synctest.Wait()
		close(ask)
		all.Wait()
		l.Close()
		p.resign()
	})
}

// An effect that would wait for itself, directly or through other effects, is refused immediately.
func TestNestedInItself(t *testing.T) {
	bubble(t, func(w *world) {
		p := w.lead("a")
		l := p.open(Options{Deadline: time.Hour})
		began, ready := time.Now(), make(chan struct{})
		refused := make(chan error, 3)
		inner := func(key string) Func {
			return func(ctx context.Context, _ string) ([]byte, error) {
				<-ready
				_, err := l.Do(ctx, key, newProvider(true).pay(""))
				refused <- err
				return nil, nil
			}
		}
		for key, fn := range map[string]Func{"a": inner("a"), "b": inner("c"), "c": inner("b")} {
			l.flown.Go(func() { _, _ = l.Do(context.Background(), key, fn) })
		}
		synctest.Wait()
		close(ready)
		invalid := 0
		for range 3 {
			if err := <-refused; errors.Is(err, core.ErrInvalid) {
				invalid++
			} else if err != nil {
				w.Error(err)
			}
		}
		if took := time.Since(began); invalid != 2 || took > time.Minute {
			w.Errorf("%d refused, after %v", invalid, took)
		}
		l.Close()
		p.resign()
	})
}

// Close waits for an effect in progress, including nested effects that begin after the call of
// Close. Once a function has returned, its context no longer nests effects. Nested effects above
// the limit are refused.
func TestNestedAtTheEnd(t *testing.T) {
	bubble(t, func(w *world) {
		p := w.lead("a")
		l := p.open(Options{Concurrent: 1})
		var stale context.Context
		if _, err := w.do(l, "first", func(ctx context.Context, _ string) ([]byte, error) { stale = ctx; return nil, nil }); err != nil {
			w.Error(err)
		}
		ready := make(chan struct{})
		var all sync.WaitGroup
		all.Go(func() {
			_, err := w.do(l, "trip", func(ctx context.Context, _ string) ([]byte, error) {
				hang, many, none := make(chan struct{}), sync.WaitGroup{}, 0
				for i := range maxConcurrent + 1 {
					many.Go(func() {
						_, err := l.Do(ctx, fmt.Sprint("part/", i), func(context.Context, string) ([]byte, error) { <-hang; return nil, nil })
						if errors.Is(err, core.ErrRetry) && !errors.Is(err, core.ErrClosed) {
							none++ // one effect exceeds the limit
						} else if err != nil {
							w.Error(err)
						}
					})
				}
				synctest.Wait()
				close(hang)
				many.Wait()
				if none != 1 {
					w.Errorf("%d nested effects of %d were refused", none, maxConcurrent+1)
				}
				<-ready
				return l.Do(ctx, "trip/hotel", newProvider(true).pay("booked"))
			})
			if err != nil {
				w.Errorf("an effect that was under way: %v", err)
			}
		})
		time.Sleep(time.Second)
		all.Go(l.Close)
		synctest.Wait()
		for _, ctx := range []context.Context{context.Background(), context.WithoutCancel(stale)} {
			if _, err := l.Do(ctx, "other", never); !errors.Is(err, core.ErrClosed) {
				w.Errorf("a new effect after Close: %v", err)
			}
		}
		close(ready)
		all.Wait()
		p.resign()
	})
}
