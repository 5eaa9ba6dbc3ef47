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

// maxPeers is how many connections to owners are kept.
const maxPeers = 256

// Peers are connections to members, made when they are needed and kept. Safe for
// concurrent use.
type Peers struct {
	allow   func(address string) bool
	options []grpc.DialOption

	mu     sync.Mutex
	closed bool
	uses   uint64
	conns  map[string]*peer
}

type peer struct {
	conn *grpc.ClientConn
	busy int    // calls under way
	used uint64 // when it was, in calls
}

// NewPeers returns Peers. Addresses come from members' metadata, or from a server's answer:
// allow has to allow one before calls, with their credentials, go to it. Nil allows those that
// are not loopback, link-local, multicast or unspecified. A name that resolves to one of these
// is refused in any case, and the environment's proxy is not asked. The options are those of
// grpc.NewClient, with the application's credentials; an error of it is returned.
func NewPeers(allow func(address string) bool, options ...grpc.DialOption) (*Peers, error) {
	dial := peerdial.Dial(allow != nil)
	p := &Peers{allow: allow, conns: make(map[string]*peer), options: append(slices.Clone(options), grpc.WithNoProxy(),
		grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) { return dial(ctx, "tcp", address) }))}
	probe, err := p.dial("tenure.invalid:1") // it does not connect
	if err != nil {
		return nil, fmt.Errorf("tenure: %w: connections to peers: %w", core.ErrInvalid, err)
	}
	return p, probe.Close()
}

// dial makes a connection to exactly this address, whatever gRPC's schemes would make of it.
func (p *Peers) dial(address string) (*grpc.ClientConn, error) {
	return grpc.NewClient("passthrough:///"+url.PathEscape(address), p.options...)
}

// errBusy: 256 owners have calls under way.
var errBusy = fmt.Errorf("tenure: calls to %d owners are under way: %w", maxPeers, core.ErrRetry)

// take returns a connection; done gives it back.
func (p *Peers) take(address string) (conn *grpc.ClientConn, done func(), err error) {
	if err := CheckAddress(address); err != nil {
		return nil, nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, nil, fmt.Errorf("tenure: %w: the Peers", core.ErrClosed)
	}
	c := p.conns[address]
	if c == nil {
		switch {
		case p.allow == nil && peerdial.Local(address):
			return nil, nil, fmt.Errorf("tenure: %w: address %q: %w", core.ErrInvalid, address, peerdial.ErrLocal)
		case p.allow != nil && !p.allow(address):
			return nil, nil, fmt.Errorf("tenure: %w: address %q is not allowed", core.ErrInvalid, address)
		case len(p.conns) >= maxPeers && !p.evict():
			return nil, nil, errBusy
		}
		conn, err := p.dial(address)
		if err != nil {
			return nil, nil, err
		}
		c = &peer{conn: conn}
		p.conns[address] = c
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

// evict closes the connection that was used the longest ago and has no call under way.
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
	_ = p.conns[oldest].conn.Close() // nobody uses it
	delete(p.conns, oldest)
	return true
}

// Close closes all connections. Calls under way end.
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

// maxAddress is the longest address, in bytes.
const maxAddress = 300

// CheckAddress checks the address of a member: a host and a port, and nothing else. A host
// that is a scheme of gRPC, such as "unix" or "dns", is refused, as gRPC would not take it for
// a host. The error matches core.ErrInvalid.
func CheckAddress(address string) error {
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
