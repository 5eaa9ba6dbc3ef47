package consul

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/hashicorp/consul/api"

	"github.com/tenure-go/tenure/conformance"
	"github.com/tenure-go/tenure/internal/proof/ample"
	"github.com/tenure-go/tenure/internal/proof/servers"
)

// traffic counts requests, connections, and the bytes in responses.
type traffic struct {
	reads, writes, waits atomic.Int64
	bytes                atomic.Int64
	conns, open          atomic.Int64 // dialed, and open now
	mostOpen             atomic.Int64
	busy, mostBusy       atomic.Int64 // requests in flight
}

func (c *traffic) calls() conformance.Calls {
	return conformance.Calls{Reads: c.reads.Load(), Writes: c.writes.Load(), Waits: c.waits.Load()}
}

func (c *traffic) total() int64 { return c.reads.Load() + c.writes.Load() + c.waits.Load() }

// network is a client's transport with switchable faults. Unlike a proxy for bytes, it knows the
// purpose of each request.
type network struct {
	base  *http.Transport
	count *traffic
	alter func(ops []operation) // of transactions, if not nil
	// answer, if not nil, changes the answers, one at a time.
	answer func(*http.Response)

	mu    sync.Mutex
	fault fault
	held  []*held
	cut   chan struct{} // closed to fail the requests in flight
}

type fault uint8

const (
	none fault = iota
	dropRequest
	dropReply
	hold
	duplicate
	refuse
)

// held is a request that waits for its delivery.
type held struct {
	req  *http.Request
	body []byte
	done chan struct{}
	res  *http.Response
	err  error
}

func newNetwork(count *traffic) *network {
	n := &network{base: transport(dialer("")), count: count, cut: make(chan struct{})}
	dial := n.base.DialContext
	n.base.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		count.conns.Add(1)
		raise(&count.mostOpen, count.open.Add(1))
		return &countedConn{Conn: conn, closed: func() { count.open.Add(-1) }}, nil
	}
	return n
}

// raise sets most to now if most is lower.
func raise(most *atomic.Int64, now int64) {
	for old := most.Load(); now > old && !most.CompareAndSwap(old, now); old = most.Load() {
	}
}

type countedConn struct {
	net.Conn
	once   sync.Once
	closed func()
}

func (c *countedConn) Close() error {
	c.once.Do(c.closed)
	return c.Conn.Close()
}

// slots returns slots that connect to the server through n.
func (n *network) slots(t testing.TB, server *servers.Server) *slots {
	t.Helper()
	cfg := api.DefaultConfig()
	cfg.Address, cfg.HttpClient = server.Addr(), &http.Client{Transport: lister{n}}
	c, err := api.NewClient(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return shared(c, n.base.CloseIdleConnections)
}

func (n *network) RoundTrip(req *http.Request) (*http.Response, error) {
	query := req.URL.Query()
	write := req.Method == http.MethodPut && !query.Has("consistent")
	var counter *atomic.Int64
	switch {
	case write:
		counter = &n.count.writes
	case query.Has("index"):
		counter = &n.count.waits
	default:
		counter = &n.count.reads
	}
	counter.Add(1)
	raise(&n.count.mostBusy, n.count.busy.Add(1))
	defer n.count.busy.Add(-1)
	var body []byte
	if req.Body != nil {
		var err error
		if body, err = io.ReadAll(req.Body); err != nil {
			return nil, err
		}
		req.Body.Close()
	}
	if n.alter != nil && write {
		var ops []operation
		if err := json.Unmarshal(body, &ops); err != nil {
			return nil, err
		}
		n.alter(ops)
		var err error
		if body, err = json.Marshal(ops); err != nil {
			return nil, err
		}
	}
	n.mu.Lock()
	f, cut := n.fault, n.cut
	var h *held
	if f == hold && write {
		h = &held{req: req, body: body, done: make(chan struct{})}
		n.held = append(n.held, h)
	}
	n.mu.Unlock()
	switch {
	case h != nil:
		select {
		case <-h.done:
			return h.res, h.err
		case <-req.Context().Done():
			return nil, context.Cause(req.Context()) // as net/http does
		}
	case f == refuse:
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
	case f == dropRequest:
		return nil, lost(req, cut)
	case f == dropReply:
		if _, err := n.detached(req, body); err != nil {
			return nil, err
		}
		return nil, lost(req, cut)
	case f == duplicate:
		res, err := n.send(req.Context(), cut, req, body)
		_, _ = n.detached(req, body)
		return res, err
	}
	return n.send(req.Context(), cut, req, body)
}

var errCut = errors.New("connection reset by the test")

func lost(req *http.Request, cut chan struct{}) error {
	select {
	case <-req.Context().Done():
		return context.Cause(req.Context())
	case <-cut:
		return errCut
	}
}

// detached sends a request that its caller may have given up, and reads the whole answer.
func (n *network) detached(req *http.Request, body []byte) (*http.Response, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(req.Context()), ample.Time)
	defer cancel()
	res, err := n.send(ctx, nil, req, body)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	whole, err := io.ReadAll(res.Body)
	res.Body = io.NopCloser(bytes.NewReader(whole))
	return res, err
}

// send counts an answer's bytes while they arrive. A whole answer would be in memory twice, which
// tests of the heap would count.
func (n *network) send(ctx context.Context, cut chan struct{}, req *http.Request, body []byte) (*http.Response, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	a := &arriving{count: n.count, ctx: ctx, end: cancel}
	if cut != nil {
		go func() {
			select {
			case <-cut:
				cancel(errCut)
			case <-ctx.Done():
			}
		}()
	}
	out := req.Clone(ctx)
	out.Body, out.ContentLength = nil, int64(len(body))
	if len(body) > 0 {
		out.Body = io.NopCloser(bytes.NewReader(body))
	}
	res, err := n.base.RoundTrip(out)
	if err != nil {
		defer cancel(nil)
		return nil, a.cause(err)
	}
	a.ReadCloser, res.Body = res.Body, a
	if n.answer != nil {
		n.answer(res)
	}
	return res, nil
}

// arriving is the body of a response. Until it is closed, it can be cut.
type arriving struct {
	io.ReadCloser
	count *traffic
	ctx   context.Context
	end   context.CancelCauseFunc
}

func (a *arriving) Read(b []byte) (int, error) {
	n, err := a.ReadCloser.Read(b)
	a.count.bytes.Add(int64(n))
	if err != nil && err != io.EOF {
		err = a.cause(err)
	}
	return n, err
}

func (a *arriving) Close() error {
	defer a.end(nil)
	return a.ReadCloser.Close()
}

func (a *arriving) cause(err error) error {
	if context.Cause(a.ctx) == errCut {
		return errCut
	}
	return err
}

func (n *network) set(f fault) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.fault = f
	if f == refuse {
		close(n.cut)
		n.cut = make(chan struct{})
	}
}

func (n *network) heal() { n.set(none) }

// deliver sends the held requests, in order.
func (n *network) deliver() {
	n.mu.Lock()
	waiting := n.held
	n.fault, n.held = none, nil
	n.mu.Unlock()
	for _, h := range waiting {
		h.res, h.err = n.detached(h.req, h.body) //nolint:bodyclose // its caller has it
		close(h.done)
	}
}

func (n *network) wire() *conformance.Wire {
	set := func(f fault) func() func() {
		return func() func() {
			n.set(f)
			return n.heal
		}
	}
	return &conformance.Wire{
		DropRequests: set(dropRequest), DropReplies: set(dropReply), Duplicate: set(duplicate), Cut: set(refuse),
		Hold: func() func() {
			n.set(hold)
			return n.deliver
		},
	}
}

// lie removes the conditions from transactions.
func lie(ops []operation) {
	for i := range ops {
		switch ops[i].KV.Verb {
		case verbCAS:
			ops[i].KV.Verb, ops[i].KV.Index = verbSet, 0
		case verbCheckIndex, verbGet, verbCheckNotExists:
			ops[i].KV.Verb = verbGetOrEmpty
		}
	}
}
