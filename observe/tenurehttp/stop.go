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
	"sync/atomic"
	"time"

	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/internal/operator"
	"github.com/tenure-go/tenure/internal/seam"
)

const (
	stopCall     = 4 * time.Second  // time limit of one call to the store
	stopAsk      = 8 * time.Second  // time limit of a query to the store, not counting the end of a write
	stopPatience = 30 * time.Second // how long a client may take to wait for the answer and to receive it
	stopFresh    = time.Second      // time between two queries; until then, a no is repeated
	maxAsking    = 16               // maximum number of concurrent requests
)

// stops answers requests for /may-stop. Only one request at a time queries the store. All requests
// that arrive before a query begins share its answer. A stops is safe for concurrent use.
type stops struct {
	source  Source
	backend core.Backend
	ask     operator.Question // without the parts that depend on the request
	token   string
	asking  chan struct{} // contains an element for each request that is being served

	asked atomic.Int64  // number of queries that have begun; last is the answer to the newest query
	turn  chan struct{} // held by the request that queries the store; guards the fields below
	at    time.Time     // time of last
	last  stopReply
}

type stopReply struct {
	status int
	retry  time.Duration // if 0, there is no header
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
	// If the ResponseWriter does not support deadlines, the server must set them.
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

// For an accepted request, the status is 0. The rules are strict, because an accepted request
// writes to the store, and a reserved place delays other nodes.
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
		return http.StatusForbidden, "without a token only a request over a Unix socket is answered, without a proxy: set Options.StopToken"
	case r.URL.RawQuery != "":
		return http.StatusBadRequest, "it takes no parameters, and answers for the node of this member only: use tenure may-stop for others"
	}
	return 0, ""
}

func browser(h http.Header) bool {
	for name := range h {
		if strings.HasPrefix(name, "Sec-") || name == "Origin" || name == "Referer" {
			return true
		}
	}
	return false
}

func (s *stops) authorised(r *http.Request) bool {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	got, want := sha256.Sum256([]byte(token)), sha256.Sum256([]byte(s.token))
	return strings.EqualFold(scheme, "Bearer") && subtle.ConstantTimeCompare(got[:], want[:]) == 1
}

// local reports whether a request arrived over a Unix socket. The mode of the socket's file
// determines who may send requests. A loopback port has no such protection, because every user,
// container and proxy on the machine can reach it.
func local(r *http.Request) bool {
	for name := range r.Header {
		if name == "Forwarded" || name == "Via" || strings.HasPrefix(name, "X-Forwarded-") || name == "X-Real-Ip" ||
			strings.HasPrefix(name, "X-Envoy-") {
			return false
		}
	}
	_, unix := r.Context().Value(http.LocalAddrContextKey).(*net.UnixAddr)
	return unix
}

// For stopFresh after a negative answer, no query is made, and the answer stays negative. If the
// last answer was positive and is older than the request, the store is queried again, because the
// place may have expired. If the request ends, the query continues, because other requests wait for
// its answer.
func (s *stops) answer(ctx context.Context) stopReply {
	came := s.asked.Load()
	select {
	case s.turn <- struct{}{}:
		defer func() { <-s.turn }()
	case <-ctx.Done():
	}
	if fresh := stopFresh - time.Since(s.at); ctx.Err() == nil && !s.at.IsZero() && fresh > 0 {
		if s.last.status != http.StatusOK || s.asked.Load() > came {
			return s.last
		}
		select {
		case <-time.After(fresh):
		case <-ctx.Done():
		}
	}
	if ctx.Err() != nil { // the client no longer waits
		return stopReply{status: http.StatusServiceUnavailable, body: problemJSON{Error: "the request has ended"}}
	}
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopAsk)
	defer cancel()
	s.asked.Add(1)
	s.last = s.put(bounded)
	s.at = time.Now()
	return s.last
}

func (s *stops) put(ctx context.Context) stopReply {
	v := s.source.View()
	o := &core.Options{TTL: max(10*time.Second, s.backend.Info().Limits.MinTTL), CallTimeout: stopCall}
	q := s.ask
	q.Node, q.Silent, q.Writer = v.Node, v.Silent, "tenurehttp of node "+v.Node
	q.Aside = func(shard string) seam.Aside {
		o, _ := v.Owner(shard)
		return seam.Aside{Why: o.Aside, Until: o.AsideUntil}
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
