package redis

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/tenure-go/tenure/core/driver"
)

const (
	// concurrent is how many calls are under way at once; more wait. Heartbeats, of which
	// core has a few dozen at most, are not counted.
	concurrent = 64
	// poolSize is above the number of calls under way: none waits in the client.
	poolSize = 1024
	// replyTimeout frees the connection of a call that nobody waits for any more.
	replyTimeout = 30 * time.Second
)

// clients are connections to one server: those of heartbeats are their own (rule E4),
// and so are those that wait for changes.
type clients struct {
	calls, beats, waits goredis.UniversalClient
	slots               chan struct{} // of calls
	dialer              *dialer
}

func newClients(c *goredis.UniversalOptions) *clients {
	d := &dialer{open: make(map[net.Conn]struct{})}
	return &clients{
		calls: newClient(c, d, replyTimeout), beats: newClient(c, d, replyTimeout),
		waits: newClient(c, d, watchPatience+3*time.Second), slots: make(chan struct{}, concurrent), dialer: d,
	}
}

// newClient makes a client that sends each command once (rule E2).
func newClient(c *goredis.UniversalOptions, d *dialer, patience time.Duration) goredis.UniversalClient {
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
	client := goredis.NewUniversalClient(&o)
	client.AddHook(d)
	return client
}

// take chooses the connections of a call, and waits while too many are under way. give
// ends the call.
func (c *clients) take(ctx context.Context, beat bool) (_ goredis.UniversalClient, give func(), _ error) {
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
	return errors.Join(c.calls.Close(), c.beats.Close(), c.waits.Close())
}

// dialer is a hook of the clients' dialing.
//
// It marks errors, before which nothing is sent, and hands them on as connections that
// fail: the client logs a failed dial, and after many of them dials only once a second,
// which is late for a server that is back. It also keeps the connections, so that hangUp
// ends the calls on them: the client's own Close logs each that is in use.
type dialer struct {
	mu     sync.Mutex
	closed bool
	open   map[net.Conn]struct{}
}

func (d *dialer) DialHook(next goredis.DialHook) goredis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := next(ctx, network, addr)
		if err != nil {
			return &unconnected{err: &notSentError{err}}, nil
		}
		d.mu.Lock()
		defer d.mu.Unlock()
		if d.closed {
			return &unconnected{err: &notSentError{errClosed()}}, conn.Close()
		}
		d.open[conn] = struct{}{}
		line := &line{Conn: conn, d: d}
		if raw, ok := conn.(syscall.Conn); ok {
			return &rawLine{line, raw}, nil
		}
		return line, nil
	}
}

func (d *dialer) ProcessHook(next goredis.ProcessHook) goredis.ProcessHook { return next }

func (d *dialer) ProcessPipelineHook(next goredis.ProcessPipelineHook) goredis.ProcessPipelineHook {
	return next
}

// hangUp closes all connections, and those that are being made.
func (d *dialer) hangUp() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closed = true
	for conn := range d.open {
		_ = conn.Close() // nothing on it is waited for
	}
}

// line is an open connection.
type line struct {
	net.Conn
	d *dialer
}

func (l *line) Close() error {
	l.d.mu.Lock()
	delete(l.d.open, l.Conn)
	hungUp := l.d.closed
	l.d.mu.Unlock()
	if err := l.Conn.Close(); !hungUp {
		return err
	}
	return nil
}

// rawLine lets the client see, before it sends a command, that the server has closed an
// idle connection.
type rawLine struct {
	*line
	raw syscall.Conn
}

func (l *rawLine) SyscallConn() (syscall.RawConn, error) { return l.raw.SyscallConn() }

// unconnected is a connection that could not be made.
type unconnected struct{ err error }

func (c *unconnected) Read([]byte) (int, error)         { return 0, c.err }
func (c *unconnected) Write([]byte) (int, error)        { return 0, c.err }
func (c *unconnected) Close() error                     { return nil }
func (c *unconnected) LocalAddr() net.Addr              { return new(net.TCPAddr) }
func (c *unconnected) RemoteAddr() net.Addr             { return new(net.TCPAddr) }
func (c *unconnected) SetDeadline(time.Time) error      { return nil }
func (c *unconnected) SetReadDeadline(time.Time) error  { return nil }
func (c *unconnected) SetWriteDeadline(time.Time) error { return nil }

// replaceable reports whether a replica may take over by itself.
func replaceable(c *goredis.UniversalOptions) bool {
	return c.MasterName != "" || c.IsClusterMode || len(c.Addrs) > 1
}

// checkAddrs refuses what is no address, without showing it: it may hold a password.
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
	return nil
}

// checkTransport refuses plaintext, and TLS that proves nothing, to another host.
func checkTransport(c *goredis.UniversalOptions) error {
	proven := c.TLSConfig != nil && (!c.TLSConfig.InsecureSkipVerify || c.TLSConfig.VerifyConnection != nil ||
		c.TLSConfig.VerifyPeerCertificate != nil)
	for _, addr := range c.Addrs {
		if !proven && !loopback(addr) {
			return fmt.Errorf("tenure: %w: the connection to Redis at %.80q would not be protected: use TLS and check the "+
				"certificate, or set Insecure", driver.ErrInvalid, addr)
		}
	}
	return nil
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
