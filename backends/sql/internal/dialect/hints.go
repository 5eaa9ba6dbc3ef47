package dialect

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tenure-go/tenure/backends/sql"
)

const (
	// tellPause is the least time between two hints of one process: they cost
	// everybody.
	tellPause = time.Millisecond
	// listenPause is how long the listener waits before it listens again, twice as long
	// after each time that nothing was heard, up to listenMost.
	listenPause = 500 * time.Millisecond
	listenMost  = 30 * time.Second
	// hintedBeats is how many heartbeats a second processes hint at, all together. Each hint
	// wakes every process, so that in a large cluster they look for heartbeats instead.
	hintedBeats = 20
)

// Link is how hints travel between processes. Its methods are called by one goroutine
// each, but Send by two.
type Link interface {
	// Send hints to the readers given in the other processes, and has this one hear it:
	// with no reader, only that.
	Send(ctx context.Context, to sql.Readers) error

	// Listen calls ready when it hears whatever is sent from then on, and heard for each
	// hint with those it is for, until the context ends or it fails.
	Listen(ctx context.Context, ready func(), heard func(sql.Readers)) error
}

// Hints tells other processes that something changed, after the commit and many changes
// at once, and hears of theirs. Safe for concurrent use.
type Hints struct {
	ctx   context.Context
	wake  *Wake
	link  Link
	limit time.Duration

	pending atomic.Uint32 // the readers to hint to
	due     chan struct{}
	hears   atomic.Bool
	heard   chan struct{} // since it was last emptied
	beats   beats
	done    sync.WaitGroup
}

// NewHints returns hints that travel over a link until life ends. What is heard wakes
// readers. A link that goes deaf is noticed within the limit.
func NewHints(life context.Context, wake *Wake, link Link, limit time.Duration) *Hints {
	return &Hints{ctx: life, wake: wake, link: link, limit: limit, due: make(chan struct{}, 1),
		heard: make(chan struct{}, 1)}
}

// Start begins to tell and to listen.
func (h *Hints) Start() {
	h.done.Go(h.teller)
	h.done.Go(h.listener)
}

// Close waits for the goroutines, which end with the store's life.
func (h *Hints) Close() { h.done.Wait() }

// Hears reports whether hints arrive: the last one did within the limit.
func (h *Hints) Hears() bool { return h.hears.Load() }

// Tell hints, soon, to those readers in the other processes that wait for what changed.
func (h *Hints) Tell(readers sql.Readers) {
	if readers == sql.Watchers && !h.beats.few(time.Now()) {
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
		readers, wait := sql.Readers(h.pending.Swap(0)), tellPause
		if err := h.send(h.ctx, readers, h.limit); err != nil { // the others rely on it
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

func (h *Hints) send(ctx context.Context, to sql.Readers, limit time.Duration) error {
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

// listen hears until it fails or goes deaf, and reports whether it heard anything.
func (h *Hints) listen() (ever bool) {
	ctx, cancel := context.WithCancel(h.ctx)
	var proving sync.WaitGroup
	_ = h.link.Listen(ctx, func() {
		proving.Go(func() {
			defer cancel()
			ever = h.prove(ctx)
		})
	}, func(to sql.Readers) {
		select {
		case h.heard <- struct{}{}:
		default:
		}
		if to == sql.Watchers {
			h.beats.count(time.Now())
		}
		h.wake.Broadcast(to)
	})
	cancel()
	proving.Wait()
	return ever
}

// prove sends a hint to itself whenever nothing was heard for a while, until such a one
// is not heard either, and reports whether any was.
func (h *Hints) prove(ctx context.Context) (ever bool) {
	defer func() {
		if h.hears.Swap(false) {
			h.wake.Broadcast(sql.Everybody) // who poll from now on
		}
	}()
	h.empty()
	for {
		if !h.proven(ctx) {
			return ever
		}
		if ever = true; !h.hears.Swap(true) {
			h.wake.Broadcast(sql.Everybody) // what changed before may have been missed
		}
		for h.hear(ctx, h.limit*4/5) {
		}
		if ctx.Err() != nil {
			return ever
		}
	}
}

// proven reports whether a hint to itself, or another one, is heard.
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

// hear reports whether anything is heard within d.
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

// pause reports whether the store still lives after d.
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

// beats counts heartbeats that some process hinted at.
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

// few reports whether there may be a hint at another one.
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
