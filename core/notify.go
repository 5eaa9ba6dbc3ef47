package core

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/core/fsm"
)

// maxEvents bounds what waits for slow hooks.
const maxEvents = 1 << 16

// notifier calls hooks and the logger one event at a time, in order, from a
// goroutine of its own. Safe for concurrent use.
type notifier struct {
	h    Hooks
	log  *slog.Logger // nil: slog.Default
	node string

	mu      sync.Mutex
	queue   []notice
	dropped int
	closed  bool
	wake    chan struct{}
}

// notice is what the notifier does next: f, or without it OnCall. Calls are values, so
// that none costs an allocation.
type notice struct {
	f    func()
	call Call
}

func newNotifier(h Hooks, log *slog.Logger, node string) *notifier {
	return &notifier{h: h, log: log, node: node, wake: make(chan struct{}, 1)}
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
	n.mu.Unlock()
	n.signal()
}

func (n *notifier) close() {
	n.mu.Lock()
	n.closed = true
	n.mu.Unlock()
	n.signal()
}

func (n *notifier) signal() {
	select {
	case n.wake <- struct{}{}:
	default:
	}
}

// spareEvents is the largest queue that is kept for later events.
const spareEvents = 1 << 10

// run calls what was posted until it is closed and nothing is left.
func (n *notifier) run() {
	var spare []notice
	for {
		n.mu.Lock()
		batch, dropped, closed := n.queue, n.dropped, n.closed
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
			return
		}
		<-n.wake
	}
}

func (n *notifier) info(msg string, attrs ...slog.Attr) { n.write(slog.LevelInfo, msg, attrs) }

func (n *notifier) warn(msg string, attrs ...slog.Attr) { n.write(slog.LevelWarn, msg, attrs) }

func (n *notifier) write(level slog.Level, msg string, attrs []slog.Attr) {
	log := n.log
	if log == nil {
		log = slog.Default()
	}
	log.LogAttrs(context.Background(), level, msg, append(attrs, slog.String("node", n.node))...)
}

func fenceAttrs(f Fence) []slog.Attr {
	return []slog.Attr{slog.String("shard", string(f.Shard)), slog.Int64("token", int64(f.Token)), slog.String("session", string(f.Session))}
}

func (n *notifier) grant(f Fence, former SessionID) {
	n.post(func() {
		if n.h.OnGrant != nil {
			n.h.OnGrant(LeaseEvent{Fence: f, Former: former})
		}
		n.info("tenure: lease granted", fenceAttrs(f)...)
	})
}

func (n *notifier) revoke(f Fence, c fsm.Cause) {
	n.post(func() {
		if n.h.OnRevoke != nil {
			n.h.OnRevoke(&RevokedError{Fence: f, Cause: c})
		}
		n.info("tenure: lease ended", append(fenceAttrs(f), slog.String("cause", c.String()))...)
	})
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

func (n *notifier) settled(s Settled) {
	if h := n.h.OnSettled; h != nil {
		n.post(func() { h(s) })
	}
}

// handlerReturn reports what a handler returned. An error is logged, unless it only says
// that the handler was asked to stop.
func (n *notifier) handlerReturn(f Fence, ran time.Duration, err error, asked bool) {
	if n.h.OnHandlerReturn == nil && err == nil {
		return
	}
	n.post(func() {
		if n.h.OnHandlerReturn != nil {
			n.h.OnHandlerReturn(LeaseEvent{Fence: f, Ran: ran, Err: err, Asked: err != nil && asked})
		}
		if err != nil && !asked {
			n.warn("tenure: handler returned an error", append(fenceAttrs(f), slog.Any("error", err))...)
		}
	})
}

func (n *notifier) stuck(f Fence, c fsm.Cause) {
	n.post(func() {
		if n.h.OnStuck != nil {
			n.h.OnStuck(&RevokedError{Fence: f, Cause: c})
		}
		n.warn("tenure: handler stuck: its shard is not released", append(fenceAttrs(f), slog.String("cause", c.String()))...)
	})
}

func (n *notifier) refused(f Fence, current driver.Owner) {
	n.post(func() {
		if n.h.OnRefused != nil {
			n.h.OnRefused(&FencedError{Fence: f, Current: current})
		}
		n.warn("tenure: write refused by its fence", append(fenceAttrs(f),
			slog.Int64("current_token", int64(current.Token)), slog.String("current_session", string(current.Session)))...)
	})
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
			n.info("tenure: "+ev.Kind.message(), attrs...)
		case SessionFailedOver, SessionStoreLost:
			n.warn("tenure: "+string(ev.Kind), attrs...)
		case SessionLapsed, SessionLost, SessionHalted, SessionJoinFailed, SessionIneligible:
			n.warn("tenure: "+ev.Kind.message(), attrs...)
		case SessionEligible:
			n.info("tenure: "+ev.Kind.message(), attrs...)
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
	}
	return "session " + string(k)
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
