package faultproxy

import (
	"context"
	"net"
	"sync"
)

// direction is one of the two directions of a connection.
type direction uint8

const (
	requests direction = iota
	replies
)

// Conn is one connection through a proxy: a pair of TCP connections, to the
// client and to the server. It is safe for concurrent use.
type Conn struct {
	proxy  *Proxy
	number int64
	client *net.TCPConn
	ctx    context.Context // ends with the connection
	cancel context.CancelFunc

	mu      sync.Mutex
	faults  Faults
	mute    bool          // the server was never dialled
	changed chan struct{} // closed, and replaced, at each change of the fields guarded by mu
	server  *net.TCPConn  // nil until dialled
	over    bool          // both sides are closed, or about to be
	pumps   [2]*pump      // by direction; nil until dialled
}

func newConn(p *Proxy, client *net.TCPConn, number int64, f Faults) *Conn {
	c := &Conn{proxy: p, number: number, client: client, faults: f, mute: f.Mute, changed: make(chan struct{})}
	c.ctx, c.cancel = context.WithCancel(p.ctx)
	return c
}

// Client returns the client's address, by which a test finds its connection.
func (c *Conn) Client() net.Addr { return c.client.RemoteAddr() }

// Set applies f to this connection alone, until the next Set of the proxy.
func (c *Conn) Set(f Faults) error {
	if err := f.check(&c.proxy.o); err != nil {
		return err
	}
	c.apply(f)
	return nil
}

// Reset cuts the connection with a reset on both sides. Held bytes are lost. The
// connection's goroutines end soon after.
func (c *Conn) Reset() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.resetLocked()
}

// apply sets the faults. It resets a connection that cannot continue after its faults were lifted.
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

// abort closes a connection so that its peer sees a reset. An error means that it is closed
// already.
func abort(c *net.TCPConn) {
	_ = c.SetLinger(0)
	_ = c.Close()
}

// run runs the connection until its end.
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

// close closes the connection without a reset, unless it was reset before.
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

// drain reads and drops a muted client's bytes, until either side closes.
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

// dial connects to the server and makes the pumps.
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
