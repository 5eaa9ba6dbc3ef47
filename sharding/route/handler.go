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
	"github.com/tenure-go/tenure/sharding"
)

// DefaultAddressKey is the key of a member's metadata that holds its address.
const DefaultAddressKey = "http"

// Options of a Handler.
type Options struct {
	// Shard names the shard of a request. It may read the request's path, query and
	// header. Its error is answered with 400, and its text. Required.
	Shard func(r *http.Request) (string, error)
	// Forward takes a request for another member's shard to that member. By default the
	// owner is answered.
	Forward bool
	// AddressKey is the key of a member's metadata that holds its address. Default
	// DefaultAddressKey.
	AddressKey string
	// Allow has to allow an address before a request, with its credentials, is forwarded to
	// it. Nil, the default, allows those that are not loopback, link-local, multicast or
	// unspecified. A name that resolves to one of these is refused in any case.
	Allow func(u *url.URL) bool
	// Transport makes forwarded requests, and needs Allow, as it connects as it likes.
	// Default: one that heeds what Allow says of names, asks no proxy, and has 10 s to
	// connect; the request's context bounds the answer.
	Transport http.RoundTripper
}

type leaseKey struct{}

// FromContext returns the lease under which a request is served, or nil.
func FromContext(ctx context.Context) *core.Lease {
	l, _ := ctx.Value(leaseKey{}).(*core.Lease)
	return l
}

// NewContext returns a context for work under a lease: it carries the lease, and ends with
// it, too, with the same cause. done ends it.
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

// NewHandler returns a handler that has next serve the requests for the shards of this
// process, and forwards or answers the others. The context of a request that next serves
// ends with the lease, too, with the same cause. The Elector and the Router, which is on
// that Elector, are the caller's. The error matches core.ErrInvalid.
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
			DialContext: peerdial.Dial(o.Allow != nil), ForceAttemptHTTP2: true, MaxIdleConns: 100, IdleConnTimeout: 90 * time.Second,
			TLSHandshakeTimeout: 10 * time.Second, ExpectContinueTimeout: time.Second,
		}
	}
	return h, nil
}

// ServeHTTP implements http.Handler.
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	shard, err := h.o.Shard(r)
	if errors.Is(err, sharding.ErrNoOwner) { // a router that does not know the map of ranges yet
		w.Header().Set("Retry-After", "1")
		answer(w, Problem{Type: ProblemUnowned, Status: http.StatusServiceUnavailable, Title: sharding.ErrNoOwner.Error(), Detail: err.Error()})
		return
	}
	if err == nil {
		err = core.CheckShard(shard)
	}
	if err != nil {
		answer(w, Problem{Type: ProblemInvalid, Status: http.StatusBadRequest, Title: "the request names no shard", Detail: err.Error()})
		return
	}
	if lease := h.e.Lease(shard); lease != nil {
		ctx, done := NewContext(r.Context(), lease)
		defer done()
		h.next.ServeHTTP(w, r.WithContext(ctx))
		return
	}
	owner, err := h.r.Owner(shard)
	if err != nil || owner.Self { // mine, and not served: it is on its way in or out
		Refuse(w, shard)
		return
	}
	p := Problem{Type: ProblemOwner, Status: http.StatusMisdirectedRequest, Title: "another member owns the shard", Shard: shard,
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

// forward sends the request to the owner, which says that it is the last.
func (h *handler) forward(w http.ResponseWriter, r *http.Request, to *url.URL, p Problem) {
	proxy := &httputil.ReverseProxy{
		Transport: h.o.Transport,
		ErrorLog:  log.New(discard{}, "", 0), // the answer says it
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(to)
			r.Out.Host = r.In.Host // whose site it is does not change on the way
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

// discard takes what httputil would log.
type discard struct{}

func (discard) Write(b []byte) (int, error) { return len(b), nil }
