package routegrpc

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"

	"google.golang.org/grpc"

	"github.com/tenure-go/tenure/core"
)

// maxPeers is how many connections to owners are kept.
const maxPeers = 256

// Peers are connections to members, made when they are needed and kept. Safe for
// concurrent use.
type Peers struct {
	dial func(address string) (*grpc.ClientConn, error)

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

// NewPeers returns Peers. dial makes a connection, as grpc.NewClient does, with the
// application's credentials, and refuses an address that calls may not go to: addresses
// come from members' metadata, or from a server's answer.
func NewPeers(dial func(address string) (*grpc.ClientConn, error)) (*Peers, error) {
	if dial == nil {
		return nil, fmt.Errorf("tenure: %w: Peers need a function that dials", core.ErrInvalid)
	}
	return &Peers{dial: dial, conns: make(map[string]*peer)}, nil
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
		if len(p.conns) >= maxPeers && !p.evict() {
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

// CheckAddress checks the address of a member: a host and a port, and nothing else. The
// error matches core.ErrInvalid.
func CheckAddress(address string) error {
	host, port, err := net.SplitHostPort(address)
	n, perr := strconv.ParseUint(port, 10, 16)
	if err != nil || perr != nil || n == 0 || host == "" || len(address) > maxAddress {
		return fmt.Errorf("tenure: %w: address %.100q: write it as host:port", core.ErrInvalid, address)
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
