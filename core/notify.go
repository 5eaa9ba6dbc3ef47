package core

import (
	"context"
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
	h   Hooks
	log *slog.Logger // or nil

	mu      sync.Mutex
	queue   []func()
	dropped int
	closed  bool
	wake    chan struct{}
}

func newNotifier(h Hooks, log *slog.Logger) *notifier {
	return &notifier{h: h, log: log, wake: make(chan struct{}, 1)}
}

func (n *notifier) post(f func()) {
	n.mu.Lock()
	if n.closed { // a handler that was given up on has returned
		n.mu.Unlock()
		return
	}
	if len(n.queue) >= maxEvents {
		n.queue[0] = nil
		n.queue = n.queue[1:]
		n.dropped++
	}
	n.queue = append(n.queue, f)
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

// run calls what was posted until it is closed and nothing is left.
func (n *notifier) run() {
	for {
		n.mu.Lock()
		batch, dropped, closed := n.queue, n.dropped, n.closed
		n.queue, n.dropped = nil, 0
		n.mu.Unlock()
		if dropped > 0 {
			if n.h.OnDropped != nil {
				n.h.OnDropped(Dropped{Events: dropped})
			}
			n.warn("tenure: hooks are too slow: events dropped", slog.Int("events", dropped))
		}
		for _, f := range batch {
			f()
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

func (n *notifier) info(msg string, attrs ...slog.Attr) {
	if n.log != nil {
		n.log.LogAttrs(context.Background(), slog.LevelInfo, msg, attrs...)
	}
}

func (n *notifier) warn(msg string, attrs ...slog.Attr) {
	if n.log != nil {
		n.log.LogAttrs(context.Background(), slog.LevelWarn, msg, attrs...)
	}
}

func fenceAttrs(f Fence) []slog.Attr {
	return []slog.Attr{slog.String("shard", string(f.Shard)), slog.Int64("token", int64(f.Token)), slog.String("session", string(f.Session))}
}

func (n *notifier) grant(f Fence) {
	if n.h.OnGrant == nil && n.log == nil {
		return
	}
	n.post(func() {
		if n.h.OnGrant != nil {
			n.h.OnGrant(LeaseEvent{Fence: f})
		}
		n.info("tenure: lease granted", fenceAttrs(f)...)
	})
}

func (n *notifier) revoke(f Fence, c fsm.Cause) {
	if n.h.OnRevoke == nil && n.log == nil {
		return
	}
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

// handlerReturn reports what a handler returned. With neither a hook nor a logger an
// error goes to slog.Default, unless the handler was asked to stop and says so.
func (n *notifier) handlerReturn(f Fence, ran time.Duration, err error, asked bool) {
	lost := n.h.OnHandlerReturn == nil && n.log == nil && err != nil && !asked
	if n.h.OnHandlerReturn == nil && (n.log == nil || err == nil) && !lost {
		return
	}
	n.post(func() {
		if n.h.OnHandlerReturn != nil {
			n.h.OnHandlerReturn(LeaseEvent{Fence: f, Ran: ran, Err: err})
		}
		const msg = "tenure: handler returned an error"
		switch attrs := append(fenceAttrs(f), slog.Any("error", err)); {
		case lost:
			slog.Default().LogAttrs(context.Background(), slog.LevelWarn, msg, attrs...)
		case err != nil:
			n.info(msg, attrs...)
		}
	})
}

func (n *notifier) stuck(f Fence, c fsm.Cause) {
	if n.h.OnStuck == nil && n.log == nil {
		return
	}
	n.post(func() {
		if n.h.OnStuck != nil {
			n.h.OnStuck(&RevokedError{Fence: f, Cause: c})
		}
		n.warn("tenure: handler stuck: its shard is not released", append(fenceAttrs(f), slog.String("cause", c.String()))...)
	})
}

func (n *notifier) refused(f Fence, current driver.Owner) {
	if n.h.OnRefused == nil && n.log == nil {
		return
	}
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
	if n.h.OnSession == nil && n.log == nil {
		return
	}
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
		switch ev.Kind {
		case SessionJoined, SessionRegained:
			n.info("tenure: "+ev.Kind.message(), attrs...)
		case SessionFailedOver, SessionStoreLost:
			n.warn("tenure: "+string(ev.Kind), attrs...)
		case SessionLapsed, SessionLost, SessionHalted, SessionJoinFailed:
			n.warn("tenure: "+ev.Kind.message(), attrs...)
		}
	})
}

// message says what happened, and to what.
func (k SessionEventKind) message() string {
	if k == SessionLost {
		return string(k) // which names the session itself
	}
	return "session " + string(k)
}

func (n *notifier) peer(ev PeerEvent) {
	if h := n.h.OnPeer; h != nil {
		n.post(func() { h(ev) })
	}
}

func (n *notifier) call(kind string, items int, took time.Duration, err error) {
	if h := n.h.OnCall; h != nil {
		n.post(func() { h(Call{Kind: kind, Items: items, Took: took, Err: err}) })
	}
}
