package dialect

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tenure-go/tenure/backends/sql/internal/engine"
)

const (
	// tellPause is the least time between two hints of one process, because each hint wakes every
	// process.
	tellPause = time.Millisecond
	// listenPause is how long the listener waits before it listens again. It doubles each time
	// the listener hears nothing, up to listenMost.
	listenPause = 500 * time.Millisecond
	listenMost  = 30 * time.Second
	// hintedBeats is the number of heartbeats a second at which all processes together send hints.
	// Each hint wakes every process, so in a large cluster processes look for heartbeats instead.
	hintedBeats = 20
)

// Link carries hints between processes. A single goroutine calls each method, except Send,
// which two goroutines call.
type Link interface {
	// Send sends a hint to the given readers in the other processes. This process hears it too.
	// Without readers, only this process hears it.
	Send(ctx context.Context, to engine.Readers) error

	// Listen calls ready once it hears later hints, and heard for each hint with its readers. It
	// returns when the context ends or it fails.
	Listen(ctx context.Context, ready func(), heard func(engine.Readers)) error
}

// Hints sends hints to other processes after commits, one hint for many changes, and receives
// theirs. It is safe for concurrent use.
type Hints struct {
	ctx   context.Context
	wake  *Wake
	link  Link
	limit time.Duration

	pending atomic.Uint32 // readers that get the next hint
	due     chan struct{}
	hears   atomic.Bool
	heard   chan struct{} // has a token if a hint was heard since the last read
	beats   beats
	done    sync.WaitGroup
}

// NewHints returns hints over a link until life ends. A hint wakes readers. Hints notices
// within limit that a link hears nothing.
func NewHints(life context.Context, wake *Wake, link Link, limit time.Duration) *Hints {
	return &Hints{ctx: life, wake: wake, link: link, limit: limit, due: make(chan struct{}, 1),
		heard: make(chan struct{}, 1)}
}

// Start starts sending and listening.
func (h *Hints) Start() {
	h.done.Go(h.teller)
	h.done.Go(h.listener)
}

// Close waits for the goroutines, which end with life.
func (h *Hints) Close() { h.done.Wait() }

// Hears reports whether hints arrive, that is, whether one did within the limit.
func (h *Hints) Hears() bool { return h.hears.Load() }

// Tell soon sends a hint to the readers in other processes that wait for the change.
func (h *Hints) Tell(readers engine.Readers) {
	if readers == engine.Watchers && !h.beats.few(time.Now()) {
		return
	}
	if readers == 0 {
		return
	}
	h.pending.Or(uint32(readers))
	select {
	case h.due <- struct{}{}:
	default:
	}
}

func (h *Hints) teller() {
	for failed := listenPause; ; {
		select {
		case <-h.due:
		case <-h.ctx.Done():
			return
		}
		readers, wait := engine.Readers(h.pending.Swap(0)), tellPause
		if err := h.send(h.ctx, readers, h.limit); err != nil { // other processes rely on it
			h.Tell(readers)
			wait, failed = failed, min(2*failed, listenMost)
		} else {
			failed = listenPause
		}
		if !h.pause(wait) {
			return
		}
	}
}

func (h *Hints) send(ctx context.Context, to engine.Readers, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return h.link.Send(ctx, to)
}

func (h *Hints) listener() {
	for pause := listenPause; ; pause = min(2*pause, listenMost) {
		if h.listen() {
			pause = listenPause
		}
		if !h.pause(pause) {
			return
		}
	}
}

// listen hears until it fails or hears nothing, and reports whether it ever heard anything.
func (h *Hints) listen() (ever bool) {
	ctx, cancel := context.WithCancel(h.ctx)
	var proving sync.WaitGroup
	_ = h.link.Listen(ctx, func() {
		proving.Go(func() {
			defer cancel()
			ever = h.prove(ctx)
		})
	}, func(to engine.Readers) {
		select {
		case h.heard <- struct{}{}:
		default:
		}
		if to == engine.Watchers {
			h.beats.count(time.Now())
		}
		h.wake.Broadcast(to)
	})
	cancel()
	proving.Wait()
	return ever
}

// prove sends this process a hint whenever it has heard nothing for a while. It returns once
// such a hint is not heard either, and reports whether any was heard.
func (h *Hints) prove(ctx context.Context) (ever bool) {
	defer func() {
		if h.hears.Swap(false) {
			h.wake.Broadcast(engine.Everybody) // readers poll from now on
		}
	}()
	h.empty()
	for {
		if !h.proven(ctx) {
			return ever
		}
		if ever = true; !h.hears.Swap(true) {
			h.wake.Broadcast(engine.Everybody) // earlier changes may have been missed
		}
		for h.hear(ctx, h.limit*4/5) {
		}
		if ctx.Err() != nil {
			return ever
		}
	}
}

// proven sends this process a hint, and reports whether it hears any.
func (h *Hints) proven(ctx context.Context) bool {
	start, limit := time.Now(), h.limit/5
	err := h.send(ctx, 0, limit)
	return err == nil && h.hear(ctx, limit-time.Since(start))
}

func (h *Hints) empty() {
	select {
	case <-h.heard:
	default:
	}
}

// hear reports whether it hears a hint within d.
func (h *Hints) hear(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-h.heard:
		return true
	case <-timer.C:
	case <-ctx.Done():
	}
	return false
}

// pause waits d, and reports whether the store is still open.
func (h *Hints) pause(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-h.ctx.Done():
		return false
	}
}

// beats counts heartbeats that led to a hint by any process.
type beats struct {
	mu    sync.Mutex
	n     int
	since time.Time
}

func (b *beats) count(now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.turn(now)
	b.n++
}

// few reports whether another heartbeat may lead to a hint.
func (b *beats) few(now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.turn(now)
	return b.n < hintedBeats
}

func (b *beats) turn(now time.Time) {
	if now.Sub(b.since) >= time.Second {
		b.n, b.since = 0, now
	}
}
