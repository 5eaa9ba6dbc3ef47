package dialect

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tenure-go/tenure/backends/sql/internal/engine"
)

const (
	// tellPause is the minimum time between two hints from one process. A hint wakes every process,
	// so hints must not be too frequent.
	tellPause = time.Millisecond
	// listenPause is how long the listener waits before it listens again. The pause doubles each
	// time the listener hears nothing, up to listenMost.
	listenPause = 500 * time.Millisecond
	listenMost  = 30 * time.Second
	// hintedBeats is the maximum number of heartbeats per second for which all processes together
	// send hints. Each hint wakes every process, so the processes of a large cluster poll for
	// heartbeats instead.
	hintedBeats = 20
)

// Link transports hints between processes. Two goroutines call Send, and one goroutine calls
// Listen.
type Link interface {
	// Send sends a hint to the given readers in the other processes. This process also hears the
	// hint. A hint without readers goes only to this process.
	Send(ctx context.Context, to engine.Readers) error

	// Listen calls ready as soon as it can receive all later hints. For each hint, Listen calls
	// heard with the hint's readers. Listen returns when the context ends or Listen fails.
	Listen(ctx context.Context, ready func(), heard func(engine.Readers)) error
}

// Hints sends hints to other processes after commits, and receives theirs. One hint may cover many
// changes. Hints is safe for concurrent use.
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

// NewHints returns Hints that use the Link until the context ends, and wake readers when a hint
// arrives. If the Link stops receiving hints, Hints notices within the limit.
func NewHints(life context.Context, wake *Wake, link Link, limit time.Duration) *Hints {
	return &Hints{ctx: life, wake: wake, link: link, limit: limit, due: make(chan struct{}, 1),
		heard: make(chan struct{}, 1)}
}

// Start starts the goroutines that send and receive hints.
func (h *Hints) Start() {
	h.done.Go(h.teller)
	h.done.Go(h.listener)
}

// Close waits for the goroutines, which end with the context passed to NewHints.
func (h *Hints) Close() { h.done.Wait() }

// Hears reports whether a hint arrived within the limit.
func (h *Hints) Hears() bool { return h.hears.Load() }

// Tell schedules a hint to the given readers in other processes.
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
		if err := h.send(h.ctx, readers, h.limit); err != nil { // other processes rely on this process's hints
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

// listen receives hints until it fails or no hint arrives, and reports whether it ever received
// one.
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

// prove sends a hint to this process whenever no hint has arrived for a while. If even that hint
// does not arrive, prove returns, and reports whether any hint ever arrived.
func (h *Hints) prove(ctx context.Context) (ever bool) {
	defer func() {
		if h.hears.Swap(false) {
			h.wake.Broadcast(engine.Everybody) // from now on, readers poll
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

// The result reports whether any hint arrives after one was sent to this process.
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

// pause waits for a duration, and reports whether the store is still open.
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

// beats counts the heartbeats for which any process sent a hint.
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

// The result reports whether another heartbeat may cause a hint.
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
