package sidecar

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/effect"
	"github.com/tenure-go/tenure/lock"
)

// Options contains the settings of a Server. For a Unix socket, a nil *Options is valid.
type Options struct {
	// Elector contains the member's options. Elector.TTL is the longest TTL that a client may
	// request. If Elector is nil, the defaults of core.Options apply.
	Elector *core.Options
	// Token is the clients' bearer token. On a Unix socket, Token may be empty, because the sidecar
	// checks the socket's file and peers.
	Token string
	// MaxLeases limits the number of contending clients. The default is 256, and the maximum is
	// 10,000.
	MaxLeases int
	// MaxTails limits the number of log streams. Each stream has one outstanding store call. The
	// default is 16, and the maximum is 1000.
	MaxTails int
	// MaxRequests limits the number of other concurrent requests, and thus the memory for their
	// bodies. The default is 64, and the maximum is 10,000.
	MaxRequests int
}

// These constants limit each connection.
const (
	headerTime = 5 * time.Second  // time for a client to send the header of a request
	bodyTime   = 10 * time.Second // time for a client to send the whole request
	writeTime  = 10 * time.Second // time for a client to receive a written answer
	idleTime   = 2 * time.Minute  // maximum time between two requests
	lastTime   = 5 * time.Second  // time for answers in progress at the end
	spareConns = 64               // connections in addition to those of streams and requests
)

// Server serves the leases of one Elector. All of its methods are safe for concurrent use.
type Server struct {
	b        core.Backend
	e        *core.Elector
	locks    *lock.Locks // locks of e
	log      *slog.Logger
	effects  effect.Stats // effects of all leases
	token    string
	ttl      time.Duration // TTL of the member
	callTime time.Duration // time for a write
	budget   time.Duration // time for a client to release its lease when asked
	giveTime time.Duration // time for the sidecar to release a lease
	maxBody  int64
	limits   core.Limits

	maxLeases int
	maxTails  int
	requests  chan struct{}
	attempts  chan struct{} // one element for each attempt of an effect
	bodies    *room
	answers   *room
	followed  *room // room for the entries of log streams

	mu     sync.Mutex
	leases map[string]*tenancy // the leases by id
	shards map[string]*tenancy
	tails  int
	ending bool
	asked  context.Context // ends when clients are asked to release
	ask    context.CancelCauseFunc
	ended  context.Context // ends with the Elector
	end    context.CancelFunc
}

// New checks the options and returns a Server, without I/O. The caller must close the backend after
// Serve has returned.
func New(b core.Backend, o *Options) (*Server, error) {
	if o == nil {
		o = &Options{}
	}
	var member core.Options
	if o.Elector != nil {
		member = *o.Elector
	}
	// These defaults are the same as those in core, and determine giveTime.
	member.TTL = cmp.Or(member.TTL, 10*time.Second)
	member.DrainBudget = cmp.Or(member.DrainBudget, 10*time.Second)
	member.CallTimeout = cmp.Or(member.CallTimeout, max(member.TTL, 5*time.Second))
	e, err := core.NewElector(b, &member)
	if err != nil {
		return nil, err
	}
	l := b.Info().Limits
	s := &Server{
		b: b, e: e, locks: lock.Open(e), log: member.Logger, token: o.Token, ttl: member.TTL, callTime: member.CallTimeout,
		budget: member.DrainBudget * 4 / 5, giveTime: member.DrainBudget + 2*member.CallTimeout,
		// The limit leaves room for base64-encoded values and the surrounding JSON.
		maxBody: min(int64(2*l.WriteBytes+128*l.WriteOps+1<<16), mostBody), limits: l,
		bodies: newRoom(mostBody), answers: newRoom(mostBody / 2), followed: newRoom(pageBytes),
		maxLeases: cmp.Or(o.MaxLeases, 256), maxTails: cmp.Or(o.MaxTails, 16),
		leases: map[string]*tenancy{}, shards: map[string]*tenancy{},
	}
	s.asked, s.ask = context.WithCancelCause(context.Background())
	s.ended, s.end = context.WithCancel(context.Background())
	if s.log == nil {
		s.log = slog.Default()
	}
	requests := cmp.Or(o.MaxRequests, 64)
	for _, n := range []struct {
		name        string
		value, most int
	}{{"MaxLeases", s.maxLeases, 10_000}, {"MaxTails", s.maxTails, 1000}, {"MaxRequests", requests, 10_000}} {
		if n.value < 1 || n.value > n.most {
			return nil, invalid("%s %d is outside 1 to %d", n.name, n.value, n.most)
		}
	}
	s.requests, s.attempts = make(chan struct{}, requests), make(chan struct{}, mostAttempts)
	return s, nil
}

// Serve serves clients until ctx ends. It then asks clients to release their leases within four
// fifths of the drain budget. Finally, Serve releases everything in the same way as
// [core.Elector.Run], and returns the error from Run. Serve also closes the listener. Call Serve
// only once.
//
// A TCP listener requires Options.Token. If the token is missing, the error matches
// core.ErrInvalid.
func (s *Server) Serve(ctx context.Context, ln net.Listener) error {
	if _, tcp := ln.Addr().(*net.TCPAddr); tcp && s.token == "" {
		return errors.Join(invalid("on %v every user of the machine could lead: name a token file", ln.Addr()), ln.Close())
	}
	web := &http.Server{
		Handler: s.handler(), ReadHeaderTimeout: headerTime, IdleTimeout: idleTime, MaxHeaderBytes: 16 << 10,
		// ReadTimeout applies until a handler has read the body. It also applies if the server
		// answers a request without a handler, or skips the rest of a body.
		ReadTimeout: bodyTime,
		ConnContext: withCaller, ErrorLog: slog.NewLogLogger(s.log.Handler(), slog.LevelWarn),
		DisableGeneralOptionsHandler: true, // OPTIONS * also needs authority
	}
	work, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	left := make(chan error, 1)
	go func() { left <- s.e.Run(work) }()
	served := make(chan error, 1)
	go func() {
		places := s.maxLeases + s.maxTails + cap(s.requests) + spareConns
		served <- web.Serve(newDoor(ln, s.log, s.token != "", places))
	}()
	var err error
	select {
	case <-ctx.Done():
	case err = <-served:
		served <- nil
	case err = <-left: // the backend was closed
		left <- nil
	}
	s.mu.Lock()
	s.ending = true
	s.mu.Unlock()
	s.ask(stoppingProblem())
	stop()
	err = errors.Join(err, <-left)
	s.end()
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastTime)
	defer cancel()
	if web.Shutdown(last) != nil {
		err = errors.Join(err, web.Close())
	}
	<-served
	return err
}

//go:embed openapi.json
var openAPI []byte

type route struct {
	pattern string
	serve   http.HandlerFunc
	place   bool // takes a place for requests; other routes have a separate limit, or do no I/O
	reads   bool // reads a body; other routes accept no body
}

func (s *Server) routes() []route {
	return []route{
		{"POST /v1/shards/{shard}/lease", s.contend, false, true},
		{"POST /v1/locks/{lock}", s.lock, false, true},
		{"POST /v1/leases/{lease}/beat", s.beat, false, false},
		{"POST /v1/leases/{lease}/commit", s.commit, true, true},
		{"POST /v1/leases/{lease}/append", s.append, true, true},
		{"POST /v1/leases/{lease}/release", s.release, true, false},
		{"POST /v1/leases/{lease}/effects/begin", s.beginEffect, true, true},
		{"POST /v1/leases/{lease}/effects/end", s.endEffect, true, true},
		{"POST /v1/leases/{lease}/effects/resolve", s.resolveEffect, true, true},
		{"GET /v1/leases/{lease}/effects", s.listEffects, true, false},
		{"GET /v1/shards/{shard}", s.owner, true, false},
		{"GET /v1/shards/{shard}/item", s.item, true, false},
		{"GET /v1/shards/{shard}/log", s.readLog, true, false},
		{"GET /v1/shards/{shard}/log/tail", s.tail, false, false},
		{"GET /v1/openapi.json", s.describe, true, false},
	}
}

// Routes returns a Server's routes, each with its method. All routes must appear in openapi.json.
func Routes() []string {
	var out []string
	for _, r := range (&Server{}).routes() {
		out = append(out, r.pattern)
	}
	return out
}

func (s *Server) handler() http.Handler {
	mux := http.NewServeMux()
	for _, r := range s.routes() {
		serve := r.serve
		if r.place {
			serve = s.bounded(serve)
		}
		if !r.reads {
			serve = bodiless(serve)
		}
		mux.HandleFunc(r.pattern, serve)
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		fail(w, refuse(http.StatusNotFound, codeNotFound, "there is no %.20q %.100q: GET /v1/openapi.json describes the API", r.Method, r.URL.Path))
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c := http.NewResponseController(w)
		if err := s.authorize(r); err != nil {
			// The server reads nothing more from this connection, which therefore takes no other
			// client's place.
			callerOf(r).refused.Store(true)
			_ = c.SetReadDeadline(time.Now())
			w.Header().Set("Connection", "close")
			fail(w, err)
			return
		}
		if !callerOf(r).proven() {
			_ = callerOf(r).Close() // no place is free
			return
		}
		// A stream extends the deadline with each event.
		_ = c.SetWriteDeadline(time.Now().Add(bodyTime + s.giveTime + writeTime))
		mux.ServeHTTP(w, r)
	})
}

// Unauthorized requests are rejected before any other code sees them. On a Unix socket, the door
// has already checked the peer's user.
func (s *Server) authorize(r *http.Request) error {
	if s.token == "" {
		return nil
	}
	token, bearer := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !bearer || !sameToken(token, s.token) {
		return refuse(http.StatusUnauthorized, codeNoToken,
			"the token is missing or wrong: send the text of the token file as Authorization: Bearer TOKEN")
	}
	return nil
}

// Each request needs a place, which limits the number of concurrent calls to the handler.
func (s *Server) bounded(serve http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		select {
		case s.requests <- struct{}{}:
			defer func() { <-s.requests }()
		default:
			fail(w, refuse(http.StatusServiceUnavailable, codeBusy, "%d requests are being served: try again", cap(s.requests)))
			return
		}
		serve(w, r)
	}
}

func (s *Server) describe(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(openAPI)
}

type ownerReply struct {
	Shard   string         `json:"shard"`
	Node    string         `json:"node,omitempty"`
	Session core.SessionID `json:"session,omitempty"`
	Token   core.Token     `json:"token,omitempty"`
}

// The answer comes from the member's view, without I/O.
func (s *Server) owner(w http.ResponseWriter, r *http.Request) {
	shard, err := shardOf(r)
	if err != nil {
		fail(w, err)
		return
	}
	o, known := s.e.View().Owner(shard)
	if !known {
		fail(w, refuse(http.StatusNotFound, codeNotFound, "shard %q has no record of an owner", shard))
		return
	}
	answer(w, http.StatusOK, ownerReply{shard, o.Node, o.Session, o.Token})
}

func shardOf(r *http.Request) (string, error) {
	shard := r.PathValue("shard")
	if err := core.CheckShard(shard); err != nil {
		return "", err
	}
	if driver.Reserved(shard) && !driver.IsLock(core.ShardID(shard)) {
		return "", fmt.Errorf(`tenure: %w: shard %q is Tenure's own, as its name begins with "_": choose another`, core.ErrInvalid, shard)
	}
	return shard, nil
}
