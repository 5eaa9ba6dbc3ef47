package consul

import (
	"context"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/consul/api"
)

// kind is the purpose of a request. Because an HTTP connection carries one request at a time, the
// number of slots also limits the connections in use. Requests never wait for requests of another
// kind (rule E4).
type kind uint8

const (
	heartbeats kind = iota
	requests
	pings // reads that heartbeats wait for after a lapse of trust (driver.PingShard)
	waits // blocking queries: the change logs, and requested heartbeats
	kinds
)

// These constants limit the requests of each kind that a Backend has in flight at one address. Core
// has one heartbeat in flight, or up to 24 while heartbeats are unanswered. After a lapse of trust,
// core has up to nine pings in flight.
const (
	maxHeartbeats = 24
	maxPings      = 9
	requestSlots  = 3
	waitSlots     = 2
)

// heartbeatsIdle is the number of idle heartbeat connections that stay open. If these connections
// are silently lost, one heartbeat fails on each of them.
const heartbeatsIdle = 2

// slot carries one request at a time.
type slot struct {
	client *api.Client
	drop   func() // closes the slot's open but unused connections
	used   bool   // since its request ended
}

func (l *slot) end() {
	l.drop()
	l.used = false
}

// slots contains the slots of one address, grouped by kind.
type slots struct {
	kinds [kinds]*slotKind
	all   []*slot
}

// newSlots creates the slots for one of several addresses.
func newSlots(addresses int, make func() (*slot, error)) (*slots, error) {
	l := new(slots)
	for k, n := range [kinds]int{
		heartbeats: (maxHeartbeats + addresses - 1) / addresses, requests: requestSlots, pings: maxPings,
		waits: waitSlots,
	} {
		first := len(l.all)
		for range n {
			one, err := make()
			if err != nil {
				return nil, err
			}
			l.all = append(l.all, one)
		}
		l.kinds[k] = newSlotKind(l.all[first:])
	}
	l.kinds[heartbeats].keep = heartbeatsIdle
	return l, nil
}

// slotKind contains the interchangeable slots of one kind. The most recently used slot is taken
// first, which keeps the number of connections low.
type slotKind struct {
	free chan struct{} // one token for each idle slot
	keep int           // number of connections that stay open without a request; 0: all

	mu   sync.Mutex
	idle []*slot
}

func newSlotKind(all []*slot) *slotKind {
	k := &slotKind{free: make(chan struct{}, len(all))}
	for _, l := range all {
		k.give(l)
	}
	return k
}

func (k *slotKind) give(l *slot) {
	k.mu.Lock()
	if k.keep > 0 && l.used && k.open() >= k.keep {
		l.end()
		k.idle = slices.Insert(k.idle, 0, l)
	} else { // the next call takes it even if its connection ended, because the others may be lost too
		k.idle = append(k.idle, l)
	}
	k.mu.Unlock()
	k.free <- struct{}{}
}

// open returns the number of idle slots that may have an open connection.
func (k *slotKind) open() (n int) {
	for _, l := range k.idle {
		if l.used {
			n++
		}
	}
	return n
}

func (k *slotKind) take(ctx context.Context) (*slot, error) {
	select {
	case <-k.free:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	last := len(k.idle) - 1
	l := k.idle[last]
	k.idle = k.idle[:last]
	l.used = true
	return l, nil
}

// shared returns slots that all use one client and its connection pool.
func shared(client *api.Client, drop func()) *slots {
	l, _ := newSlots(1, func() (*slot, error) { return &slot{client: client, drop: drop}, nil })
	l.kinds[heartbeats].keep = 0 // because ending one slot would close the others' connections
	return l
}

func (l *slots) drop() {
	for _, one := range l.all {
		one.drop()
	}
}

// single returns a transport that never has more than one connection. A connection counts from the
// start of its dial until it is closed. With http.Transport's own limit, an abandoned dial would
// block the next heartbeat while the network is down, so a slot drops such a dial.
func single(dial func(ctx context.Context, network, addr string) (net.Conn, error)) *http.Transport {
	place := make(chan struct{}, 1)
	return transport(func(ctx context.Context, network, addr string) (net.Conn, error) {
		select {
		case place <- struct{}{}:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		conn, err := dial(ctx, network, addr)
		if err != nil {
			<-place
			return nil, err
		}
		return &placed{Conn: conn, leave: func() { <-place }}, nil
	})
}

// placed is a connection that frees its place when it is closed.
type placed struct {
	net.Conn
	once  sync.Once
	leave func()
}

func (p *placed) Close() error {
	err := p.Conn.Close()
	p.once.Do(p.leave)
	return err
}

// transport returns a transport without a response timeout, because the callers' contexts limit the
// time.
func transport(dial func(ctx context.Context, network, addr string) (net.Conn, error)) *http.Transport {
	return &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		DialContext:         dial,
		TLSHandshakeTimeout: 10 * time.Second,
		IdleConnTimeout:     90 * time.Second,
		DisableCompression:  true,
	}
}

// dialer returns a function that dials either the socket, if given, or the address.
func dialer(socket string) func(ctx context.Context, network, addr string) (net.Conn, error) {
	d := &net.Dialer{Timeout: 5 * time.Second, KeepAlive: 15 * time.Second}
	if socket == "" {
		return d.DialContext
	}
	return func(ctx context.Context, _, _ string) (net.Conn, error) { return d.DialContext(ctx, "unix", socket) }
}
