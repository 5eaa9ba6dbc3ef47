package redis

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/tenure-go/tenure/core/driver"
)

const (
	// concurrent is the maximum number of calls in flight, beyond which calls wait. Heartbeats are
	// not limited, because core has at most a few dozen in flight.
	concurrent = 64
	// poolSize exceeds the number of calls in flight, so that no call waits in the client.
	poolSize = 1024
	// beatsIdle is the number of idle heartbeat connections that stay open. If these connections
	// are silently lost, one heartbeat fails on each of them.
	beatsIdle = 2
	// replyTimeout is the time after which the client frees the connection of an abandoned call.
	replyTimeout = 30 * time.Second
)

// clients contains the connections to one server. Heartbeats have separate connections (rule E4),
// and so do calls that wait for changes.
type clients struct {
	calls, beats, waits *goredis.Client
	slots               chan struct{} // for calls
	dialer              *dialer
}

func newClients(c *goredis.UniversalOptions, insecure bool) *clients {
	d := &dialer{open: make(map[*line]struct{}), asking: make(chan struct{}, 1)}
	d.life, d.end = context.WithCancel(context.Background())
	switch {
	case clustered(c):
		d.seeds = slices.Clone(c.Addrs)
		d.node = d.seeds[0]
	case c.MasterName != "":
		d.sentinels = new(sentinels)
		d.sentinels.patience.Store(int64(sentinelPatience))
	}
	d.guarded = replaceable(c) && !insecure && !proven(c)
	few := *c
	few.MaxIdleConns = beatsIdle
	return &clients{
		calls: newClient(c, d, replyTimeout), beats: newClient(&few, d, replyTimeout),
		waits: newClient(c, d, maxWait+answerSlack), slots: make(chan struct{}, concurrent), dialer: d,
	}
}

// newClient creates a client that sends each command once (rule E2). Even in a cluster, the client
// uses a single server, because all keys of a namespace are in one slot, whose node the dialer
// knows.
func newClient(c *goredis.UniversalOptions, d *dialer, patience time.Duration) *goredis.Client {
	o := *c
	o.Addrs = slices.Clone(c.Addrs)
	o.MaxRetries, o.MaxRedirects, o.DialerRetries = -1, -1, 1
	o.ContextTimeoutEnabled = true
	o.ReadTimeout, o.WriteTimeout = patience, patience
	o.PoolSize, o.MaxActiveConns, o.MinIdleConns = poolSize, 0, 0
	o.ReadOnly, o.RouteByLatency, o.RouteRandomly = false, false, false
	o.DisableIdentity = true
	o.AutoPipelineOptions, o.ClientSideCacheConfig, o.ClientSideCache = nil, nil, nil
	o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	if replaceable(c) {
		o.Dialer, o.DialTimeout = hasty(c), searchTime
	}
	var client *goredis.Client
	if o.MasterName != "" {
		o.Dialer = d.sentinels.impatiently(o.Dialer)
		client = goredis.NewFailoverClient(o.Failover())
	} else {
		client = goredis.NewClient(o.Simple())
	}
	client.AddHook(d)
	return client
}

// While too many calls are in flight, take waits before it returns a client. When the call has
// ended, the caller must call give.
func (c *clients) take(ctx context.Context, beat bool) (_ *goredis.Client, give func(), _ error) {
	if beat {
		return c.beats, func() {}, nil
	}
	select {
	case c.slots <- struct{}{}:
		return c.calls, func() { <-c.slots }, nil
	case <-ctx.Done():
		return nil, nil, &notSentError{driver.Ended(ctx)}
	}
}

func (c *clients) close() error {
	c.dialer.running.Wait()
	return errors.Join(c.calls.Close(), c.beats.Close(), c.waits.Close())
}

// dialer is a hook for the clients' dials.
//
// The dialer marks errors that occurred before anything was sent. If a dial fails, the dialer
// returns a failing connection instead of an error. The client would log each error and, after many
// errors, dial only once a second, so it would notice too late that the server is back. The dialer
// also keeps track of the connections, so that hangUp can end the calls on them. The client's own
// Close would log each connection in use.
//
// In a cluster, the dialer directs connections to the node that has the namespace. Every other node
// answers with that node's address. If a node does not answer, the dialer uses the next address in
// seeds that answers.
type dialer struct {
	seeds     []string   // the given addresses of a cluster
	sentinels *sentinels // nil if no Sentinels name the server
	guarded   bool       // Sentinels or nodes name the servers, and connections to these have no TLS

	life    context.Context // ends with hangUp
	end     context.CancelFunc
	asking  chan struct{}  // one token; its holder may ask the seeds
	running sync.WaitGroup // goroutines that ask the seeds

	mu     sync.Mutex
	closed bool
	open   map[*line]struct{}
	node   string // in a cluster: where new connections go
	known  bool   // the node answered, or another named it, and it has not failed since
	turn   int    // index in seeds
}

func (d *dialer) DialHook(next goredis.DialHook) goredis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(d.life, cancel)()
		conn, addr, err := d.connect(ctx, addr, func(ctx context.Context, addr string) (net.Conn, error) {
			conn, err := next(ctx, network, addr)
			if err != nil {
				return nil, err
			}
			conn = patient(conn)
			if peer := conn.RemoteAddr().String(); d.guarded && !loopback(peer) {
				return nil, errors.Join(unprotected(peer), conn.Close())
			}
			return conn, nil
		})
		if err != nil {
			return &unconnected{err: &notSentError{err}}, nil
		}
		d.mu.Lock()
		defer d.mu.Unlock()
		if d.closed {
			return &unconnected{err: &notSentError{errClosed()}}, conn.Close()
		}
		line := &line{Conn: conn, d: d, addr: addr}
		d.open[line] = struct{}{}
		if raw, ok := conn.(syscall.Conn); ok {
			return &rawLine{line, raw}, nil
		}
		return line, nil
	}
}

// connect connects to the server or to a cluster's node, and returns its address.
func (d *dialer) connect(ctx context.Context, addr string, dial dialFunc) (net.Conn, string, error) {
	if len(d.seeds) > 0 {
		return d.reach(ctx, dial)
	}
	if d.sentinels != nil {
		conn, err := d.sentinels.ask(ctx, func() (net.Conn, error) { return dial(ctx, addr) })
		return conn, addr, err
	}
	conn, err := dial(ctx, addr)
	return conn, addr, err
}

func (d *dialer) ProcessHook(next goredis.ProcessHook) goredis.ProcessHook { return next }

func (d *dialer) ProcessPipelineHook(next goredis.ProcessPipelineHook) goredis.ProcessPipelineHook {
	return next
}

// hangUp closes all connections, and ends all pending dials.
func (d *dialer) hangUp() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closed = true
	d.end()
	for line := range d.open {
		_ = line.Conn.Close() // its replies are no longer needed
	}
}

// If new connections to a cluster go to addr, which does not answer, lost directs them to the next
// address.
func (d *dialer) lost(addr string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.seeds) > 0 && d.node == addr {
		d.turn = (d.turn + 1) % len(d.seeds)
		d.node, d.known = d.seeds[d.turn], false
	}
}

// After a call that began at the given time got no answer, doubt abandons all connections that have
// been silent since then. The cause often affects several connections.
func (d *dialer) doubt(since time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for line := range d.open {
		if heard := line.heard.Load(); heard == nil || heard.Before(since) {
			line.gone.Store(true)
		}
	}
}

// A cluster's node does not run a command if another node has the namespace. If err reports this,
// new connections go to the other node, and all other connections are closed.
func (d *dialer) moved(err error) bool {
	if len(d.seeds) == 0 || !goredis.HasErrorPrefix(err, "MOVED") {
		return false
	}
	text, _ := reply(err)
	fields := strings.Fields(text)
	host, port := "", ""
	if len(fields) == 3 {
		at := max(0, strings.LastIndexByte(fields[2], ':'))
		host, port = strings.Trim(fields[2][:at], "[]"), strings.TrimPrefix(fields[2][at:], ":")
	}
	if port == "" {
		return false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if host == "" { // an empty host means the answering node
		host, _, _ = net.SplitHostPort(d.node)
	}
	d.node, d.known = net.JoinHostPort(host, port), true
	for line := range d.open {
		if line.addr != d.node {
			line.gone.Store(true)
			_ = line.Conn.Close()
		}
	}
	return true
}

// outside reports whether a node that is cut off from its cluster refused a call, without running
// it. If so, the node's connections are abandoned, and new ones go to the next address. The
// argument at is the address for connections when the call began.
func (d *dialer) outside(at string, err error) bool {
	if !refused(err) || !goredis.HasErrorPrefix(err, "CLUSTERDOWN") {
		return false
	}
	d.mu.Lock()
	for line := range d.open {
		if line.addr == at {
			line.gone.Store(true)
		}
	}
	d.mu.Unlock()
	d.lost(at)
	return true
}

// leads returns the address for new connections to a cluster.
func (d *dialer) leads() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.node
}

// redirected makes a call, and repeats it elsewhere if the cluster's node does not have the
// namespace or is cut off from the cluster.
func redirected[T any](d *dialer, call func() (T, error)) (T, error) {
	const most = 5
	for n := 0; ; {
		at := d.leads()
		v, err := call()
		switch {
		case errors.Is(err, errGone): // at most once for each connection of the pool
		case n == most || !d.moved(err) && (n+1 >= len(d.seeds) || !d.outside(at, err)):
			return v, err
		default:
			n++
		}
	}
}

// errGone is the error of a call on a connection that the dialer has abandoned.
var errGone = errors.New("the connection was given up")

// line is an open connection. At most one call at a time uses it.
type line struct {
	net.Conn
	d    *dialer
	addr string
	gone atomic.Bool // nothing more is sent on it
	sent bool        // something was sent since the last read

	asked time.Time                 // when sent became true
	heard atomic.Pointer[time.Time] // time of the last read
}

func (l *line) Write(b []byte) (int, error) {
	if l.gone.Load() && !l.sent {
		return 0, &notSentError{errGone}
	}
	if !l.sent {
		l.sent, l.asked = true, time.Now()
	}
	return l.Conn.Write(b)
}

func (l *line) Read(b []byte) (int, error) {
	n, err := l.Conn.Read(b)
	if err != nil {
		l.d.lost(l.addr)
	}
	if n > 0 {
		now := time.Now()
		l.sent = false
		l.heard.Store(&now)
	} else if l.sent && errors.Is(err, os.ErrDeadlineExceeded) {
		l.d.doubt(l.asked)
	}
	return n, err
}

// The client sets a deadline before it sends anything. On an abandoned connection, setting a
// deadline succeeds, so that Write returns the error.
func (l *line) SetDeadline(t time.Time) error      { return l.unlessGone(l.Conn.SetDeadline(t)) }
func (l *line) SetReadDeadline(t time.Time) error  { return l.unlessGone(l.Conn.SetReadDeadline(t)) }
func (l *line) SetWriteDeadline(t time.Time) error { return l.unlessGone(l.Conn.SetWriteDeadline(t)) }

func (l *line) unlessGone(err error) error {
	if l.gone.Load() {
		return nil
	}
	return err
}

func (l *line) Close() error {
	l.d.mu.Lock()
	delete(l.d.open, l)
	hungUp := l.d.closed || l.gone.Load()
	l.d.mu.Unlock()
	if err := l.Conn.Close(); !hungUp {
		return err
	}
	return nil
}

// Before it sends a command on a rawLine, the client can detect that the server has closed an idle
// connection.
type rawLine struct {
	*line
	raw syscall.Conn
}

func (l *rawLine) SyscallConn() (syscall.RawConn, error) { return l.raw.SyscallConn() }

// unconnected represents a connection that could not be opened.
type unconnected struct{ err error }

func (c *unconnected) Read([]byte) (int, error)         { return 0, c.err }
func (c *unconnected) Write([]byte) (int, error)        { return 0, c.err }
func (c *unconnected) Close() error                     { return nil }
func (c *unconnected) LocalAddr() net.Addr              { return new(net.TCPAddr) }
func (c *unconnected) RemoteAddr() net.Addr             { return new(net.TCPAddr) }
func (c *unconnected) SetDeadline(time.Time) error      { return nil }
func (c *unconnected) SetReadDeadline(time.Time) error  { return nil }
func (c *unconnected) SetWriteDeadline(time.Time) error { return nil }

func clustered(c *goredis.UniversalOptions) bool {
	return c.MasterName == "" && (c.IsClusterMode || len(c.Addrs) > 1)
}

// replaceable reports whether a replica may take over without an operator.
func replaceable(c *goredis.UniversalOptions) bool { return c.MasterName != "" || clustered(c) }

// checkAddrs refuses an invalid address. The error does not show the address, because it may
// contain a password.
func checkAddrs(c *goredis.UniversalOptions) error {
	if len(c.Addrs) == 0 {
		return fmt.Errorf("tenure: %w: no address of Redis: set Addrs, such as localhost:6379", driver.ErrInvalid)
	}
	for i, addr := range c.Addrs {
		if _, _, err := net.SplitHostPort(addr); !strings.HasPrefix(addr, "/") && (err != nil ||
			strings.ContainsAny(addr, "@/?()")) {
			return fmt.Errorf("tenure: %w: address %d of Redis is not understood: write it as host:port, or as the path of a "+
				"socket, and the user and the password apart from it", driver.ErrInvalid, i+1)
		}
	}
	switch {
	case c.MasterName != "" && c.IsClusterMode:
		return fmt.Errorf("tenure: %w: Redis is either behind Sentinels or a cluster: leave out MasterName or IsClusterMode",
			driver.ErrInvalid)
	case clustered(c) && c.DB != 0:
		return fmt.Errorf("tenure: %w: a cluster of Redis has database 0 only", driver.ErrInvalid)
	}
	return nil
}

// proven reports whether connections are protected by TLS.
func proven(c *goredis.UniversalOptions) bool {
	return c.TLSConfig != nil && (!c.TLSConfig.InsecureSkipVerify || c.TLSConfig.VerifyConnection != nil ||
		c.TLSConfig.VerifyPeerCertificate != nil)
}

// checkTransport refuses connections to other hosts or to Sentinels without TLS or without a
// certificate check.
func checkTransport(c *goredis.UniversalOptions) error {
	if c.MasterName != "" && !proven(c) {
		return fmt.Errorf("tenure: %w: whoever answers for a Sentinel says which server to trust: use TLS and check the "+
			"certificates, or set Insecure", driver.ErrInvalid)
	}
	for _, addr := range c.Addrs {
		if !proven(c) && !loopback(addr) {
			return unprotected(addr)
		}
	}
	return nil
}

func unprotected(addr string) error {
	return fmt.Errorf("tenure: %w: the connection to Redis at %.80q would not be protected: use TLS and check the "+
		"certificate, or set Insecure", driver.ErrInvalid, addr)
}

func loopback(addr string) bool {
	if strings.HasPrefix(addr, "/") {
		return true // a socket
	}
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		host = addr
	}
	ip := net.ParseIP(strings.Trim(host, "[]"))
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
