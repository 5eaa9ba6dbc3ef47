package tenurehttp

import (
	"encoding/json"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"time"
)

const (
	maxStreams     = 16
	streamEvery    = 200 * time.Millisecond // the minimum time between two updates
	streamPulse    = time.Second            // the maximum time between two updates of the heartbeats' ages
	streamPatience = 10 * time.Second       // how long a client may take to receive a message or an answer
	streamLife     = 15 * time.Minute       // after this time, the client must open another stream
)

// streams manages the places for a handler's streams, and ends each stream when its server stops.
// It is safe for concurrent use.
type streams struct {
	most int

	mu    sync.Mutex
	taken []*place                       // oldest first
	left  int                            // streams that lost their place but have not ended yet
	ended map[*http.Server]chan struct{} // closed by Shutdown
}

type place struct {
	from  netip.Prefix  // the client's address or, for IPv6, its network
	lost  chan struct{} // closed when another stream takes the place
	ended chan struct{} // closed when the server shuts down; may be nil
}

// Without a place for the stream, enter returns nil. If all places are taken, the address with the
// most places loses its oldest place to an address with at least two fewer. Without this rule, clients
// that open streams but never read them could lock out all other clients. The server cannot tell an
// unread stream from a quiet stream.
func (s *streams) enter(r *http.Request) *place {
	p := &place{from: network(r.RemoteAddr), lost: make(chan struct{})}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.taken) >= s.most && !s.makeRoom(p.from) {
		return nil
	}
	s.taken = append(s.taken, p)
	server, _ := r.Context().Value(http.ServerContextKey).(*http.Server)
	if server == nil {
		return p
	}
	end, known := s.ended[server]
	if !known {
		end = make(chan struct{})
		s.ended[server] = end
		server.RegisterOnShutdown(func() { close(end) })
	}
	p.ended = end
	return p
}

// The caller holds s.mu.
func (s *streams) makeRoom(from netip.Prefix) bool {
	count := make(map[netip.Prefix]int)
	most := 0
	for _, p := range s.taken {
		count[p.from]++
		most = max(most, count[p.from])
	}
	if count[from]+1 >= most || s.left >= s.most {
		return false
	}
	i := slices.IndexFunc(s.taken, func(p *place) bool { return count[p.from] == most })
	close(s.taken[i].lost)
	s.taken = slices.Delete(s.taken, i, i+1)
	s.left++
	return true
}

func (s *streams) leave(p *place) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := slices.Index(s.taken, p); i >= 0 {
		s.taken = slices.Delete(s.taken, i, i+1)
	} else {
		s.left--
	}
}

// network returns the addresses that count as one client: a single address for IPv4, and the
// address's /64 network for IPv6.
func network(remote string) netip.Prefix {
	at, err := netip.ParseAddrPort(remote)
	if err != nil {
		return netip.Prefix{} // the listener is of a different kind; all of its clients count as one
	}
	addr := at.Addr().Unmap().WithZone("")
	p, _ := addr.Prefix(min(64, addr.BitLen())) // the length is always valid
	return p
}

func crossSite(r *http.Request) bool { return r.Header.Get("Sec-Fetch-Site") == "cross-site" }

// A stream of server-sent events begins with the whole board, and then contains each change. For a
// slow client, several changes are combined into one.
func (h *handler) events(w http.ResponseWriter, r *http.Request) {
	if !reads(w, r) {
		return
	}
	if crossSite(r) {
		reply(w, http.StatusForbidden, problemJSON{Error: "this stream is for the board's own page"})
		return
	}
	p := h.streams.enter(r)
	if p == nil {
		w.Header().Set("Retry-After", "5")
		reply(w, http.StatusServiceUnavailable, problemJSON{Error: "too many streams: close other boards, or use /view"})
		return
	}
	defer h.streams.leave(p)
	out := http.NewResponseController(w)
	if err := out.SetWriteDeadline(time.Now().Add(streamPatience)); err != nil {
		reply(w, http.StatusInternalServerError, problemJSON{
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
	h.stream(w, r, out, p)
}

func (h *handler) stream(w http.ResponseWriter, r *http.Request, out *http.ResponseController, p *place) {
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
				return // the client has disconnected or is too slow
			}
			sent = time.Now()
		}
		select {
		case <-ticks.C:
		case <-r.Context().Done():
			return
		case <-p.ended:
			return
		case <-p.lost:
			return
		case <-life.C:
			return
		}
	}
}

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
