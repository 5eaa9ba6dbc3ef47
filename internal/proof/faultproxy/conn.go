package faultproxy

import (
	"context"
	"net"
	"sync"
)

type direction uint8

const (
	requests direction = iota
	replies
)

// Conn is one connection through a proxy. A Conn has TCP connections to the client and to the
// server. A Conn is safe for concurrent use.
type Conn struct {
	proxy  *Proxy
	number int64
	client *net.TCPConn
	ctx    context.Context // ends with the connection
	cancel context.CancelFunc

	mu      sync.Mutex
	faults  Faults
	mute    bool          // the server was never dialed
	changed chan struct{} // closed and replaced at each change of a field guarded by mu
	server  *net.TCPConn  // nil until dialed
	over    bool          // both sides are closed, or will be closed soon
	pumps   [2]*pump      // by direction; nil until dialed
}

func newConn(p *Proxy, client *net.TCPConn, number int64, f Faults) *Conn {
	c := &Conn{proxy: p, number: number, client: client, faults: f, mute: f.Mute, changed: make(chan struct{})}
	c.ctx, c.cancel = context.WithCancel(p.ctx)
	return c
}

// Client returns the client's address. A test can use it to find a client's connection.
func (c *Conn) Client() net.Addr { return c.client.RemoteAddr() }

// Set applies f to this connection only. The next call to Proxy.Set replaces f.
func (c *Conn) Set(f Faults) error {
	if err := f.check(&c.proxy.o); err != nil {
		return err
	}
	c.apply(f)
	return nil
}

// Reset resets both sides of the connection, and loses all held bytes. The connection's goroutines
// end soon afterwards.
func (c *Conn) Reset() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.resetLocked()
}

// apply sets the faults. If the connection cannot continue after its previous faults, apply resets
// it.
func (c *Conn) apply(f Faults) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.faults = f
	lifted := c.mute && !f.Mute
	for d, p := range c.pumps {
		lifted = lifted || p != nil && p.lost && !f.flow(direction(d)).Swallow
	}
	if lifted {
		c.resetLocked()
		return
	}
	c.wakeLocked()
}

func (f *Faults) flow(d direction) *Flow {
	if d == requests {
		return &f.Requests
	}
	return &f.Replies
}

func (c *Conn) wakeLocked() {
	close(c.changed)
	c.changed = make(chan struct{})
}

func (c *Conn) resetLocked() {
	if c.over {
		return
	}
	c.over = true
	abort(c.client)
	if c.server != nil {
		abort(c.server)
	}
	c.cancel()
	c.proxy.count(func(s *Stats) { s.Resets++ })
}

// abort closes a connection with a reset. An error would mean that the connection is already
// closed, so abort ignores errors.
func abort(c *net.TCPConn) {
	_ = c.SetLinger(0)
	_ = c.Close()
}

func (c *Conn) run() {
	defer c.cancel()
	if c.mute {
		c.drain()
		return
	}
	if !c.dial() {
		return
	}
	var wg sync.WaitGroup
	for _, p := range c.pumps {
		wg.Go(p.read)
		wg.Go(p.write)
	}
	wg.Wait()
	c.close()
}

// close closes the connection without a reset, unless it was already reset.
func (c *Conn) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over {
		return
	}
	c.over = true
	_ = c.client.Close()
	if c.server != nil {
		_ = c.server.Close()
	}
}

// drain reads and drops a muted client's bytes until either side closes the connection.
func (c *Conn) drain() {
	buf := make([]byte, 4<<10)
	for {
		n, err := c.client.Read(buf)
		c.proxy.count(func(s *Stats) {
			s.Requests.Read += int64(n)
			s.Requests.Swallowed += int64(n)
		})
		if err != nil {
			c.close()
			return
		}
	}
}

// dial connects to the server and creates the pumps.
func (c *Conn) dial() bool {
	d := net.Dialer{Timeout: c.proxy.o.DialTimeout}
	conn, err := d.DialContext(c.ctx, "tcp", c.proxy.server)
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil {
		c.proxy.count(func(s *Stats) { s.DialErrors++ })
		c.resetLocked()
		return false
	}
	server := conn.(*net.TCPConn)
	if c.over {
		abort(server)
		return false
	}
	c.server = server
	c.pumps[requests] = &pump{c: c, dir: requests, src: c.client, dst: server, framer: c.proxy.o.RequestFramer}
	c.pumps[replies] = &pump{c: c, dir: replies, src: server, dst: c.client, framer: c.proxy.o.ReplyFramer}
	return true
}
