package routegrpc

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/resolver"

	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/internal/peerdial"
)

const maxPeers = 256

// Peers are connections to members. Peers open a connection on first use and keep it open. Peers
// are safe for concurrent use.
type Peers struct {
	allow   func(address string) bool
	options []grpc.DialOption

	mu     sync.Mutex
	closed bool
	uses   uint64
	conns  map[string]*peer // connections by use and address
}

type peer struct {
	conn *grpc.ClientConn
	busy int    // calls in progress
	used uint64 // the value of uses at the last call
}

// NewPeers returns Peers. Addresses come from members' metadata, or from a server's answer. The
// function allow reports whether calls, with their credentials, may be sent to an address. If allow
// is nil, Peers allow every address that is not loopback, link-local, multicast or unspecified. A
// forwarding Server then also refuses its own machine's addresses. A name that resolves to such an
// address is always refused. Peers ignore the environment's proxy settings. NewPeers passes the
// options, such as the application's credentials, to grpc.NewClient, and returns the error from
// grpc.NewClient.
func NewPeers(allow func(address string) bool, options ...grpc.DialOption) (*Peers, error) {
	p := &Peers{allow: allow, conns: make(map[string]*peer), options: append(slices.Clone(options), grpc.WithNoProxy())}
	probe, err := p.dial("tenure.invalid:1") // this does not connect
	if err != nil {
		return nil, fmt.Errorf("tenure: %w: connections to peers: %w", core.ErrInvalid, err)
	}
	return p, probe.Close()
}

// This prefix marks the keys of connections for calls that a Server forwards.
const forwarding = "forward "

// gRPC must not interpret the address as a URI with a scheme.
func (p *Peers) dial(key string) (*grpc.ClientConn, error) {
	address, forwards := strings.CutPrefix(key, forwarding)
	dial := peerdial.Dial(p.allow != nil, forwards)
	return grpc.NewClient("passthrough:///"+url.PathEscape(address), append(slices.Clone(p.options),
		grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) { return dial(ctx, "tcp", address) }))...)
}

var errBusy = fmt.Errorf("tenure: calls to %d owners are under way: %w", maxPeers, core.ErrRetry)

// The argument use is either "" or forwarding. The function done releases the connection.
func (p *Peers) take(use, address string) (conn *grpc.ClientConn, done func(), err error) {
	if err := checkAddress(address); err != nil {
		return nil, nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, nil, fmt.Errorf("tenure: %w: the Peers", core.ErrClosed)
	}
	c := p.conns[use+address]
	if c == nil {
		switch {
		case p.allow == nil && peerdial.Local(address):
			return nil, nil, fmt.Errorf("tenure: %w: address %q: %w", core.ErrInvalid, address, peerdial.ErrLocal)
		case p.allow != nil && !p.allow(address):
			return nil, nil, fmt.Errorf("tenure: %w: address %q is not allowed", core.ErrInvalid, address)
		case len(p.conns) >= maxPeers && !p.evict():
			return nil, nil, errBusy
		}
		conn, err := p.dial(use + address)
		if err != nil {
			return nil, nil, err
		}
		c = &peer{conn: conn}
		p.conns[use+address] = c
	}
	p.uses++
	c.used = p.uses
	c.busy++
	return c.conn, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		c.busy--
	}, nil
}

// evict closes the least recently used connection that has no call in progress. If there is no such
// connection, evict returns false.
func (p *Peers) evict() bool {
	oldest := ""
	for a, c := range p.conns {
		if c.busy == 0 && (oldest == "" || c.used < p.conns[oldest].used) {
			oldest = a
		}
	}
	if oldest == "" {
		return false
	}
	_ = p.conns[oldest].conn.Close() // no call uses the connection
	delete(p.conns, oldest)
	return true
}

// Close closes all connections. Calls in progress end.
func (p *Peers) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	var errs []error
	for a, c := range p.conns {
		errs = append(errs, c.conn.Close())
		delete(p.conns, a)
	}
	return errors.Join(errs...)
}

const maxAddress = 300

// checkAddress checks a member's address, which consists of a host and a port. A host that is also
// a gRPC scheme, such as "unix" or "dns", is refused, because gRPC would not treat it as a host.
// The error matches core.ErrInvalid.
func checkAddress(address string) error {
	host, port, err := net.SplitHostPort(address)
	n, perr := strconv.ParseUint(port, 10, 16)
	if err != nil || perr != nil || n == 0 || host == "" || len(address) > maxAddress {
		return fmt.Errorf("tenure: %w: address %.100q: write it as host:port", core.ErrInvalid, address)
	}
	if resolver.Get(strings.ToLower(host)) != nil {
		return fmt.Errorf("tenure: %w: address %q: its host is a scheme of gRPC: use its full name", core.ErrInvalid, address)
	}
	for _, c := range []byte(host) {
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '.', c == '-', c == ':', c == '%', c == '_':
		default:
			return fmt.Errorf("tenure: %w: address %.100q: its host has %q: write it as host:port", core.ErrInvalid, address, c)
		}
	}
	return nil
}
