package tenurehttp

import (
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/internal/operator"
)

// Bounds of /may-stop.
const (
	stopCall     = 4 * time.Second  // of one call to the store
	stopAsk      = 8 * time.Second  // of a question, but for the end of a write
	stopPatience = 30 * time.Second // for a client to wait, and to take the answer
	stopFresh    = time.Second      // an answer is given again for so long
	maxAsking    = 16               // requests at a time
)

// stops answers /may-stop. One request at a time asks the store; those that wait get the
// same answer. Safe for concurrent use.
type stops struct {
	source  Source
	backend core.Backend
	ask     operator.Question // without what each request finds out
	token   string
	asking  chan struct{} // has room for each request that is being served

	turn chan struct{} // of the request that asks; guards the others
	at   time.Time     // of last
	last stopReply
}

type stopReply struct {
	status int
	retry  time.Duration // 0: no header
	body   any
}

func newStops(s Source, o *Options) *stops {
	return &stops{source: s, backend: o.Stops, token: o.StopToken, asking: make(chan struct{}, maxAsking), turn: make(chan struct{}, 1),
		ask: operator.Question{Away: o.StopAway, Members: o.StopMembers, For: o.StopFor,
			Keep: cmp.Or(o.StopFor, operator.DefaultFor) / 2, Author: "GET /may-stop"}}
}

func (s *stops) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if status, why := s.refusal(w, r); status != 0 {
		reply(w, status, problemJSON{Error: why})
		return
	}
	// A ResponseWriter that has no deadline leaves it to its server.
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(stopPatience))
	select {
	case s.asking <- struct{}{}:
		defer func() { <-s.asking }()
	default:
		w.Header().Set("Retry-After", "1")
		reply(w, http.StatusServiceUnavailable, problemJSON{Error: "too many requests at a time: ask again"})
		return
	}
	a := s.answer(r.Context())
	if a.retry > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int((a.retry+time.Second-1)/time.Second)))
	}
	reply(w, a.status, a.body)
}

// refusal says which requests are not answered, and why; status 0: none of them. What it
// lets pass writes to the store, and a place that is taken keeps others from being updated.
func (s *stops) refusal(w http.ResponseWriter, r *http.Request) (status int, why string) {
	switch {
	case r.Method != http.MethodGet:
		w.Header().Set("Allow", "GET")
		return http.StatusMethodNotAllowed, "use GET: it reserves a place, and asking again keeps it"
	case browser(r.Header):
		return http.StatusForbidden, "a browser may not ask, as any site's page can have it do so: use curl, or tenure may-stop"
	case s.token != "" && !s.authorised(r):
		w.Header().Set("WWW-Authenticate", "Bearer")
		return http.StatusUnauthorized, "the bearer token is missing or wrong: send that of Options.StopToken"
	case s.token == "" && !local(r):
		return http.StatusForbidden, "only processes of this machine may ask, without a proxy: set Options.StopToken for others"
	case r.URL.RawQuery != "":
		return http.StatusBadRequest, "it takes no parameters, and answers for the node of this member only: use tenure may-stop for others"
	}
	return 0, ""
}

// browser reports whether a browser sent a request.
func browser(h http.Header) bool {
	for name := range h {
		if strings.HasPrefix(name, "Sec-") || name == "Origin" || name == "Referer" {
			return true
		}
	}
	return false
}

// authorised compares in constant time.
func (s *stops) authorised(r *http.Request) bool {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	got, want := sha256.Sum256([]byte(token)), sha256.Sum256([]byte(s.token))
	return strings.EqualFold(scheme, "Bearer") && subtle.ConstantTimeCompare(got[:], want[:]) == 1
}

// local reports whether a process of this machine sent a request, as far as it can be known:
// a proxy on this machine says that it passes one on, and for whom, or by which name.
func local(r *http.Request) bool {
	for name := range r.Header {
		if name == "Forwarded" || name == "Via" || strings.HasPrefix(name, "X-Forwarded-") || name == "X-Real-Ip" ||
			strings.HasPrefix(name, "X-Envoy-") {
			return false
		}
	}
	switch at := r.Context().Value(http.LocalAddrContextKey).(type) {
	case *net.UnixAddr:
		return true
	case *net.TCPAddr:
		return at.IP.IsLoopback() && here(r.Host, nil)
	}
	return false
}

// answer asks the store, unless it has just answered. The request's end does not end the
// question, since its answer is also for those that wait.
func (s *stops) answer(ctx context.Context) stopReply {
	select {
	case s.turn <- struct{}{}:
		defer func() { <-s.turn }()
	case <-ctx.Done():
	}
	if ctx.Err() != nil { // the client did not wait
		return stopReply{status: http.StatusServiceUnavailable, body: problemJSON{Error: "the request has ended"}}
	}
	if !s.at.IsZero() && time.Since(s.at) < stopFresh {
		return s.last
	}
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopAsk)
	defer cancel()
	s.last = s.put(bounded)
	s.at = time.Now()
	return s.last
}

// put asks the store.
func (s *stops) put(ctx context.Context) stopReply {
	v := s.source.View()
	o := &core.Options{TTL: max(10*time.Second, s.backend.Info().Limits.MinTTL), CallTimeout: stopCall}
	q := s.ask
	q.Node, q.Silent, q.Writer = v.Node, v.Silent, "tenurehttp of node "+v.Node
	q.Aside = func(shard string) core.Aside {
		o, _ := v.Owner(shard)
		return o.Aside
	}
	a, err := (&operator.Writer{Backend: s.backend, Options: o, Timeout: stopCall}).Ask(ctx, q)
	switch {
	case errors.Is(err, core.ErrInvalid):
		return stopReply{http.StatusInternalServerError, 0, problemJSON{Error: "no answer: correct Options.Stop...: " + reason(err)}}
	case err != nil:
		return stopReply{http.StatusServiceUnavailable, 5 * time.Second, problemJSON{Error: "no answer: " + reason(err)}}
	case !a.May:
		return stopReply{http.StatusConflict, a.Retry(time.Now()), a}
	}
	return stopReply{http.StatusOK, 0, a}
}
