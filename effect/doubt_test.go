package effect

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/internal/proof/loglines"
)

// If an effect is read while it is in progress, and ends before the reply arrives, it is not
// reported as in doubt.
func TestDoubtIsLookedAtAgain(t *testing.T) {
	bubble(t, func(w *world) {
		p := w.lead("a")
		l := p.open(Options{})
		proceed, did := make(chan struct{}), make(chan error, 1)
		go func() {
			_, err := w.do(l, "pay/1", func(context.Context, string) ([]byte, error) { <-proceed; return nil, nil })
			did <- err
		}()
		synctest.Wait()
		late := make(chan struct{})
		w.late.Store(&late)
		looked, listed := make(chan *Effect, 1), make(chan []Effect, 1)
		go func() {
			e, err := l.Lookup(context.Background(), "pay/1")
			if err != nil {
				w.Error(err)
			}
			looked <- e
		}()
		go func() {
			all, err := l.InDoubt(context.Background())
			if err != nil {
				w.Error(err)
			}
			listed <- all
		}()
		synctest.Wait()
		close(proceed)
		if err := <-did; err != nil { // only replies to reads are late
			w.Fatal(err)
		}
		w.late.Store(nil)
		close(late)
		if e := <-looked; e == nil || e.State != Done {
			w.Errorf("looked up: %+v", e)
		}
		if all := <-listed; len(all) > 0 {
			w.Errorf("in doubt: %+v", all)
		}
		l.Close()
		p.resign()
	})
}

// A refusal counts as a failure only if certainly no earlier attempt had an effect, under this
// leader or the previous one. After an attempt with an unknown outcome, the effect stays in doubt.
func TestRefusedAfterNotDone(t *testing.T) {
	bubble(t, func(w *world) {
		refuse := func(context.Context, string) ([]byte, error) { return nil, Refused(errors.New("card declined")) }
		p := w.lead("a")
		l := p.open(Options{BackoffMin: time.Minute, BackoffMax: time.Minute, Deadline: time.Hour})
		did := make(chan error, 2)
		for i := range 2 {
			go func() {
				_, err := w.do(l, fmt.Sprintf("pay/%d", i), func(context.Context, string) ([]byte, error) {
					return nil, NotDone(errors.New("connection refused"))
				})
				did <- err
			}()
		}
		synctest.Wait()
		l.Close()
		for range 2 {
			if err := <-did; !errors.Is(err, core.ErrRetry) {
				w.Error(err)
			}
		}
		p.resign()
		p = w.lead("b")
		l = p.open(Options{})
		if _, err := w.do(l, "pay/0", refuse); !errors.Is(err, ErrFailed) || errors.Is(err, ErrInDoubt) {
			w.Errorf("never attempted by anybody: %v", err)
		}
		ready, hang := make(chan struct{}), make(chan struct{})
		go func() {
			_, err := w.do(l, "pay/1", func(context.Context, string) ([]byte, error) { close(ready); <-hang; return nil, errLost })
			did <- err
		}()
		<-ready
		p.die()
		close(hang)
		<-did
		l.Close()
		p.bury()
		p = w.lead("c")
		l = p.open(Options{Repeatable: true})
		if _, err := w.do(l, "pay/1", refuse); !errors.Is(err, ErrInDoubt) || errors.Is(err, ErrFailed) {
			w.Errorf("attempted by a leader that died: %v", err)
		}
		l.Close()
		p.resign()
	})
}

// Trims continue after a leader's clock was a year ahead, and on a server that accepts fewer
// operations than it stated.
func TestTrimsGoOn(t *testing.T) {
	bubble(t, func(w *world) {
		w.writeOps = 128
		p := w.lead("a")
		ahead := Effect{Key: "ahead", State: Done, Began: now(), Ended: now().Add(365 * 24 * time.Hour)}
		if _, err := p.lease.Commit(context.Background(), record(ahead)...); err != nil {
			w.Fatal(err)
		}
		l := p.open(Options{Keep: time.Minute, Logger: loglines.Failures("tenure: effect", func(err error) { w.Error(err) })})
		time.Sleep(time.Second) // the ledger has read the index
		for i := range 200 {
			if i == 100 {
				w.takesOps.Store(16)
			}
			if _, err := w.do(l, fmt.Sprintf("pay/%d", i), newProvider(true).pay("")); err != nil {
				w.Fatal(err)
			}
		}
		time.Sleep(5 * time.Minute)
		if left := w.items(p, recordPrefix); len(left) != 1 || left[0] != recordPrefix+"ahead" {
			w.Errorf("left: %s", left)
		}
		if w.torn.Load() {
			w.Error("a write removed a record or its entry without the other")
		}
		l.Close()
		p.resign()
	})
}
