package route

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"time"

	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/internal/peerdial"
	"github.com/tenure-go/tenure/internal/problem"
	"github.com/tenure-go/tenure/sharding"
)

const defaultAddressKey = "http"

// Options configure a Handler.
type Options struct {
	// Shard returns a request's shard. Shard may read the request's path, query and header. If
	// Shard returns an error that matches sharding.ErrNoOwner, the answer is 503. For any other
	// error, the answer is 400 with the error's text. Shard is required.
	Shard func(r *http.Request) (string, error)
	// Forward makes the Handler forward a request for another member's shard to that member. By
	// default, the Handler answers with the owner's address instead.
	Forward bool
	// AddressKey is the metadata key of a member's address. The default is "http".
	AddressKey string
	// Allow reports whether a request, with its credentials, may be forwarded to an address. Nil,
	// the default, allows every address except this machine's and loopback, link-local, multicast
	// or unspecified addresses. A name that resolves to such an address is always refused.
	Allow func(u *url.URL) bool
	// Transport sends forwarded requests. If Transport is set, Allow must be set as well, because
	// Transport connects without the Handler's checks. The default also checks the addresses to
	// which names resolve, uses no proxy, and limits each connection attempt to 10 s. The request's
	// context limits the wait for the answer.
	Transport http.RoundTripper
}

type leaseKey struct{}

// FromContext returns the lease under which a request is served, or nil.
func FromContext(ctx context.Context) *core.Lease {
	l, _ := ctx.Value(leaseKey{}).(*core.Lease)
	return l
}

// NewContext returns a context for work under a lease. The context carries the lease, and ends when
// the lease ends, with the same cause. The function done also ends the context.
func NewContext(ctx context.Context, lease *core.Lease) (inside context.Context, done func()) {
	inside, cancel := context.WithCancelCause(context.WithValue(ctx, leaseKey{}, lease))
	stop := context.AfterFunc(lease.Context(), func() { cancel(context.Cause(lease.Context())) })
	return inside, func() {
		stop()
		cancel(nil)
	}
}

type handler struct {
	e    *core.Elector
	r    *sharding.Router
	next http.Handler
	o    Options
}

// NewHandler returns a handler that passes requests for this process's shards to next, and forwards
// or answers all other requests. If next serves a request, the request's context also ends when the
// lease ends, with the same cause. The Router must use the same Elector. The caller still owns the
// Elector and the Router. The error matches core.ErrInvalid.
func NewHandler(e *core.Elector, r *sharding.Router, next http.Handler, o *Options) (http.Handler, error) {
	if e == nil || r == nil || next == nil || o == nil || o.Shard == nil {
		return nil, fmt.Errorf("tenure: %w: routing needs an elector, a router, a handler and Options.Shard", core.ErrInvalid)
	}
	if o.Transport != nil && o.Allow == nil {
		return nil, fmt.Errorf("tenure: %w: Options.Transport needs Allow: say to which addresses requests may go", core.ErrInvalid)
	}
	h := &handler{e: e, r: r, next: next, o: *o}
	if h.o.AddressKey == "" {
		h.o.AddressKey = defaultAddressKey
	}
	if h.o.Transport == nil {
		h.o.Transport = &http.Transport{ // uses no proxy
			DialContext: peerdial.Dial(o.Allow != nil, true), ForceAttemptHTTP2: true, MaxIdleConns: 100, IdleConnTimeout: 90 * time.Second,
			TLSHandshakeTimeout: 10 * time.Second, ExpectContinueTimeout: time.Second,
		}
	}
	return h, nil
}

// ServeHTTP implements http.Handler.
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	shard, err := h.o.Shard(r)
	if errors.Is(err, sharding.ErrNoOwner) { // the router does not know the map of ranges yet
		w.Header().Set("Retry-After", "1")
		answer(w, problem.Document{Type: problemUnowned, Status: http.StatusServiceUnavailable, Title: sharding.ErrNoOwner.Error(), Detail: err.Error()})
		return
	}
	if err == nil {
		err = core.CheckShard(shard)
	}
	if err != nil {
		answer(w, problem.Document{Type: problemInvalid, Status: http.StatusBadRequest, Title: "the request names no shard", Detail: err.Error()})
		return
	}
	if lease := h.e.Lease(shard); lease != nil {
		ctx, done := NewContext(r.Context(), lease)
		defer done()
		h.next.ServeHTTP(w, r.WithContext(ctx))
		return
	}
	owner, err := h.r.Owner(shard)
	if err != nil || owner.Self { // this process owns the shard but does not serve it, because it is starting or stopping
		Refuse(w, shard)
		return
	}
	p := problem.Document{Type: problemOwner, Status: http.StatusMisdirectedRequest, Title: "another member owns the shard", Shard: shard,
		Node: owner.Node, Token: owner.Token, Detail: "nothing was done; ask the owner"}
	to, err := checkAddress(owner.Meta[h.o.AddressKey])
	if err == nil && h.o.Allow != nil && !h.o.Allow(to) {
		err = fmt.Errorf("tenure: %w: the address is not allowed", core.ErrInvalid)
	}
	if err != nil {
		answer(w, p) // the answer lacks the owner's address
		return
	}
	p.Address = to.String()
	if !h.o.Forward || r.Header.Get(forwarded) != "" || h.o.Allow == nil && peerdial.Local(net.JoinHostPort(to.Hostname(), "1")) {
		answer(w, p)
		return
	}
	h.forward(w, r, to, p)
}

func (h *handler) forward(w http.ResponseWriter, r *http.Request, to *url.URL, p problem.Document) {
	proxy := &httputil.ReverseProxy{
		Transport: h.o.Transport,
		ErrorLog:  log.New(discard{}, "", 0), // the answer reports the error
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(to)
			r.Out.Host = r.In.Host // the request keeps its original host
			r.SetXForwarded()
			r.Out.Header.Set(forwarded, h.e.View().Node)
		},
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			if errors.Is(err, peerdial.ErrLocal) {
				slog.DebugContext(r.Context(), "tenure: forwarding refused", slog.String("shard", p.Shard), slog.Any("error", err))
				answer(w, p)
				return
			}
			p.Type, p.Status, p.Title = problemLost, http.StatusBadGateway, "the owner's answer was lost"
			p.Detail = "the request may have been done"
			if op := (*net.OpError)(nil); errors.As(err, &op) && op.Op == "dial" {
				p.Type, p.Status, p.Title = problemUnreachable, http.StatusServiceUnavailable, "the owner cannot be reached"
				p.Detail = "nothing was done; try again"
			}
			slog.DebugContext(r.Context(), "tenure: forwarding failed", slog.String("shard", p.Shard), slog.Any("error", err))
			answer(w, p)
		},
	}
	proxy.ServeHTTP(w, r)
}

type discard struct{}

func (discard) Write(b []byte) (int, error) { return len(b), nil }
