package corehttp

import (
	"encoding/json"
	"net/http"
	"sync"
	"time"
)

// Bounds of the streams of /events.
const (
	maxStreams     = 16
	streamEvery    = 200 * time.Millisecond // at most so often a stream says what has changed
	streamPulse    = time.Second            // and at least so often the ages of heartbeats
	streamPatience = 10 * time.Second       // for a client to take a message
	streamLife     = 15 * time.Minute       // then the client asks again
)

// streams counts the streams of a handler, and ends them with their server. Safe for
// concurrent use.
type streams struct {
	most int

	mu    sync.Mutex
	open  int
	ended map[*http.Server]chan struct{} // closed by Shutdown
}

// enter makes room for a stream. The channel, which may be nil, is closed when the server
// shuts down; without room ok is false.
func (s *streams) enter(r *http.Request) (ended <-chan struct{}, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open >= s.most {
		return nil, false
	}
	s.open++
	server, _ := r.Context().Value(http.ServerContextKey).(*http.Server)
	if server == nil {
		return nil, true
	}
	end, known := s.ended[server]
	if !known {
		end = make(chan struct{})
		s.ended[server] = end
		server.RegisterOnShutdown(func() { close(end) })
	}
	return end, true
}

func (s *streams) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open--
}

// events serves /events: an update at once, and then what has changed since, as
// server-sent events. A client that is slow gets several changes as one.
func (h *handler) events(w http.ResponseWriter, r *http.Request) {
	if !reads(w, r) {
		return
	}
	if r.Header.Get("Sec-Fetch-Site") == "cross-site" {
		reply(w, http.StatusForbidden, Problem{Error: "this stream is for the board's own page"})
		return
	}
	ended, ok := h.streams.enter(r)
	if !ok {
		w.Header().Set("Retry-After", "5")
		reply(w, http.StatusServiceUnavailable, Problem{Error: "too many streams: close other boards, or use /view"})
		return
	}
	defer h.streams.leave()
	out := http.NewResponseController(w)
	if err := out.SetWriteDeadline(time.Now().Add(streamPatience)); err != nil {
		reply(w, http.StatusInternalServerError, Problem{
			Error: "this server cannot bound a write: a ResponseWriter that wraps another needs a method Unwrap"})
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(http.StatusOK)
	if r.Method == http.MethodHead {
		return
	}
	h.stream(w, r, out, ended)
}

func (h *handler) stream(w http.ResponseWriter, r *http.Request, out *http.ResponseController, ended <-chan struct{}) {
	f := h.newFeed()
	ticks := time.NewTicker(streamEvery)
	defer ticks.Stop()
	life := time.NewTimer(streamLife)
	defer life.Stop()
	var sent time.Time
	for {
		u, news := f.next()
		if news || time.Since(sent) >= streamPulse {
			if !send(w, out, u) {
				return // the client is gone, or too slow
			}
			sent = time.Now()
		}
		select {
		case <-ticks.C:
		case <-r.Context().Done():
			return
		case <-ended:
			return
		case <-life.C:
			return
		}
	}
}

// send writes an update as one event, within a bound.
func send(w http.ResponseWriter, out *http.ResponseController, u *update) bool {
	data, err := json.Marshal(u)
	if err != nil {
		return false
	}
	if out.SetWriteDeadline(time.Now().Add(streamPatience)) != nil {
		return false
	}
	for _, part := range [][]byte{[]byte("data: "), data, []byte("\n\n")} {
		if _, err := w.Write(part); err != nil {
			return false
		}
	}
	return out.Flush() == nil
}
