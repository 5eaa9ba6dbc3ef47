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

// Options configure a Server. For a Unix socket, nil is valid.
type Options struct {
	// Elector holds the options of the member. Its TTL is the longest that a client may ask
	// for. Default: the defaults of core.Options.
	Elector *core.Options
	// Token is the bearer token of clients. Only on a Unix socket may it be empty, because the
	// socket's file and peers are checked.
	Token string
	// MaxLeases limits the clients that contend concurrently. Default 256, at most 10,000.
	MaxLeases int
	// MaxTails limits the streams of logs. Each stream has one call to the store outstanding.
	// Default 16, at most 1000.
	MaxTails int
	// MaxRequests limits the other requests that are served concurrently, and with them the memory
	// for their bodies. Default 64, at most 10,000.
	MaxRequests int
}

// Limits of a connection.
const (
	headerTime = 5 * time.Second  // to send the header of a request
	bodyTime   = 10 * time.Second // to send the whole request
	writeTime  = 10 * time.Second // to take what is written
	idleTime   = 2 * time.Minute  // between two requests
	lastTime   = 5 * time.Second  // for answers under way at the end
	spareConns = 64               // besides those of streams and requests
)

// Server serves the leases of one Elector. All methods are safe for concurrent use.
type Server struct {
	b        core.Backend
	e        *core.Elector
	locks    *lock.Locks // of e
	log      *slog.Logger
	effects  effect.Stats // of all leases
	token    string
	ttl      time.Duration // of the member
	callTime time.Duration // for a write
	budget   time.Duration // for a client to release its lease when asked
	giveTime time.Duration // to give a lease back
	maxBody  int64
	limits   core.Limits

	maxLeases int
	maxTails  int
	requests  chan struct{}
	attempts  chan struct{} // one element for each attempt of an effect
	bodies    *room
	answers   *room
	followed  *room // of entries for streams of logs

	mu     sync.Mutex
	leases map[string]*tenancy // by id
	shards map[string]*tenancy
	tails  int
	ending bool
	asked  context.Context // ends when clients are asked to release
	ask    context.CancelCauseFunc
	ended  context.Context // ends with the Elector
	end    context.CancelFunc
}

// New returns a Server on b. The caller closes b after Serve has returned. New checks the options
// and does no I/O.
func New(b core.Backend, o *Options) (*Server, error) {
	if o == nil {
		o = &Options{}
	}
	var member core.Options
	if o.Elector != nil {
		member = *o.Elector
	}
	// The defaults of core, which giveTime is computed from.
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
		// Room for values in base64, and for the JSON around them.
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

// Serve serves until ctx ends. It then asks the clients that hold leases to release them, for which
// they have four fifths of the drain budget. Finally it gives everything back, as
// [core.Elector.Run] does, and returns its error. It closes ln. It may be called once.
//
// A TCP listener needs a token. Without one, the error matches core.ErrInvalid.
func (s *Server) Serve(ctx context.Context, ln net.Listener) error {
	if _, tcp := ln.Addr().(*net.TCPAddr); tcp && s.token == "" {
		return errors.Join(invalid("on %v every user of the machine could lead: name a token file", ln.Addr()), ln.Close())
	}
	web := &http.Server{
		Handler: s.handler(), ReadHeaderTimeout: headerTime, IdleTimeout: idleTime, MaxHeaderBytes: 16 << 10,
		// It holds until a handler has read the body. It also holds for requests that the server
		// answers without a handler, and for parts of a body that it skips.
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

// route is a pattern of [http.ServeMux] and what serves it.
type route struct {
	pattern string
	serve   http.HandlerFunc
	place   bool // it takes a place of requests; other routes have their own limit, or no I/O
	reads   bool // it reads a body; other routes have none
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

// Routes returns the routes of a Server, each with its method. openapi.json must describe them.
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
			// The server reads nothing more of it, and it takes no other client's place.
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
		// Streams set a later deadline with each event.
		_ = c.SetWriteDeadline(time.Now().Add(bodyTime + s.giveTime + writeTime))
		mux.ServeHTTP(w, r)
	})
}

// authorize refuses a request without authority. No other code sees the request before that. On
// a Unix socket, the door has already checked the peer's user.
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

// bounded limits serve to the places for requests.
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

// owner answers from the view of the member, without I/O.
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

// shardOf returns the shard that a request names, which may be a lock.
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
