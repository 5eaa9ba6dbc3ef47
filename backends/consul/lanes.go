package consul

import (
	"context"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/hashicorp/consul/api"
)

// How many requests a Backend has under way at once, at most six. HTTP carries one
// at a time on a connection, so this bounds the connections in use as well. No kind
// waits for another one (rule E4).
const (
	heartbeatLanes = 1
	requestLanes   = 3
	waitLanes      = 2 // blocked queries: the feeds, and the heartbeats asked for
	maxLanes       = heartbeatLanes + requestLanes + waitLanes
)

// lane carries one request at a time.
type lane struct {
	client *api.Client
	drop   func() // ends what the lane has open but does not use
}

// lanes are all of a Backend's, by kind.
type lanes struct {
	heartbeats, requests, waits *laneKind
	all                         [maxLanes]*lane
}

func newLanes(all [maxLanes]*lane) *lanes {
	const first, second = heartbeatLanes, heartbeatLanes + requestLanes
	return &lanes{
		heartbeats: newLaneKind(all[:first]), requests: newLaneKind(all[first:second]), waits: newLaneKind(all[second:]), all: all,
	}
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

// take waits for a lane until ctx or life ends.
func (k *laneKind) take(ctx, life context.Context) (*lane, error) {
	select {
	case <-k.free:
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-life.Done():
		return nil, errClosed
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
	var all [maxLanes]*lane
	for i := range all {
		all[i] = &lane{client: client, drop: drop}
	}
	return newLanes(all)
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
