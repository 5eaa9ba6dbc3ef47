package sqlfault

import (
	"errors"
	"io"
	"net"
	"sync"
)

// Proxy passes TCP connections on to a server until they are cut. Safe for
// concurrent use.
type Proxy struct {
	to       string
	listener net.Listener
	done     sync.WaitGroup

	mu    sync.Mutex
	conns map[net.Conn]struct{}
	shut  bool
}

// NewProxy listens on loopback for connections to a server. The caller closes it.
func NewProxy(to string) (*Proxy, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &Proxy{to: to, listener: l, conns: make(map[net.Conn]struct{})}
	p.done.Go(p.accept)
	return p, nil
}

// Addr is where the proxy listens.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Cut closes every connection, whatever is under way on it, and returns how many
// there were.
func (p *Proxy) Cut() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		c.Close()
	}
	n := len(p.conns) / 2
	clear(p.conns)
	return n
}

// Close ends the proxy.
func (p *Proxy) Close() error {
	err := p.listener.Close()
	p.mu.Lock()
	p.shut = true
	p.mu.Unlock()
	p.Cut()
	p.done.Wait()
	return err
}

func (p *Proxy) accept() {
	for {
		in, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.done.Go(func() { p.serve(in) })
	}
}

func (p *Proxy) serve(in net.Conn) {
	out, err := net.Dial("tcp", p.to)
	if err == nil && !p.add(in, out) {
		err = errors.Join(net.ErrClosed, out.Close())
	}
	if err != nil {
		in.Close()
		return
	}
	var both sync.WaitGroup
	both.Go(func() { p.pass(out, in) })
	both.Go(func() { p.pass(in, out) })
	both.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, in)
	delete(p.conns, out)
}

func (p *Proxy) add(conns ...net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range conns {
		p.conns[c] = struct{}{}
	}
	return !p.shut
}

// pass copies one direction; its end ends the other.
func (p *Proxy) pass(to, from net.Conn) {
	_, _ = io.Copy(to, from)
	to.Close()
	from.Close()
}
