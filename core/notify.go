package core

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/goexit"
	"github.com/tenure-go/tenure/internal/rhythm"
)

// maxEvents is the maximum number of events that may wait for slow hooks.
const maxEvents = 1 << 16

// A notifier calls hooks and the logger one event at a time, in order, from its own goroutine. It
// is safe for concurrent use.
type notifier struct {
	h    Hooks
	log  *slog.Logger // nil for slog.Default
	node string
	heed func(kind string, err error)

	gathered []*gathering // like batch, used only by the goroutine in run
	lines    rhythm.Rhythm
	batch    []notice // events before index at have been handled
	at       int
	posting  time.Time // when the event being handled was posted

	mu       sync.Mutex
	queue    []notice
	dropped  int
	stepping bool // a step is in progress and may post more
	posted   bool // an event was posted since the step began
	closed   bool
	wake     chan struct{}
}

// A notice is one action of the notifier: a call to f or, if f is nil, to OnCall. OnCall's argument
// is stored as a value, so that calls do not allocate.
type notice struct {
	at   time.Time // when f was posted
	f    func()
	call Call
}

func newNotifier(h Hooks, log *slog.Logger, node string) *notifier {
	return &notifier{h: h, log: log, node: node, heed: func(string, error) {}, wake: make(chan struct{}, 1)}
}

func (n *notifier) post(f func()) {
	n.put(notice{at: time.Now(), f: f})
}

func (n *notifier) put(what notice) {
	n.mu.Lock()
	if n.closed { // a stuck handler has returned
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

// step marks the beginning or the end of a step. Lines about the leases affected by a step are
// written when it ends.
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

// spareEvents is the maximum capacity of a queue that is kept for reuse.
const spareEvents = 1 << 10

// serve calls run, and calls it again if a hook or the logger ended its goroutine.
func (n *notifier) serve() {
	for goexit.Call(n.run) != nil {
		if _, say := n.lines.Failed("hook", time.Now()); say {
			_ = goexit.Call(func() error { n.warn("tenure: hook failed", slog.Any("error", goexit.Err)); return nil })
		}
	}
}

// run handles posted events until the notifier is closed and no event is left.
func (n *notifier) run() error {
	var spare []notice
	again := time.NewTimer(0)
	defer again.Stop()
	for {
		for n.at < len(n.batch) {
			what := n.batch[n.at]
			if n.at++; what.f != nil {
				n.posting = what.at
				what.f()
			} else {
				n.h.OnCall(what.call)
			}
		}
		if len(n.batch) > 0 && cap(n.batch) <= spareEvents {
			clear(n.batch)
			spare = n.batch[:0]
		}
		n.mu.Lock()
		dropped, stepping, closed := n.dropped, n.stepping, n.closed
		n.batch, n.at, n.queue, n.dropped = n.queue, 0, spare, 0
		n.mu.Unlock()
		spare = nil
		if dropped > 0 {
			n.posting = time.Now()
			n.tell(Event{Kind: EventsDropped, Dropped: dropped})
			n.warn("tenure: hooks are too slow: events dropped", slog.Int("events", dropped))
		}
		if len(n.batch) > 0 {
			continue
		}
		if closed {
			n.writeGathered(true)
			return nil
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

// Gathered lines that are due are written before the new line.
func (n *notifier) write(level slog.Level, msg string, attrs []slog.Attr) {
	n.writeGathered(false)
	n.emit(level, msg, attrs)
}

// tell calls OnEvent, in the notifier's goroutine.
func (n *notifier) tell(ev Event) {
	if n.h.OnEvent != nil {
		ev.At = n.posting
		n.h.OnEvent(ev)
	}
}

// event reports an event that has no log line.
func (n *notifier) event(ev Event) {
	if n.h.OnEvent != nil {
		n.post(func() { n.tell(ev) })
	}
}

// handlerStart returns a channel that is closed when the hook has returned and all earlier lines,
// except gathered ones, have been written.
func (n *notifier) handlerStart(f Fence) <-chan struct{} {
	written := make(chan struct{})
	n.post(func() {
		defer close(written)
		n.writeGathered(false)
		n.tell(Event{Kind: HandlerStarted, Fence: f})
	})
	return written
}

// explainTimeout is the longest time that hooks and the log wait to learn how a session ended.
const explainTimeout = time.Second

// session reports an event of this process's session. If the session was lost, the argument lost is
// that session, and its Explain method is called. Only hooks and the log wait for the explanation,
// not the call that detected the loss.
func (n *notifier) session(ev Event, lost driver.Session) {
	n.post(func() {
		if x, ok := lost.(driver.Explainer); ok {
			ctx, cancel := context.WithTimeout(context.Background(), explainTimeout)
			if why := x.Explain(ctx); why.Cause != "" || ev.Err == nil {
				ev.Err = why
			}
			cancel()
		}
		n.tell(ev)
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
		default: // the other kinds repeat during an outage, so only OnEvent gets them
		}
	})
}

func (k EventKind) message() string {
	switch k {
	case SessionLost:
		return string(k) // already names the session
	case SessionIneligible, SessionEligible:
		return "member " + string(k)
	default:
		return "session " + string(k)
	}
}

func (n *notifier) peer(ev Event) {
	if ev.Kind != PeerEvicted {
		n.event(ev)
		return
	}
	n.post(func() {
		n.tell(ev)
		n.info("tenure: member evicted", slog.String("peer_session", string(ev.Peer.Session)),
			slog.String("peer_node", ev.Peer.Node))
	})
}

func (n *notifier) call(c Call) {
	if n.h.OnCall != nil {
		n.put(notice{call: c})
	}
}
