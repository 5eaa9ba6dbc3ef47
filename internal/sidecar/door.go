package sidecar

import (
	"container/list"
	"context"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// These constants limit connections that have not presented the token.
const (
	maxStrangers = 512
	// While other connections wait for a place, a connection must present the token within this
	// time. If no connection waits, the limit is headerTime, plus one second to receive the
	// refusal.
	strangerTime = 500 * time.Millisecond
	pauseTime    = 10 * time.Millisecond // wait while no stranger may be closed
	longestStay  = headerTime + time.Second
	refusalsTime = time.Minute // time between two log lines about peers of other users
)

// A door is a listener with a separate limit for unauthorized connections, called strangers, which
// therefore take no places from authorized clients. On a Unix socket, the door accepts and
// immediately closes connections from other users. If there are maxStrangers strangers, the door
// closes the oldest one that has been connected for strangerTime and has no unread data. If there
// is no place for an authorized connection, the door closes it.
type door struct {
	net.Listener
	log    *slog.Logger
	token  bool          // clients send a token
	places chan struct{} // places of clients with authority
	left   chan struct{} // gets an element when a stranger leaves

	refusals int // number of refused peers since the last log line; only Accept uses it
	told     time.Time

	mu        sync.Mutex
	strangers *list.List // each is a *caller; oldest first
}

func newDoor(ln net.Listener, log *slog.Logger, token bool, places int) *door {
	return &door{Listener: ln, log: log, token: token, places: make(chan struct{}, places), left: make(chan struct{}, 1),
		strangers: list.New()}
}

// Accept returns the next connection that may stay open. The server calls Accept from only one
// goroutine.
func (d *door) Accept() (net.Conn, error) {
	for {
		conn, err := d.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if u, ok := conn.(*net.UnixConn); ok {
			if err := checkPeer(u); err != nil {
				_ = conn.Close()
				d.refused(err)
				continue
			}
		}
		c := &caller{Conn: conn, door: d, since: time.Now()}
		switch {
		case d.token:
			d.enter(c)
		case !d.seat(c):
			_ = conn.Close()
			continue
		}
		return c, nil
	}
}

func (d *door) refused(err error) {
	d.refusals++
	if now := time.Now(); d.told.IsZero() || now.Sub(d.told) >= refusalsTime {
		d.log.Warn("connection closed: its user is another", "error", err, "connections", d.refusals)
		d.told, d.refusals = now, 0
	}
}

func (d *door) enter(c *caller) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for d.strangers.Len() >= maxStrangers {
		if idle := d.idle(); idle != nil {
			d.leave(idle)
			_ = idle.Conn.Close()
			continue
		}
		d.mu.Unlock()
		t := time.NewTimer(pauseTime)
		select {
		case <-d.left:
		case <-t.C:
		}
		t.Stop()
		d.mu.Lock()
	}
	c.stranger = d.strangers.PushBack(c)
	c.late = time.AfterFunc(longestStay, func() { // even if the caller has not received its answer
		d.mu.Lock()
		defer d.mu.Unlock()
		if c.stranger != nil {
			d.leave(c)
			_ = c.Conn.Close()
		}
	})
}

// idle returns the oldest stranger that may be closed, or nil. On a busy machine, a request that
// arrived in time may still be unread. The caller must hold d.mu.
func (d *door) idle() *caller {
	for e := d.strangers.Front(); e != nil; e = e.Next() {
		c := e.Value.(*caller)
		if time.Since(c.since) < strangerTime {
			return nil
		}
		if c.refused.Load() || c.reading.Load() && !pending(c.Conn) {
			return c
		}
	}
	return nil
}

// The caller must hold d.mu.
func (d *door) leave(c *caller) {
	d.strangers.Remove(c.stranger)
	c.late.Stop()
	c.stranger = nil
	select {
	case d.left <- struct{}{}:
	default:
	}
}

// If no place is free, seat returns false.
func (d *door) seat(c *caller) bool {
	select {
	case d.places <- struct{}{}:
		c.seated = true
		return true
	default:
		return false
	}
}

// A caller is an accepted connection. A caller is safe for concurrent use.
type caller struct {
	net.Conn
	door  *door
	since time.Time

	reading atomic.Bool // the server waits for more of the request
	refused atomic.Bool // the server has refused the caller's request

	// These fields are guarded by door.mu.
	stranger *list.Element // nil if the caller is not a stranger
	late     *time.Timer
	seated   bool // the caller has one of the door's places
}

// The connection has presented the token. The result is false if there is no place for it.
func (c *caller) proven() bool {
	c.door.mu.Lock()
	defer c.door.mu.Unlock()
	if c.stranger == nil {
		return c.seated
	}
	if !c.door.seat(c) {
		return false
	}
	c.door.leave(c)
	return true
}

func (c *caller) Read(p []byte) (int, error) {
	c.reading.Store(true)
	defer c.reading.Store(false)
	return c.Conn.Read(p)
}

func (c *caller) Close() error {
	c.door.mu.Lock()
	if c.stranger != nil {
		c.door.leave(c)
	}
	if c.seated {
		c.seated = false
		<-c.door.places
	}
	c.door.mu.Unlock()
	return c.Conn.Close()
}

type callerKey struct{}

func withCaller(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, callerKey{}, c)
}

func callerOf(r *http.Request) *caller { return r.Context().Value(callerKey{}).(*caller) }
