package consul

import (
	"context"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/hashicorp/consul/api"
)

// kind is what a request is for. HTTP carries one request at a time on a connection,
// so the number of lanes bounds the connections in use as well. No kind waits for
// another one (rule E4).
type kind uint8

const (
	heartbeats kind = iota
	requests
	waits // blocked queries: the feeds, and the heartbeats asked for
	kinds
)

// How many requests of a kind a Backend has under way at once at one address. Core
// has one heartbeat under way, and up to twelve while heartbeats have no answer.
const (
	maxHeartbeats = 12
	requestLanes  = 3
	waitLanes     = 2
	// usualLanes are in use while heartbeats are answered.
	usualLanes = 1 + requestLanes + waitLanes
)

// lane carries one request at a time.
type lane struct {
	client *api.Client
	drop   func() // ends what the lane has open but does not use
}

// lanes are those to one address, by kind.
type lanes struct {
	kinds [kinds]*laneKind
	all   []*lane
}

// newLanes makes the lanes to one of several addresses.
func newLanes(addresses int, make func() (*lane, error)) (*lanes, error) {
	l := new(lanes)
	for k, n := range [kinds]int{heartbeats: (maxHeartbeats + addresses - 1) / addresses, requests: requestLanes, waits: waitLanes} {
		first := len(l.all)
		for range n {
			one, err := make()
			if err != nil {
				return nil, err
			}
			l.all = append(l.all, one)
		}
		l.kinds[k] = newLaneKind(l.all[first:])
	}
	return l, nil
}

// laneKind are the lanes that may take each other's place. Those used last are
// preferred, so that no more are connected than there is need of.
type laneKind struct {
	free chan struct{} // holds one token for each of idle

	mu   sync.Mutex
	idle []*lane
}

func newLaneKind(all []*lane) *laneKind {
	k := &laneKind{free: make(chan struct{}, len(all))}
	for _, l := range all {
		k.give(l)
	}
	return k
}

func (k *laneKind) give(l *lane) {
	k.mu.Lock()
	k.idle = append(k.idle, l)
	k.mu.Unlock()
	k.free <- struct{}{}
}

// take waits for a lane until ctx ends.
func (k *laneKind) take(ctx context.Context) (*lane, error) {
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
	return l, nil
}

// shared are the lanes of one client, which has a pool of connections.
func shared(client *api.Client, drop func()) *lanes {
	l, _ := newLanes(1, func() (*lane, error) { return &lane{client: client, drop: drop}, nil })
	return l
}

func (l *lanes) drop() {
	for _, one := range l.all {
		one.drop()
	}
}

// single is a transport that never has more than one connection, from before it is
// dialed until after it is closed. http.Transport's own bound counts a dial that
// nobody waits for any more, which in a network that is cut would keep out the next
// heartbeat; here a lane drops such a dial.
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
