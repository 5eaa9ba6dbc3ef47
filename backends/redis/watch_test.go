package redis

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/tenure-go/tenure/backends/kv"
	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/proof/ample"
	"github.com/tenure-go/tenure/internal/proof/servers"
	"github.com/tenure-go/tenure/internal/proof/sqlfault"
)

func put(t *testing.T, s *store, session driver.SessionID) kv.Rev {
	t.Helper()
	out, err := s.Apply(t.Context(), &kv.Batch{Txns: []kv.Txn{{
		Ops: []kv.Op{{Key: s.names.keys.Member(session), Value: []byte("x")}},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	return out.Rev
}

// TestGap: a watch that starts before trimmed messages reports the gap, whether or not there are
// later messages. A watch that starts after the trimmed messages continues.
func TestGap(t *testing.T) {
	t.Parallel()
	c := config(t, pool.Get(t, servers.Redis, nil))
	admin := newAdmin(t, c)
	s := openOn(t, c, Options{}).store
	first := put(t, s, "a")
	last := put(t, s, "b")
	watch := func(after kv.Rev) error {
		ctx := bounded(t, ample.Time)
		err := s.Watch(ctx, []string{s.names.keys.State()}, after, func(kv.Rev, []kv.Change) error { return errFound })
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return err
	}
	if err := watch(first); !errors.Is(err, errFound) {
		t.Errorf("with nothing trimmed: %v", err)
	}
	if err := admin.XTrimMaxLen(t.Context(), s.names.key("state"), 0).Err(); err != nil {
		t.Fatal(err)
	}
	if err := watch(first); !errors.Is(err, kv.ErrCompacted) {
		t.Errorf("with all messages trimmed: %v; want ErrCompacted", err)
	}
	put(t, s, "c")
	if err := watch(first); !errors.Is(err, kv.ErrCompacted) {
		t.Errorf("with a message after those that were trimmed: %v; want ErrCompacted", err)
	}
	if err := watch(last); !errors.Is(err, errFound) {
		t.Errorf("from behind those that were trimmed: %v", err)
	}
}

var errFound = errors.New("found")

// TestOtherHistory: a watch that got one message refuses a message that follows an earlier one. A
// server with a different history would send such messages.
func TestOtherHistory(t *testing.T) {
	t.Parallel()
	c := config(t, pool.Get(t, servers.Redis, nil))
	admin := newAdmin(t, c)
	s := openOn(t, c, Options{}).store
	first := put(t, s, "a")
	last := put(t, s, "b")
	err := s.Watch(bounded(t, ample.Time), []string{s.names.keys.State()}, first, func(kv.Rev, []kv.Change) error {
		return admin.XAdd(t.Context(), &goredis.XAddArgs{Stream: s.names.key("state"), ID: fmt.Sprintf("%d-0", last+10),
			Values: []any{"p", int64(first), "c", "k" + s.names.record(s.names.keys.Member("c"))}}).Err()
	})
	if !errors.Is(err, kv.ErrCompacted) {
		t.Errorf("%v; want ErrCompacted", err)
	}
}

// writes records the bytes that a client's connections send.
type writes struct {
	mu  sync.Mutex
	all bytes.Buffer
}

func (w *writes) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	return notedConn{conn, w}, nil
}

func (w *writes) contain(text string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return bytes.Contains(w.all.Bytes(), []byte(text))
}

type notedConn struct {
	net.Conn
	w *writes
}

func (c notedConn) Write(p []byte) (int, error) {
	c.w.mu.Lock()
	c.w.all.Write(p)
	c.w.mu.Unlock()
	return c.Conn.Write(p)
}

// TestWentBack: a watch of an idle namespace notices that the namespace's revision went back. It
// waits for messages for the patience of the shortest joined TTL, and then queries the server.
func TestWentBack(t *testing.T) {
	t.Parallel()
	c := config(t, pool.Get(t, servers.Redis, nil))
	admin := newAdmin(t, c)
	var sent writes
	c.Dialer = sent.dial
	b := openOn(t, c, Options{})
	for i, ttl := range []time.Duration{time.Minute, time.Second} {
		if _, err := b.Join(t.Context(), driver.Member{
			Session: driver.SessionID(fmt.Sprint("s", i)), Node: fmt.Sprint("n", i), TTL: ttl,
		}); err != nil {
			t.Fatal(err)
		}
	}
	s := b.store
	first := put(t, s, "a")
	last := put(t, s, "b")
	err := s.Watch(bounded(t, ample.Time), []string{s.names.keys.State()}, first, func(rev kv.Rev, _ []kv.Change) error {
		if rev < last {
			return nil
		}
		return admin.HSet(t.Context(), s.names.key("records"), "rev", int64(first), "state", int64(first)).Err()
	})
	if !errors.Is(err, kv.ErrCompacted) {
		t.Errorf("%v; want ErrCompacted", err)
	}
	// This process sent all its waits for messages after both members had joined.
	waits := func(d time.Duration) bool {
		return sent.contain(fmt.Sprintf("\r\nblock\r\n$4\r\n%d\r\n", d.Milliseconds()))
	}
	if !waits(minWait) || waits(maxWait) {
		t.Errorf("the watch waits for %v: %v, for %v: %v; want only the former", minWait, waits(minWait), maxWait, waits(maxWait))
	}
}

// TestOneMessageForAHeartbeat: a watch needs one command for a heartbeat.
func TestOneMessageForAHeartbeat(t *testing.T) {
	t.Parallel()
	c := config(t, servers.New(t, servers.Redis, nil))
	admin := newAdmin(t, c)
	b := openOn(t, c, Options{})
	session := sqlfault.Join(t, b, "n1")
	s := b.store
	const beats = 10
	var before map[string]int64
	seen := make(chan struct{})
	ended := make(chan error, 1)
	go func() {
		n := 0
		ended <- s.Watch(bounded(t, ample.Time), []string{s.names.keys.Beat(session.ID())}, 0,
			func(kv.Rev, []kv.Change) error {
				if n++; n > beats+1 { // the first is from the join
					return errFound
				}
				seen <- struct{}{}
				return nil
			})
	}()
	for i := range beats + 1 {
		<-seen
		if i == 0 {
			before = calls(t, admin)
		}
		if err := session.Beat(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if err := <-ended; !errors.Is(err, errFound) {
		t.Fatal(err)
	}
	after := calls(t, admin)
	// A heartbeat's script runs one HMGET.
	scripts := after["evalsha"] - before["evalsha"]
	reads, checks := after["xread"]-before["xread"], after["hmget"]-before["hmget"]-scripts
	if scripts != beats+1 || reads > beats+1 || checks != 0 {
		t.Errorf("%d heartbeats, and to see them %d XREAD and %d HMGET; want %d, %d at most and none", scripts, reads, checks,
			beats+1, beats+1)
	}
}

// calls counts the commands that a server ran, including commands in scripts.
func calls(t *testing.T, admin goredis.UniversalClient) map[string]int64 {
	t.Helper()
	text, err := admin.Info(t.Context(), "commandstats").Result()
	if err != nil {
		t.Fatal(err)
	}
	n := make(map[string]int64)
	for line := range strings.Lines(text) {
		name, rest, ok := strings.Cut(strings.TrimPrefix(line, "cmdstat_"), ":calls=")
		if !ok {
			continue
		}
		count, _, _ := strings.Cut(rest, ",")
		if n[name], err = strconv.ParseInt(count, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	return n
}

// TestLargeRevisions: numbers in the scripts are exact up to 2^53.
func TestLargeRevisions(t *testing.T) {
	t.Parallel()
	c := config(t, pool.Get(t, servers.Redis, nil))
	b := openOn(t, c, Options{})
	const rev = 1<<52 + 1
	if err := newAdmin(t, c).HSet(t.Context(), b.store.names.key("records"), "rev", rev).Err(); err != nil {
		t.Fatal(err)
	}
	s := sqlfault.Join(t, b, "n1")
	view, err := b.Observe(t.Context(), driver.ObserveQuery{})
	if err != nil {
		t.Fatal(err)
	}
	granted, _ := sqlfault.Acquire(t, s, sqlfault.Claims(1))
	if token := granted[0].Fence.Token; token != rev+2 {
		t.Errorf("token %d; want %d", token, rev+2)
	}
	next, err := b.Observe(bounded(t, ample.Time), driver.ObserveQuery{Since: view.Cursor})
	if err != nil || len(next.Shards) != 1 || next.Shards[0].Owner.Token != granted[0].Fence.Token {
		t.Errorf("the view after a grant: %+v, %v", next, err)
	}
}
