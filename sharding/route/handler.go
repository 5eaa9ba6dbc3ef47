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

// DefaultAddressKey is the key of a member's metadata that holds its address.
const DefaultAddressKey = "http"

// Options are the options of a Handler.
type Options struct {
	// Shard returns the shard of a request. It may read the request's path, query and header. If it
	// returns an error, the answer is 400 with the error's text, or 503 if the error matches
	// sharding.ErrNoOwner. Required.
	Shard func(r *http.Request) (string, error)
	// Forward sends a request for another member's shard to that member. By default, the
	// Handler answers with the owner.
	Forward bool
	// AddressKey is the key of a member's metadata that holds its address. Default
	// DefaultAddressKey.
	AddressKey string
	// Allow reports whether a request, with its credentials, may be forwarded to an address.
	// Nil, the default, allows every address except this machine's and loopback, link-local,
	// multicast or unspecified addresses. A name that resolves to such an address is refused in
	// any case.
	Allow func(u *url.URL) bool
	// Transport sends forwarded requests. If Transport is set, Allow must be set too, because
	// Transport connects without the Handler's checks. The default also checks the addresses of
	// names, uses no proxy, and limits connecting to 10 s; the request's context limits the answer.
	Transport http.RoundTripper
}

type leaseKey struct{}

// FromContext returns the lease under which a request is served, or nil.
func FromContext(ctx context.Context) *core.Lease {
	l, _ := ctx.Value(leaseKey{}).(*core.Lease)
	return l
}

// NewContext returns a context for work under a lease. The context carries the lease, and also
// ends with the lease, with the same cause. done ends the context.
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

// NewHandler returns a handler that passes requests for the shards of this process to next, and
// forwards or answers the others. The context of a request that next serves also ends with the
// lease, with the same cause. The Router must be on the same Elector. Both stay the caller's.
// The error matches core.ErrInvalid.
func NewHandler(e *core.Elector, r *sharding.Router, next http.Handler, o *Options) (http.Handler, error) {
	if e == nil || r == nil || next == nil || o == nil || o.Shard == nil {
		return nil, fmt.Errorf("tenure: %w: routing needs an elector, a router, a handler and Options.Shard", core.ErrInvalid)
	}
	if o.Transport != nil && o.Allow == nil {
		return nil, fmt.Errorf("tenure: %w: Options.Transport needs Allow: say to which addresses requests may go", core.ErrInvalid)
	}
	h := &handler{e: e, r: r, next: next, o: *o}
	if h.o.AddressKey == "" {
		h.o.AddressKey = DefaultAddressKey
	}
	if h.o.Transport == nil {
		h.o.Transport = &http.Transport{ // without a proxy
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
		answer(w, problem.Document{Type: ProblemUnowned, Status: http.StatusServiceUnavailable, Title: sharding.ErrNoOwner.Error(), Detail: err.Error()})
		return
	}
	if err == nil {
		err = core.CheckShard(shard)
	}
	if err != nil {
		answer(w, problem.Document{Type: ProblemInvalid, Status: http.StatusBadRequest, Title: "the request names no shard", Detail: err.Error()})
		return
	}
	if lease := h.e.Lease(shard); lease != nil {
		ctx, done := NewContext(r.Context(), lease)
		defer done()
		h.next.ServeHTTP(w, r.WithContext(ctx))
		return
	}
	owner, err := h.r.Owner(shard)
	if err != nil || owner.Self { // this process owns it and does not serve it: it is starting or stopping
		Refuse(w, shard)
		return
	}
	p := problem.Document{Type: ProblemOwner, Status: http.StatusMisdirectedRequest, Title: "another member owns the shard", Shard: shard,
		Node: owner.Node, Token: owner.Token, Detail: "nothing was done; ask the owner"}
	to, err := CheckAddress(owner.Meta[h.o.AddressKey])
	if err == nil && h.o.Allow != nil && !h.o.Allow(to) {
		err = fmt.Errorf("tenure: %w: the address is not allowed", core.ErrInvalid)
	}
	if err != nil {
		answer(w, p) // without an address
		return
	}
	p.Address = to.String()
	if !h.o.Forward || r.Header.Get(Forwarded) != "" || h.o.Allow == nil && peerdial.Local(net.JoinHostPort(to.Hostname(), "1")) {
		answer(w, p)
		return
	}
	h.forward(w, r, to, p)
}

// forward sends the request to the owner, marked as forwarded.
func (h *handler) forward(w http.ResponseWriter, r *http.Request, to *url.URL, p problem.Document) {
	proxy := &httputil.ReverseProxy{
		Transport: h.o.Transport,
		ErrorLog:  log.New(discard{}, "", 0), // the answer reports it
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(to)
			r.Out.Host = r.In.Host // the site of the request does not change
			r.SetXForwarded()
			r.Out.Header.Set(Forwarded, h.e.View().Node)
		},
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			if errors.Is(err, peerdial.ErrLocal) {
				slog.DebugContext(r.Context(), "tenure: forwarding refused", slog.String("shard", p.Shard), slog.Any("error", err))
				answer(w, p)
				return
			}
			p.Type, p.Status, p.Title = ProblemLost, http.StatusBadGateway, "the owner's answer was lost"
			p.Detail = "the request may have been done"
			if op := (*net.OpError)(nil); errors.As(err, &op) && op.Op == "dial" {
				p.Type, p.Status, p.Title = ProblemUnreachable, http.StatusServiceUnavailable, "the owner cannot be reached"
				p.Detail = "nothing was done; try again"
			}
			slog.DebugContext(r.Context(), "tenure: forwarding failed", slog.String("shard", p.Shard), slog.Any("error", err))
			answer(w, p)
		},
	}
	proxy.ServeHTTP(w, r)
}

// discard discards the log of httputil.
type discard struct{}

func (discard) Write(b []byte) (int, error) { return len(b), nil }
