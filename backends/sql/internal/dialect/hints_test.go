package dialect

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenure-go/tenure/backends/sql/internal/engine"
)

// bus is a link that returns its own messages while it is up and can hear.
type bus struct {
	deaf, down atomic.Bool
	sent       atomic.Int64
	messages   chan engine.Readers
}

var errDown = errors.New("down")

func (b *bus) Send(ctx context.Context, to engine.Readers) error {
	if b.down.Load() {
		return errDown
	}
	b.sent.Add(1)
	if !b.deaf.Load() {
		b.messages <- to
	}
	return nil
}

func (b *bus) Listen(ctx context.Context, ready func(), heard func(engine.Readers)) error {
	if b.down.Load() {
		return errDown
	}
	ready()
	for {
		select {
		case to := <-b.messages:
			heard(to)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// TestHears: a link that hears no other message tests itself with one message. If a link goes deaf
// or ends, this is noticed within the limit. Readers are woken then, and again when the link
// recovers.
func TestHears(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const limit = 4 * time.Second
		var wake Wake
		link := &bus{messages: make(chan engine.Readers, 100)}
		life, end := context.WithCancel(t.Context())
		h := NewHints(life, &wake, link, limit)
		woken := func(what string, hears bool, within time.Duration) {
			t.Helper()
			start := time.Now()
			for h.Hears() != hears {
				select {
				case <-wake.C(engine.Observers):
				case <-time.After(within):
					t.Fatalf("%s: hears is %v after %v", what, h.Hears(), within)
				}
			}
			if late := time.Since(start); late > within {
				t.Errorf("%s was noticed after %v, want %v", what, late, within)
			}
		}
		tailers, watchers := wake.C(engine.Tailers), wake.C(engine.Watchers)
		h.Start()
		woken("the first message", true, time.Second)
		<-tailers
		<-watchers
		before := link.sent.Load()
		time.Sleep(time.Minute)
		if n := link.sent.Load() - before; n > 20 || !h.Hears() {
			t.Errorf("a minute of silence took %d messages, want at most 20", n)
		}
		before = link.sent.Load()
		for range 60 { // other messages are heard
			time.Sleep(time.Second)
			link.messages <- 0
		}
		if n := link.sent.Load() - before; n > 1 {
			t.Errorf("a minute with messages of others took %d, want at most 1", n)
		}
		link.deaf.Store(true)
		woken("deafness", false, limit+time.Millisecond)
		link.deaf.Store(false)
		woken("its end", true, 2*limit)
		link.down.Store(true)
		woken("an outage", false, limit+time.Millisecond)
		changed := wake.C(engine.Observers)
		h.Tell(engine.Observers) // kept until the link is up
		time.Sleep(2 * limit)
		link.down.Store(false)
		woken("its end", true, listenMost+limit)
		<-changed
		end()
		h.Close()
		if h.Hears() {
			t.Error("it hears after the end")
		}
	})
}

// TestTell: a hint that could not be sent is sent later. Heartbeats cause hints only while there
// are few of them.
func TestTell(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var wake Wake
		link := &bus{messages: make(chan engine.Readers, 1000)}
		life, end := context.WithCancel(t.Context())
		h := NewHints(life, &wake, link, time.Hour)
		h.Start()
		time.Sleep(time.Second)
		link.down.Store(true)
		tailers := wake.C(engine.Tailers)
		h.Tell(engine.Tailers)
		time.Sleep(time.Minute)
		link.down.Store(false)
		select {
		case <-tailers:
		case <-time.After(listenMost + time.Second):
			t.Error("a hint that could not be sent was not sent later")
		}
		before := link.sent.Load()
		for range 100 {
			h.Tell(engine.Watchers)
			time.Sleep(5 * time.Millisecond)
		}
		if n := link.sent.Load() - before; n < 1 || n > hintedBeats {
			t.Errorf("100 heartbeats in half a second were told of %d times, want at most %d", n, hintedBeats)
		}
		time.Sleep(time.Second)
		watchers := wake.C(engine.Watchers)
		h.Tell(engine.Watchers)
		select {
		case <-watchers:
		case <-time.After(time.Second):
			t.Error("the next heartbeat was not told of")
		}
		end()
		h.Close()
	})
}
