package core

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/rhythm"
)

// maxEvents bounds what waits for slow hooks.
const maxEvents = 1 << 16

// notifier calls hooks and the logger one event at a time, in order, from a
// goroutine of its own. Safe for concurrent use.
type notifier struct {
	h    Hooks
	log  *slog.Logger // nil: slog.Default
	node string
	heed func(kind string, err error)

	gathered []*gathering // of the goroutine that runs
	lines    rhythm.Rhythm

	mu       sync.Mutex
	queue    []notice
	dropped  int
	stepping bool // more of what happens now is on its way
	posted   bool // something, since the step began
	closed   bool
	wake     chan struct{}
}

// notice is what the notifier does next: f, or without it OnCall. Calls are values, so
// that none costs an allocation.
type notice struct {
	f    func()
	call Call
}

func newNotifier(h Hooks, log *slog.Logger, node string) *notifier {
	return &notifier{h: h, log: log, node: node, heed: func(string, error) {}, wake: make(chan struct{}, 1)}
}

func (n *notifier) post(f func()) {
	n.put(notice{f: f})
}

func (n *notifier) put(what notice) {
	n.mu.Lock()
	if n.closed { // a handler that was given up on has returned
		n.mu.Unlock()
		return
	}
	if len(n.queue) >= maxEvents {
		n.queue[0] = notice{}
		n.queue = n.queue[1:]
		n.dropped++
	}
	n.queue = append(n.queue, what)
	n.posted = true
	n.mu.Unlock()
	poke(n.wake)
}

func (n *notifier) close() {
	n.mu.Lock()
	n.closed = true
	n.mu.Unlock()
	poke(n.wake)
}

// step begins, or ends, what counts as one step: lines about its leases are written at its
// end.
func (n *notifier) step(begins bool) {
	n.mu.Lock()
	n.stepping = begins
	posted := n.posted
	n.posted = false
	n.mu.Unlock()
	if posted {
		poke(n.wake)
	}
}

// spareEvents is the largest queue that is kept for later events.
const spareEvents = 1 << 10

// run calls what was posted until it is closed and nothing is left.
func (n *notifier) run() {
	var spare []notice
	again := time.NewTimer(0)
	defer again.Stop()
	for {
		n.mu.Lock()
		batch, dropped, stepping, closed := n.queue, n.dropped, n.stepping, n.closed
		n.queue, n.dropped = spare, 0
		n.mu.Unlock()
		if dropped > 0 {
			if n.h.OnDropped != nil {
				n.h.OnDropped(Dropped{Events: dropped})
			}
			n.warn("tenure: hooks are too slow: events dropped", slog.Int("events", dropped))
		}
		for i := range batch {
			if f := batch[i].f; f != nil {
				f()
			} else {
				n.h.OnCall(batch[i].call)
			}
		}
		spare = nil
		if cap(batch) <= spareEvents {
			clear(batch)
			spare = batch[:0]
		}
		if len(batch) > 0 {
			continue
		}
		if closed {
			n.writeGathered(true)
			return
		}
		if !stepping {
			if at := n.writeGathered(false); !at.IsZero() {
				again.Reset(time.Until(at))
			}
		}
		select {
		case <-n.wake:
		case <-again.C:
		}
	}
}

func (n *notifier) info(msg string, attrs ...slog.Attr) { n.write(slog.LevelInfo, msg, attrs) }

func (n *notifier) warn(msg string, attrs ...slog.Attr) { n.write(slog.LevelWarn, msg, attrs) }

// write writes a line after those about leases that are due.
func (n *notifier) write(level slog.Level, msg string, attrs []slog.Attr) {
	n.writeGathered(false)
	n.emit(level, msg, attrs)
}

func (n *notifier) settled(s Settled) {
	if h := n.h.OnSettled; h != nil {
		n.post(func() { h(s) })
	}
}

func (n *notifier) handlerStart(f Fence) {
	if h := n.h.OnHandlerStart; h != nil {
		n.post(func() { h(LeaseEvent{Fence: f}) })
	}
}

func (n *notifier) stop(f Fence, cause error) {
	if h := n.h.OnStop; h != nil {
		n.post(func() { h(LeaseEvent{Fence: f, Err: cause}) })
	}
}

// explainTimeout bounds how long hooks and log wait to learn how a session ended.
const explainTimeout = time.Second

// session reports what happened to the own session; lost is the one that was lost,
// if any, which is asked how. That is done here, not in the call that found it lost:
// nothing waits for it but hooks and log.
func (n *notifier) session(ev SessionEvent, lost driver.Session) {
	n.post(func() {
		if x, ok := lost.(driver.Explainer); ok {
			ctx, cancel := context.WithTimeout(context.Background(), explainTimeout)
			if why := x.Explain(ctx); why.Cause != "" || ev.Err == nil {
				ev.Err = why
			}
			cancel()
		}
		if n.h.OnSession != nil {
			n.h.OnSession(ev)
		}
		attrs := []slog.Attr{slog.String("session", string(ev.Session))}
		if ev.Err != nil {
			attrs = append(attrs, slog.Any("error", ev.Err))
		}
		if why, ok := errors.AsType[*driver.SessionLostError](ev.Err); ok && why.Cause != "" {
			attrs = append(attrs, slog.String("cause", string(why.Cause)), slog.String("by_session", string(why.By)),
				slog.String("by_node", why.Node))
		}
		switch ev.Kind {
		case SessionJoined, SessionRegained:
			n.lines.Worked("join", time.Now())
			n.info("tenure: "+ev.Kind.message(), attrs...)
		case SessionJoinFailed:
			if _, say := n.lines.Failed("join", time.Now()); say {
				n.warn("tenure: "+ev.Kind.message(), attrs...)
			}
		case SessionFailedOver:
			n.warn("tenure: "+string(ev.Kind), attrs...)
		case SessionLapsed, SessionLost, SessionHalted, SessionIneligible:
			n.warn("tenure: "+ev.Kind.message(), attrs...)
		case SessionEligible:
			n.info("tenure: "+ev.Kind.message(), attrs...)
		default: // the others repeat while the store is away; OnSession has them
		}
	})
}

// message says what happened, and to what.
func (k SessionEventKind) message() string {
	switch k {
	case SessionLost:
		return string(k) // which names the session itself
	case SessionIneligible, SessionEligible:
		return "member " + string(k)
	default:
		return "session " + string(k)
	}
}

func (n *notifier) peer(ev PeerEvent) {
	if n.h.OnPeer == nil && ev.Kind != PeerEvicted {
		return
	}
	n.post(func() {
		if n.h.OnPeer != nil {
			n.h.OnPeer(ev)
		}
		if ev.Kind == PeerEvicted {
			n.info("tenure: member evicted", slog.String("peer_session", string(ev.Peer.Session)),
				slog.String("peer_node", ev.Peer.Node))
		}
	})
}

func (n *notifier) call(kind string, items int, took time.Duration, err error) {
	if n.h.OnCall != nil {
		n.put(notice{call: Call{Kind: kind, Items: items, Took: took, Err: err}})
	}
}
