package zookeeper

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"
)

// link is one connection to one server, with one session. By itself, the client library would
// reconnect, send queued requests, and replace an expired session. A link lets the library dial
// only once. Therefore, a link that is down has ended, and requests in flight on it have an unknown
// outcome.
type link struct {
	server string // as given in the options
	began  time.Time
	conn   *zk.Conn
	wire   *observedConn
	// If alone is true, the server is outside an ensemble, and ends all connections when it joins
	// one.
	alone bool
	// Unless it is nil, outdated reports whether there is a newer password than the one that the
	// link used.
	outdated func() bool
	// If a call gave up while nothing arrived from the server, silent is true.
	silent atomic.Bool
	// Once the connection is considered lost, this is the time since which calls have waited
	// without an answer.
	lost atomic.Pointer[time.Time]

	up   chan struct{} // closed once there is a session
	down chan struct{} // closed when the connection has ended
	done chan struct{} // closed when the library's goroutines have ended

	ready, over sync.Once
	slots       chan struct{}  // one for each pending call, whether or not its caller still waits
	calls       sync.WaitGroup // the same

	mu      sync.Mutex
	closing bool     // no call may begin
	sent    *barrier // the pending barrier, or the last one
	next    *barrier // sent after the answer to sent
	watches map[*watches]struct{}
	vain    time.Time // beginning of the first call that gave up since the last byte arrived
}

// maxCalls is the maximum number of calls in flight on a link.
const maxCalls = 64

// callTimeout is the timeout of a link's session. The library sends a ping in each third of the
// timeout, and abandons a server that answers no ping for two thirds of it. Tenure does not use
// sessions for anything else. The timeout is long because a busy server answers pings late. If
// calls on a link get no answer, Tenure abandons the link earlier.
const callTimeout = 30 * time.Second

// A link for reads and watches may have no calls while it waits for changes. If the server has then
// been silent for askAfter, the link sends a request, and abandons the server if nothing arrives
// within askLimit. With a TTL of 10 s or less, watched heartbeats arrive sooner, so no request is
// needed.
const (
	askAfter = 3500 * time.Millisecond
	askLimit = 3 * time.Second
)

// maxReply is the maximum length of a reply, such as a list of names, in bytes.
const maxReply = 64 << 20

// onlyOnce gives the library one server's address, and only once.
type onlyOnce struct {
	server string
	given  bool
}

func (o *onlyOnce) Init([]string) error { return nil }
func (o *onlyOnce) Len() int            { return 1 }
func (o *onlyOnce) Connected()          {}
func (o *onlyOnce) Next() (string, bool) {
	again := o.given
	o.given = true
	return o.server, again
}

// silent is the library's logger, which writes nothing, because calls return their errors.
type silent struct{}

func (silent) Printf(string, ...any) {}

var (
	errEnded          = errors.New("the connection has ended")
	errRefusedSession = errors.New("the server ended the connection while the session began: it may have too many from this host " +
		"(maxClientCnxns, a process needs 4), or no leader")
)

// newLink begins a session on a connection. The link owns the connection.
func newLink(
	ctx context.Context, raw net.Conn, server string, v *lastRead, auth [][]byte, alone bool,
) (*link, error) {
	l := &link{
		server: server, began: time.Now(), wire: newObservedConn(raw, v), alone: alone, up: make(chan struct{}), down: make(chan struct{}),
		done:  make(chan struct{}),
		slots: make(chan struct{}, maxCalls), watches: make(map[*watches]struct{}),
	}
	var dial sync.Once
	conn, events, err := zk.Connect([]string{server}, callTimeout,
		zk.WithHostProvider(&onlyOnce{server: server}),
		zk.WithLogger(silent{}), zk.WithLogInfo(false),
		zk.WithMaxBufferSize(maxReply),
		zk.WithEventCallback(l.event),
		zk.WithDialer(func(string, string, time.Duration) (net.Conn, error) {
			err := errEnded
			dial.Do(func() { err = nil })
			if err != nil {
				l.over.Do(func() { close(l.down) })
				return nil, err
			}
			return l.wire, nil
		}))
	if err != nil {
		return nil, joined(err, raw.Close())
	}
	l.conn = conn
	go func() {
		for range events { // ends with the library's last goroutine
		}
		l.over.Do(func() { close(l.down) })
		close(l.done)
	}()
	select {
	case <-l.up:
	case <-l.down:
		err = errRefusedSession
	case <-ctx.Done():
		err = fmt.Errorf("no session: %w", ctx.Err())
	}
	for _, a := range auth {
		if err == nil {
			_, err = call(ctx, l, func(c *zk.Conn) (struct{}, error) { return struct{}{}, c.AddAuth("digest", a) })
		}
	}
	if err != nil {
		l.cut()
		l.close()
		return nil, err
	}
	return l, nil
}

// event handles a library event, and must not block, because the library's goroutines call it.
func (l *link) event(ev zk.Event) {
	if ev.Type == zk.EventSession {
		switch ev.State {
		case zk.StateHasSession:
			l.ready.Do(func() { close(l.up) })
		case zk.StateDisconnected, zk.StateExpired, zk.StateAuthFailed:
			l.over.Do(func() { close(l.down) })
		}
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for w := range l.watches {
		w.fire(ev.Path)
	}
}

// Until the returned function is called, w.fire is called for every node whose watch fires.
func (l *link) watch(w *watches) (stop func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.watches[w] = struct{}{}
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.watches, w)
	}
}

func (l *link) alive() bool {
	select {
	case <-l.down:
		return false
	default:
		return true
	}
}

// cut ends the connection immediately. No later call gets this link, even if the library has not
// noticed the end yet.
func (l *link) cut() {
	l.over.Do(func() { close(l.down) })
	_ = l.wire.Close()
}

// closeWait is the maximum time that a server may take to end a session.
const closeWait = 200 * time.Millisecond

// If the server answers, close ends the session. In any case, close waits for all goroutines.
func (l *link) close() {
	l.mu.Lock()
	l.closing = true
	l.mu.Unlock()
	closed := make(chan struct{})
	go func() {
		l.conn.Close()
		close(closed)
	}()
	limit := time.NewTimer(closeWait)
	defer limit.Stop()
	select {
	case <-l.done:
	case <-limit.C:
	}
	l.cut()
	<-l.done
	<-closed
	l.calls.Wait()
}

// The wait for a reply ends when ctx ends. The library does not support contexts, so an abandoned
// request ends only with its link.
func call[T any](ctx context.Context, l *link, do func(*zk.Conn) (T, error)) (T, error) {
	type reply struct {
		v   T
		err error
	}
	var none T
	if err := l.begin(ctx); err != nil {
		return none, err
	}
	began := time.Now()
	replies := make(chan reply, 1)
	go func() {
		defer l.end()
		v, err := do(l.conn)
		replies <- reply{v, err}
	}()
	select {
	case r := <-replies:
		l.refused(r.err)
		return r.v, r.err
	case <-ctx.Done():
		return none, l.giveUp(ctx, began)
	}
}

// refused ends a link that lacks permissions if a newer password may grant them.
func (l *link) refused(err error) {
	if errors.Is(err, zk.ErrNoAuth) && l.outdated != nil && l.outdated() {
		l.cut()
	}
}

// giveUp handles the end of a wait that began at the given time. If the server has been silent
// since then, it is suspended or unreachable. The next call then uses another server, so that calls
// do not pile up. If the server answers on other connections, it may only be slow, and a new
// connection would slow it further. The connection is considered lost once one or more consecutive
// calls have waited for lostPatience. During a takeover, each call waits for a shorter time.
func (l *link) giveUp(ctx context.Context, began time.Time) error {
	if !errors.Is(ctx.Err(), context.DeadlineExceeded) || !l.wire.own.silentSince(began) {
		return ctx.Err()
	}
	stands := time.Since(began) > minPatience && l.wire.server.silentSince(began)
	vain := l.inVainSince(began)
	lost := !stands && time.Since(vain) > lostPatience
	if lost {
		l.lost.Store(&vain)
	}
	if stands || lost {
		l.silent.Store(true)
		l.cut()
	}
	return ctx.Err()
}

// ask queries the server whenever it has been silent for askAfter, until ctx or the link ends.
func (l *link) ask(ctx context.Context) {
	for l.alive() {
		if quiet := l.wire.own.silence(); quiet < askAfter {
			wait := time.NewTimer(askAfter - quiet)
			select {
			case <-wait.C:
				continue
			case <-l.down:
			case <-ctx.Done():
			}
			wait.Stop()
			return
		}
		limit, cancel := context.WithTimeout(ctx, askLimit)
		_, err := call(limit, l, func(c *zk.Conn) (bool, error) {
			there, _, err := c.Exists("/")
			return there, err
		})
		cancel()
		if err != nil && ctx.Err() != nil {
			return
		}
	}
}

// inVainSince records a call that gave up, and returns the start of the first call that has given
// up since the last byte arrived.
func (l *link) inVainSince(began time.Time) time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.vain.IsZero() || began.Before(l.vain) || !l.wire.own.silentSince(l.vain) {
		l.vain = began
	}
	return l.vain
}

// begin admits a call. An error means that nothing was sent.
func (l *link) begin(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return notSent(err)
	}
	select {
	case l.slots <- struct{}{}:
	case <-ctx.Done():
		return notSent(ctx.Err())
	}
	if !l.admit() {
		<-l.slots
		return notSent(errEnded)
	}
	return nil
}

// admit makes close wait until calls.Done is called, and returns false if the link is already
// closing.
func (l *link) admit() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.closing {
		l.calls.Add(1)
	}
	return !l.closing
}

func (l *link) end() {
	<-l.slots
	l.calls.Done()
}

// If a connection was silent for longer than these limits, a call that gives up ends the
// connection. If the server is silent on all connections, minPatience applies, and otherwise
// lostPatience.
const (
	minPatience  = 50 * time.Millisecond
	lostPatience = time.Second
)
