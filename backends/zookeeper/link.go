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

// link is one connection to one server, and one session. The client library would connect again,
// send requests that were queued before, and replace an expired session. A link lets it dial only
// once. So a link that is down has ended, and every request in flight on it has an unknown outcome.
type link struct {
	server string // as in the options
	began  time.Time
	conn   *zk.Conn
	wire   *observedConn
	// alone reports whether the server is outside an ensemble. It ends all connections when it
	// joins one.
	alone bool
	// outdated, if not nil, reports whether there is a newer password than the link has used.
	outdated func() bool
	// silent reports whether a call gave up while nothing came from the server.
	silent atomic.Bool
	// lost is the time since which calls have waited in vain. It is set once the connection
	// counts as lost.
	lost atomic.Pointer[time.Time]

	up   chan struct{} // closed once there is a session
	down chan struct{} // closed when the connection has ended
	done chan struct{} // closed when the library's goroutines have ended

	ready, over sync.Once
	slots       chan struct{}  // one for each pending call, whether or not its caller still waits
	calls       sync.WaitGroup // the same

	mu      sync.Mutex
	closing bool     // no call may begin
	sent    *barrier // the pending one, or the last one
	next    *barrier // sent after the answer to sent
	watches map[*watches]struct{}
	vain    time.Time // beginning of the first call that gave up since the last byte came
}

// maxCalls is the number of calls in flight on a link.
const maxCalls = 64

// callTimeout is the time-out of links' sessions. The library sends a ping in each third of it,
// and gives up a server that answers none for two thirds. A busy server also answers pings
// late. Tenure uses sessions for nothing else. A link whose calls wait in vain is given up
// earlier.
const callTimeout = 30 * time.Second

// A link for reads and watches may have no calls while it waits for changes. Such a link asks a
// server that was silent for askAfter, and gives it up if nothing comes within askLimit. At a
// TTL of 10 s or less, a watched heartbeat comes sooner, and suffices.
const (
	askAfter = 3500 * time.Millisecond
	askLimit = 3 * time.Second
)

// maxReply limits the bytes of one reply, for example the names in a directory.
const maxReply = 64 << 20

// onlyOnce gives the library one server, and then none.
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

// silent is the library's logger. It writes nothing, because errors are returned.
type silent struct{}

func (silent) Printf(string, ...any) {}

var (
	errEnded          = errors.New("the connection has ended")
	errRefusedSession = errors.New("the server ended the connection while the session began: it may have too many from this host " +
		"(maxClientCnxns, a process needs 4), or no leader")
)

// newLink begins a session on a connection, which it owns.
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

// event is called by the library's goroutines and must not block.
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

// watch calls w.fire for every node whose watch fires, until the returned function is called.
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

// cut ends the connection immediately. No later call gets this link, although the library has not
// noticed yet.
func (l *link) cut() {
	l.over.Do(func() { close(l.down) })
	_ = l.wire.Close()
}

// closeWait is how long a server may take to end a session.
const closeWait = 200 * time.Millisecond

// close ends the session, if the server answers, and joins everything.
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

// call makes a request and waits for its reply until ctx ends. The library has no contexts, so an
// abandoned request ends only with its link.
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

// refused ends a link that lacks rights if a newer password may have them.
func (l *link) refused(err error) {
	if errors.Is(err, zk.ErrNoAuth) && l.outdated != nil && l.outdated() {
		l.cut()
	}
}

// giveUp ends a wait that began at a moment. If the server has been silent since, it is
// suspended or unreachable. The next call asks another server, and no calls pile up. A server
// that answers on other connections is slow, and a new connection would slow it further. But
// this connection may be lost. It counts as lost if a call, or several in succession, waited
// for lostPatience. Calls during a takeover wait less.
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

// ask asks the server whenever it was silent for askAfter, until ctx or the link ends.
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

// inVainSince notes a call that gave up. It returns the beginning of the first call that gave up
// since the last byte came.
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

// admit makes close wait for one more goroutine, until calls.Done.
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

// How long a connection may be silent before a call that gives up ends it. The first applies if
// its server is silent on all connections, the second if it answers on others.
const (
	minPatience  = 50 * time.Millisecond
	lostPatience = time.Second
)
