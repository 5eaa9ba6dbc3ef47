package faultproxy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"time"
)

// ErrClosed is returned by calls on a closed proxy.
var ErrClosed = errors.New("tenure: faultproxy: closed")

// Options configures a proxy. The zero value is valid.
type Options struct {
	// Listen is the TCP address to listen on. If Listen is empty, the proxy picks a free port on
	// 127.0.0.1. The kernel never uses this port for outgoing connections, so the port stays free
	// between Refuse and Admit.
	Listen string
	// MaxConns limits the number of open connections. 0 means 1024.
	MaxConns int
	// MaxHeld limits how many bytes may wait in each direction of a connection. 0 means 4 MiB. A
	// single read or frame may exceed the limit.
	MaxHeld int
	// MaxFrame limits the length of a frame. 0 means 16 MiB.
	MaxFrame int
	// DialTimeout limits how long the proxy tries to connect to the server. 0 means 10 s.
	DialTimeout time.Duration
	// RequestFramer and ReplyFramer divide requests and replies into frames. The proxy forwards
	// only complete frames. A direction with a nil Framer has no frames.
	RequestFramer, ReplyFramer Framer
}

// Proxy forwards connections to one server, with faults. A Proxy is safe for concurrent use. The
// caller must close the Proxy.
type Proxy struct {
	server string
	addr   string
	o      Options
	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	wg     sync.WaitGroup // every goroutine of the proxy

	mu       sync.Mutex // locked before a Conn's mu, which is locked before countMu
	faults   Faults
	conns    map[*Conn]struct{}
	accepted int64
	listener *listener // nil while connections are refused

	countMu sync.Mutex
	stats   Stats
	counted chan struct{} // closed by the next change; nil if no goroutine waits
}

// listener is an open port, with the goroutine that accepts its connections.
type listener struct {
	*net.TCPListener
	done chan struct{} // closed when the goroutine has ended
}

// New returns a listening proxy that forwards to the TCP address in server. The proxy dials this
// address for each connection. A nil o means the zero Options.
func New(server string, o *Options) (*Proxy, error) {
	p := &Proxy{server: server, conns: map[*Conn]struct{}{}}
	if o != nil {
		p.o = *o
	}
	if p.o.MaxConns < 0 || p.o.MaxHeld < 0 || p.o.MaxFrame < 0 || p.o.DialTimeout < 0 {
		return nil, errors.New("tenure: faultproxy: a limit is negative: use 0 for its default")
	}
	if _, _, err := net.SplitHostPort(server); err != nil {
		return nil, fmt.Errorf("tenure: faultproxy: the server's address must be host:port: %w", err)
	}
	p.o.MaxConns = cmp.Or(p.o.MaxConns, 1024)
	p.o.MaxHeld = cmp.Or(p.o.MaxHeld, 4<<20)
	p.o.MaxFrame = cmp.Or(p.o.MaxFrame, 16<<20)
	p.o.DialTimeout = cmp.Or(p.o.DialTimeout, 10*time.Second)
	l, err := listen(p.o.Listen)
	if err != nil {
		return nil, fmt.Errorf("tenure: faultproxy: %w", err)
	}
	p.addr = l.Addr().String()
	p.ctx, p.cancel = context.WithCancel(context.Background())
	p.serve(l)
	return p, nil
}

// listen opens addr. If addr is empty, listen opens a port outside the default range of outgoing
// connections on Linux, Windows and macOS.
func listen(addr string) (*net.TCPListener, error) {
	const tries, low, high = 64, 20000, 30000
	if addr == "" {
		for range tries {
			l, err := listen(fmt.Sprintf("127.0.0.1:%d", low+rand.IntN(high-low)))
			if err == nil {
				return l, nil
			}
		}
		addr = "127.0.0.1:0"
	}
	l, err := new(net.ListenConfig).Listen(context.Background(), "tcp", addr)
	if err != nil {
		return nil, err
	}
	return l.(*net.TCPListener), nil
}

// Addr returns the address to connect to, as host:port. The address never changes.
func (p *Proxy) Addr() string { return p.addr }

// Set applies f to all open and new connections. The faults affect all bytes that a client or
// server sends after Set has returned.
func (p *Proxy) Set(f Faults) error { return p.set(f, true) }

// SetNew applies f only to connections that the proxy accepts after the call.
func (p *Proxy) SetNew(f Faults) error { return p.set(f, false) }

func (p *Proxy) set(f Faults, open bool) error {
	if err := f.check(&p.o); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ctx.Err() != nil {
		return ErrClosed
	}
	p.faults = f
	if open {
		for c := range p.conns {
			c.apply(f)
		}
	}
	return nil
}

// Conns returns the open connections, oldest first.
func (p *Proxy) Conns() []*Conn {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := make([]*Conn, 0, len(p.conns))
	for c := range p.conns {
		out = append(out, c)
	}
	slices.SortFunc(out, func(a, b *Conn) int { return cmp.Compare(a.number, b.number) })
	return out
}

// Reset resets both sides of all open connections.
func (p *Proxy) Reset() {
	for _, c := range p.Conns() {
		c.Reset()
	}
}

// Refuse closes the port, so the kernel refuses connections until Admit is called. Open connections
// stay open. A second call has no effect.
func (p *Proxy) Refuse() error {
	p.mu.Lock()
	l := p.listener
	p.listener = nil
	closed := p.ctx.Err() != nil
	p.mu.Unlock()
	if closed {
		return ErrClosed
	}
	return l.stop()
}

// Admit opens the port again. Admit fails if another process has taken the port.
func (p *Proxy) Admit() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ctx.Err() != nil {
		return ErrClosed
	}
	if p.listener != nil {
		return nil
	}
	l, err := listen(p.addr)
	if err != nil {
		return fmt.Errorf("tenure: faultproxy: opening the port again: %w", err)
	}
	p.serve(l)
	return nil
}

// Close resets all connections, closes the port and waits for every goroutine. A second call also
// waits, and returns nil.
func (p *Proxy) Close() error {
	p.mu.Lock()
	p.cancel()
	l := p.listener
	p.listener = nil
	p.mu.Unlock()
	err := l.stop()
	p.Reset()
	p.wg.Wait()
	return err
}

// serve starts accepting connections. The caller must hold mu, or have the only reference to p.
func (p *Proxy) serve(l *net.TCPListener) {
	p.listener = &listener{TCPListener: l, done: make(chan struct{})}
	own := p.listener
	p.wg.Go(func() {
		defer close(own.done)
		p.accept(own)
	})
}

func (l *listener) stop() error {
	if l == nil {
		return nil
	}
	err := l.Close()
	<-l.done
	return err
}

// accept accepts connections until the listener is closed. Other errors, such as a lack of file
// descriptors, are temporary, so accept continues after a pause.
func (p *Proxy) accept(l *listener) {
	for {
		client, err := l.AcceptTCP()
		switch {
		case err == nil:
			p.admit(client)
		case errors.Is(err, net.ErrClosed):
			return
		default:
			select {
			case <-time.After(10 * time.Millisecond):
			case <-p.ctx.Done():
				return
			}
		}
	}
}

func (p *Proxy) admit(client *net.TCPConn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ctx.Err() != nil || len(p.conns) >= p.o.MaxConns {
		abort(client)
		p.count(func(s *Stats) { s.Surplus++ })
		return
	}
	p.accepted++
	c := newConn(p, client, p.accepted, p.faults)
	p.conns[c] = struct{}{}
	p.count(func(s *Stats) { s.Accepted++; s.Open++ })
	p.wg.Go(func() {
		c.run()
		p.mu.Lock()
		delete(p.conns, c)
		p.mu.Unlock()
		p.count(func(s *Stats) { s.Open-- })
	})
}
