package kvfault_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenure-go/tenure/backends/kv"
	"github.com/tenure-go/tenure/backends/memory"
	"github.com/tenure-go/tenure/internal/proof/kvfault"
)

func put(key string) *kv.Batch {
	return &kv.Batch{Txns: []kv.Txn{{Ops: []kv.Op{{Key: key, Value: []byte("v")}}}}}
}

// TestEveryFault checks for each fault whether the caller gets a reply, and how
// often the store applied the call, before and after held calls were delivered.
func TestEveryFault(t *testing.T) {
	t.Parallel()
	cause := errors.New("refused")
	for _, c := range []struct {
		fault         kvfault.Fault
		err           error
		applied, late kv.Rev
	}{
		{kvfault.None, nil, 1, 1},
		{kvfault.DropRequest, context.DeadlineExceeded, 0, 0},
		{kvfault.DropReply, context.DeadlineExceeded, 1, 1},
		{kvfault.HoldRequest, context.DeadlineExceeded, 0, 1},
		{kvfault.Duplicate, nil, 2, 2},
		{kvfault.Replay, nil, 1, 2},
		{kvfault.Fail, cause, 0, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			store, link := memory.New(), new(kvfault.Link)
			s := link.Wrap(store.Client())
			link.SetError(0, cause)
			link.Set(kvfault.Write, c.fault)
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if _, err := s.Apply(ctx, put("k")); !errors.Is(err, c.err) {
				t.Errorf("fault %d: got %v, want %v", c.fault, err, c.err)
			}
			if got := store.Rev(); got != c.applied {
				t.Errorf("fault %d: applied %d times, want %d", c.fault, got, c.applied)
			}
			link.Deliver()
			if got := store.Rev(); got != c.late {
				t.Errorf("fault %d: applied %d times after delivery, want %d", c.fault, got, c.late)
			}
			if _, err := s.Get(t.Context(), "k"); err != nil {
				t.Errorf("fault %d of writes hits a read: %v", c.fault, err)
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestHeldCallerGetsItsReply(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		link := new(kvfault.Link)
		s := link.Wrap(memory.New().Client())
		link.Set(kvfault.All, kvfault.HoldRequest)
		reply := make(chan *kv.Outcome, 1)
		go func() {
			out, err := s.Apply(t.Context(), put("k"))
			if err != nil {
				t.Error(err)
			}
			reply <- out
		}()
		if err := link.AwaitHeld(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
		if n := link.Deliver(); n != 1 {
			t.Errorf("%d calls were delivered, want 1", n)
		}
		if out := <-reply; len(out.Results) != 1 || !out.Results[0].OK {
			t.Errorf("got %+v", out)
		}
	})
}

// TestHeldBesideDeliver: a call at the end of the fault is delivered or passes, but is never held
// after the last delivery.
func TestHeldBesideDeliver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		link := new(kvfault.Link)
		s := link.Wrap(memory.New().Client())
		for range 20_000 {
			link.Set(kvfault.Write, kvfault.HoldRequest)
			start, replied := make(chan struct{}), make(chan error, 1)
			go func() {
				close(start)
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				_, err := s.Apply(ctx, put("k"))
				replied <- err
			}()
			<-start
			link.Heal()
			link.Deliver()
			if err := <-replied; err != nil {
				t.Fatal(err)
			}
		}
	})
}

func TestWatchStallsAndFails(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		link := new(kvfault.Link)
		s := link.Wrap(memory.New().Client())
		seen, ended := 0, make(chan error, 1)
		go func() {
			ended <- s.Watch(t.Context(), []string{"k"}, 0, func(_ kv.Rev, c []kv.Change) error {
				seen += len(c)
				return nil
			})
		}()
		synctest.Wait()
		link.Set(kvfault.Watch, kvfault.DropRequest)
		if _, err := s.Apply(t.Context(), put("k")); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if seen != 0 {
			t.Error("a stalled watch delivers")
		}
		link.Heal()
		synctest.Wait()
		if seen != 1 {
			t.Errorf("after the stall %d changes were delivered, want 1", seen)
		}
		cause := errors.New("reset")
		link.SetError(kvfault.All, cause)
		if err := <-ended; !errors.Is(err, cause) {
			t.Errorf("a watch that was made to fail ends with %v", err)
		}
	})
}

// TestWatchFailsWhileItBegins: a watch that the Link holds at its beginning fails together with
// running watches.
func TestWatchFailsWhileItBegins(t *testing.T) {
	t.Parallel()
	for range 20 {
		synctest.Test(t, func(t *testing.T) {
			link := new(kvfault.Link)
			s := link.Wrap(memory.New().Client())
			link.Set(kvfault.Watch, kvfault.DropRequest)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			cause, ended := errors.New("reset"), make(chan error, 1)
			go func() {
				ended <- s.Watch(ctx, []string{"k"}, 0, func(kv.Rev, []kv.Change) error { return nil })
			}()
			synctest.Wait()
			link.SetError(kvfault.Watch, cause)
			link.Heal()
			synctest.Wait()
			cancel()
			if err := <-ended; !errors.Is(err, cause) {
				t.Errorf("a watch that was made to fail ends with %v", err)
			}
		})
	}
}

func TestCloseEndsWaiting(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		link := new(kvfault.Link)
		s := link.Wrap(memory.New().Client())
		link.Cut()
		ended := make(chan error, 1)
		go func() {
			_, err := s.Get(t.Context(), "k")
			ended <- err
		}()
		synctest.Wait()
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if err := <-ended; err == nil {
			t.Error("a call over a cut link succeeded")
		}
		if n := link.Count(kvfault.Read); n != 1 {
			t.Errorf("%d reads were counted, want 1", n)
		}
	})
}
