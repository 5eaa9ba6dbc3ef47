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

// kind is the purpose of a request. HTTP carries one request at a time on a
// connection, so the number of slots bounds the connections in use as well. No kind
// waits for another one (rule E4).
type kind uint8

const (
	heartbeats kind = iota
	requests
	pings // reads that heartbeats wait for after a lapse of trust (driver.PingShard)
	waits // blocked queries: the change logs, and the heartbeats asked for
	kinds
)

// How many requests of a kind a Backend has under way at once at one address. Core
// has one heartbeat under way, up to 24 while heartbeats have no answer, and up to nine
// pings after a lapse of trust.
const (
	maxHeartbeats = 24
	maxPings      = 9
	requestSlots  = 3
	waitSlots     = 2
)

// heartbeatsIdle is how many connections of heartbeats stay open without a request: if all are
// lost in silence, each costs a heartbeat.
const heartbeatsIdle = 2

// slot carries one request at a time.
type slot struct {
	client *api.Client
	drop   func() // closes the slot's open but unused connections
	used   bool   // since end
}

func (l *slot) end() {
	l.drop()
	l.used = false
}

// slots are those to one address, by kind.
type slots struct {
	kinds [kinds]*slotKind
	all   []*slot
}

// newSlots makes the slots to one of several addresses.
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

// slotKind are the slots that may take each other's place. Those used last are
// preferred, to keep connections few.
type slotKind struct {
	free chan struct{} // holds one token for each of idle
	keep int           // how many connections stay open without a request; 0: all

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
	} else { // also one that ended: the next request connects, where others may be lost as well
		k.idle = append(k.idle, l)
	}
	k.mu.Unlock()
	k.free <- struct{}{}
}

// open is how many slots may have a connection without a request.
func (k *slotKind) open() (n int) {
	for _, l := range k.idle {
		if l.used {
			n++
		}
	}
	return n
}

// take waits for a slot until ctx ends.
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

// shared are the slots of one client, which has a pool of connections.
func shared(client *api.Client, drop func()) *slots {
	l, _ := newSlots(1, func() (*slot, error) { return &slot{client: client, drop: drop}, nil })
	l.kinds[heartbeats].keep = 0 // one slot's end would take the others' connections
	return l
}

func (l *slots) drop() {
	for _, one := range l.all {
		one.drop()
	}
}

// single is a transport that never has more than one connection, from before it is
// dialed until after it is closed. http.Transport's own bound counts a dial that
// nobody waits for any more, which in a network that is cut would keep out the next
// heartbeat; here a slot drops such a dial.
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

// placed is a connection that gives its place back when it is closed.
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

// transport has no time-out for answers: the callers' contexts have them.
func transport(dial func(ctx context.Context, network, addr string) (net.Conn, error)) *http.Transport {
	return &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		DialContext:         dial,
		TLSHandshakeTimeout: 10 * time.Second,
		IdleConnTimeout:     90 * time.Second,
		DisableCompression:  true,
	}
}

// dialer reaches the address that it is given, or a socket of this host.
func dialer(socket string) func(ctx context.Context, network, addr string) (net.Conn, error) {
	d := &net.Dialer{Timeout: 5 * time.Second, KeepAlive: 15 * time.Second}
	if socket == "" {
		return d.DialContext
	}
	return func(ctx context.Context, _, _ string) (net.Conn, error) { return d.DialContext(ctx, "unix", socket) }
}
