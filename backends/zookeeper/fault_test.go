package zookeeper

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tenure-go/tenure/backends/kv"
	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/changelog"
	"github.com/tenure-go/tenure/internal/proof/ample"
	"github.com/tenure-go/tenure/internal/proof/faultproxy"
	"github.com/tenure-go/tenure/internal/proof/servers"
	"github.com/tenure-go/tenure/internal/proof/sqlfault"
)

// try repeats a call until it succeeds, as core does with heartbeats. Each attempt has its own time
// limit. try returns the errors of the failed attempts.
func try(t testing.TB, what string, each time.Duration, do func(ctx context.Context) error) []error {
	t.Helper()
	all := bounded(t, ample.Time)
	var errs []error
	for {
		ctx, cancel := context.WithTimeout(all, each)
		err := do(ctx)
		cancel()
		if err == nil {
			return errs
		}
		if errs = append(errs, err); all.Err() != nil {
			t.Fatalf("%s: %v", what, err)
		}
	}
}

// entries returns the entries of a shard's log as one string.
func entries(t *testing.T, b *Backend, shard driver.ShardID) string {
	t.Helper()
	page, err := b.ReadLog(bounded(t, ample.Time), shard, 0, 1000)
	if err != nil {
		t.Fatal(err)
	}
	var s strings.Builder
	for _, e := range page.Entries {
		s.Write(e.Payload)
	}
	return s.String()
}

func appendOf(f driver.Fence, n driver.WriteNo, text string) []driver.Write {
	return []driver.Write{{Fence: f, Number: n, Nonce: driver.Nonce(n),
		Ops: []driver.Op{{Kind: driver.OpAppend, Value: []byte(text)}}}}
}

func commit(ctx context.Context, s driver.Session, f driver.Fence, n driver.WriteNo, text string) error {
	res, err := s.Commit(ctx, appendOf(f, n, text))
	if err == nil {
		err = res[0].Err
	}
	return err
}

// TestSessionExpired cuts off a process until the server has expired its sessions. Nothing
// important depends on these sessions.
func TestSessionExpired(t *testing.T) {
	t.Parallel()
	server := servers.New(t, servers.ZooKeeper,
		&servers.Options{Config: []string{"tickTime = 100", "maxSessionTimeout = 1000"}})
	proxy, err := faultproxy.New(server.Addr(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { proxy.Close() })
	b, err := Open(t.Context(), []string{proxy.Addr()}, t.Name(), &Options{Create: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	s := sqlfault.Join(t, b, "n1")
	granted, _ := sqlfault.Acquire(t, s, sqlfault.Claims(1))
	if n := sessions(t, server); n == 0 {
		t.Fatal("no session")
	}
	if err := proxy.Set(faultproxy.BlackHole()); err != nil {
		t.Fatal(err)
	}
	ample.Wait(t, "the sessions do not expire", func() bool { return sessions(t, server) == 0 })
	if err := proxy.Set(faultproxy.Faults{}); err != nil {
		t.Fatal(err)
	}
	try(t, "a heartbeat", 5*time.Second, s.Beat)
	if err := commit(t.Context(), s, granted[0].Fence, 1, "a"); err != nil && !errors.Is(err, driver.ErrRetry) {
		t.Error(err)
	}
}

// sessions returns the number of sessions at a server.
func sessions(t *testing.T, s *servers.Server) (n int) {
	t.Helper()
	var text string
	ample.Wait(t, "the server does not list its connections", func() bool {
		text = ask(t, s, "cons") // includes this connection
		return text != ""
	})
	for line := range strings.Lines(text) {
		if strings.Contains(line, "sid=") {
			n++
		}
	}
	return n
}

// TestConnectionsLost ends every connection of the client. Sessions are replaced, watches are set
// again, and nothing important is lost.
func TestConnectionsLost(t *testing.T) {
	t.Parallel()
	server := pool.Get(t, servers.ZooKeeper, nil)
	var mu sync.Mutex
	var conns []net.Conn
	b := openOn(t, Options{dial: func(ctx context.Context, addr string) (net.Conn, error) {
		var d net.Dialer
		conn, err := d.DialContext(ctx, "tcp", addr)
		if err != nil {
			return nil, err
		}
		mu.Lock()
		defer mu.Unlock()
		conns = append(conns, conn)
		return conn, nil
	}}, server)
	s := sqlfault.Join(t, b, "n1")
	granted, _ := sqlfault.Acquire(t, s, sqlfault.Claims(1))
	fence := granted[0].Fence
	view, err := b.Observe(t.Context(), driver.ObserveQuery{})
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		sessions := []int64{}
		for _, l := range []*connector{b.store.beats[b.store.routes.Current()], b.store.writes, b.store.reads} {
			lk, err := l.link(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			sessions = append(sessions, lk.conn.SessionID())
		}
		mu.Lock()
		for _, c := range conns {
			c.Close()
		}
		conns = nil
		mu.Unlock()
		try(t, "a heartbeat", 5*time.Second, s.Beat)
		lk, err := b.store.beats[b.store.routes.Current()].link(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if id := lk.conn.SessionID(); id == sessions[0] {
			t.Error("the session is the same")
		}
	}
	if err := commit(t.Context(), s, fence, 1, "a"); err != nil && !driver.Unknown(err) {
		t.Error(err)
	}
	// The watch also works again.
	other := sqlfault.Join(t, openOn(t, Options{}, server), "n2")
	try(t, "the watch", 5*time.Second, func(ctx context.Context) error {
		v, err := b.Observe(ctx, driver.ObserveQuery{Since: view.Cursor})
		if err == nil {
			for _, m := range v.Members {
				if m.Session == other.ID() {
					return nil
				}
			}
			err = errors.New("the new member is not seen")
			view = v
		}
		return err
	})
}

// TestLeaderLost repeatedly kills the leader of three servers. Members stay, and their writes are
// applied once and in order.
func TestLeaderLost(t *testing.T) {
	t.Parallel()
	cluster := servers.NewCluster(t, servers.ZooKeeper, 3, nil)
	members := cluster.Members()
	b := openOn(t, Options{}, members...)
	s := sqlfault.Join(t, b, "n1")
	granted, _ := sqlfault.Acquire(t, s, sqlfault.Claims(1))
	fence := granted[0].Fence
	number := driver.WriteNo(0)
	want := ""
	next := func() {
		number++
		text := fmt.Sprint(number, " ")
		want += text
		try(t, "a commit", 5*time.Second, func(ctx context.Context) error {
			err := commit(ctx, s, fence, number, text)
			var conflict *driver.ConflictError
			if errors.As(err, &conflict) && conflict.Head.Number == number &&
				conflict.Head.Nonce == driver.Nonce(number) {
				return nil // the write with an unknown outcome was applied
			}
			return err
		})
	}
	next()
	for range 2 {
		leader := leaderOf(t, members)
		if err := leader.Kill(t.Context()); err != nil {
			t.Fatal(err)
		}
		next()
		try(t, "a heartbeat", 5*time.Second, s.Beat)
		if err := leader.Restart(bounded(t, ample.Time)); err != nil {
			t.Fatal(err)
		}
		next()
	}
	if got := entries(t, b, fence.Shard); got != want {
		t.Errorf("the log is %q, want %q", got, want)
	}
}

// leaderOf asks each member for its role.
func leaderOf(t *testing.T, members []*servers.Server) *servers.Server {
	t.Helper()
	var leader *servers.Server
	ample.Wait(t, "no member leads", func() bool {
		i := slices.IndexFunc(members, func(s *servers.Server) bool {
			return strings.Contains(ask(t, s, "srvr"), "Mode: leader")
		})
		if i >= 0 {
			leader = members[i]
		}
		return i >= 0
	})
	return leader
}

// ask sends one of the server's four-letter commands. Without an answer, it returns "".
func ask(t *testing.T, s *servers.Server, command string) string {
	t.Helper()
	conn, err := net.DialTimeout("tcp", s.Addr(), time.Second)
	if err != nil {
		return ""
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(time.Second)); err != nil {
		return ""
	}
	_, _ = io.WriteString(conn, command)
	text, _ := io.ReadAll(conn)
	return string(text)
}

// TestStoppedMember stalls the server that a process uses, during calls without a deadline. While
// one heartbeat is unanswered, a second heartbeat succeeds at another server and ends those calls.
// All later calls go to the other server.
func TestStoppedMember(t *testing.T) {
	t.Parallel()
	members := servers.NewCluster(t, servers.ZooKeeper, 3, patient).Members()
	leader := leaderOf(t, members)
	stopped := slices.IndexFunc(members, func(s *servers.Server) bool { return s != leader })
	b := usingServer(t, members, stopped)
	s := sqlfault.Join(t, b, "n1")
	granted, _ := sqlfault.Acquire(t, s, sqlfault.Claims(1))
	try(t, "a heartbeat", 10*time.Second, s.Beat)
	var view *driver.View
	try(t, "a view", 10*time.Second, func(ctx context.Context) (err error) {
		view, err = b.Observe(ctx, driver.ObserveQuery{})
		return err
	})
	if err := members[stopped].Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := members[stopped].Cont(); err != nil {
			t.Error(err)
		}
	}()
	long := bounded(t, ample.Time)
	ended := make(chan error, 4)
	go func() { ended <- s.Beat(long) }()
	go func() { ended <- commit(long, s, granted[0].Fence, 1, "a") }()
	go func() {
		_, err := b.ReadLog(long, granted[0].Fence.Shard, 0, 10)
		ended <- err
	}()
	// Core sends another heartbeat after each part of the TTL. If answers are slow, only a longer
	// silence means anything.
	ample.Wait(t, "the process still uses the server that is stopped", func() bool {
		time.Sleep(200 * time.Millisecond)
		if err := s.Beat(bounded(t, ample.Time)); err != nil {
			t.Errorf("a heartbeat beside the one without an answer: %v", err)
		}
		return b.store.routes.Current() != stopped
	})
	// The first heartbeat may wait, but the commit and the read may not.
	for range 2 {
		select {
		case err := <-ended:
			if err == nil || long.Err() != nil {
				t.Errorf("a call to the server that is stopped: %v", err)
			}
		case <-time.After(ample.Time):
			t.Fatal("calls wait for a server that is known to be silent")
		}
	}
	other := sqlfault.Join(t, openOn(t, Options{}, leader), "n2")
	for _, call := range []func(ctx context.Context) error{
		func(ctx context.Context) error {
			err := commit(ctx, s, granted[0].Fence, 1, "a")
			if errors.Is(err, driver.ErrConflict) { // the previous commit was applied
				return nil
			}
			return err
		},
		func(ctx context.Context) error {
			_, err := b.ReadLog(ctx, granted[0].Fence.Shard, 0, 10)
			return err
		},
		func(ctx context.Context) error { // the watch is there too
			v, err := b.Observe(ctx, driver.ObserveQuery{Since: view.Cursor})
			if err == nil && !slices.ContainsFunc(v.Members,
				func(m driver.Member) bool { return m.Session == other.ID() }) {
				err = errors.New("the new member is not seen")
			}
			return err
		},
	} {
		if errs := try(t, "a call", ample.Time, call); len(errs) > 1 {
			t.Errorf("it took %d calls: %v", len(errs)+1, errs)
		}
	}
}

// TestSlowServer: while the server answers on another connection, a read that gives up does not end
// its connection, so other calls on that connection continue.
func TestSlowServer(t *testing.T) {
	t.Parallel()
	server := pool.Get(t, servers.ZooKeeper, nil)
	proxy, err := faultproxy.New(server.Addr(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { proxy.Close() })
	b, err := Open(t.Context(), []string{proxy.Addr()}, t.Name(), &Options{Create: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	s := sqlfault.Join(t, b, "n1")
	lk, err := b.store.reads.link(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	conns := proxy.Conns()
	at := slices.IndexFunc(conns, func(c *faultproxy.Conn) bool {
		return c.Client().String() == lk.wire.LocalAddr().String()
	})
	if err := conns[at].Set(faultproxy.Faults{Replies: faultproxy.Flow{Hold: true}}); err != nil {
		t.Fatal(err)
	}
	patient := make(chan error, 1)
	go func() {
		_, err := b.ReadLog(bounded(t, ample.Time), "s", 0, 0)
		patient <- err
	}()
	hasty, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	done := make(chan error, 1)
	go func() {
		_, err := b.ReadLog(hasty, "s", 0, 0)
		done <- err
	}()
	for hasty.Err() == nil {
		if err := s.Beat(bounded(t, ample.Time)); err != nil {
			t.Fatal(err)
		}
	}
	if err := <-done; !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a read that is not answered in its time: %v", err)
	}
	if err := conns[at].Set(faultproxy.Faults{}); err != nil {
		t.Fatal(err)
	}
	if err := <-patient; err != nil {
		t.Errorf("a read that is answered late, but in its time: %v", err)
	}
}

// usingServer opens a new namespace on an ensemble, and first uses the given server.
func usingServer(t testing.TB, members []*servers.Server, first int) (b *Backend) {
	t.Helper()
	for {
		// A server that has just started may leave a request without an answer. Usually, the client's
		// pings end the wait, but patient's sessions are too long for them.
		try(t, "opening", 10*time.Second, func(ctx context.Context) (err error) {
			b, err = Open(ctx, addrs(members), t.Name(), &Options{Create: true})
			return err
		})
		if lk, err := b.store.writes.link(t.Context()); err == nil && lk.server == members[first].Addr() &&
			b.store.routes.Current() == first {
			t.Cleanup(func() { b.Close() })
			return b
		}
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestQuorumLost: without a majority, nothing is applied and no session is lost. With a majority
// again, the same session continues.
func TestQuorumLost(t *testing.T) {
	t.Parallel()
	cluster := servers.NewCluster(t, servers.ZooKeeper, 3, &servers.Options{Config: []string{"tickTime = 200"}})
	members := cluster.Members()
	b := openOn(t, Options{}, members...)
	s := sqlfault.Join(t, b, "n1")
	granted, _ := sqlfault.Acquire(t, s, sqlfault.Claims(1))
	for _, m := range members[:2] {
		if err := m.Kill(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	beat := func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		err := s.Beat(ctx)
		if errors.Is(err, driver.ErrSessionLost) || errors.Is(err, driver.ErrStoreChanged) {
			t.Error(err)
		}
		return err
	}
	ample.Wait(t, "heartbeats are still applied", func() bool { return beat() != nil })
	for range ample.During(10*b.Info().Limits.MinTTL, 0) {
		if beat() == nil {
			t.Error("a heartbeat was applied without a majority")
		}
	}
	if err := cluster.Restart(bounded(t, ample.Time)); err != nil {
		t.Fatal(err)
	}
	try(t, "a heartbeat", 5*time.Second, s.Beat)
	try(t, "a commit", 5*time.Second, func(ctx context.Context) error {
		if err := commit(ctx, s, granted[0].Fence, 1, "a"); !errors.Is(err, driver.ErrConflict) {
			return err
		}
		return nil
	})
	if got := entries(t, b, granted[0].Fence.Shard); got != "a" {
		t.Errorf("the log is %q", got)
	}
}

// TestMadeAgain deletes records by hand and lets them be recreated, until they have the versions
// that a former owner remembers. No fence passes.
func TestMadeAgain(t *testing.T) {
	t.Parallel()
	server := pool.Get(t, servers.ZooKeeper, nil)
	admin := client(t, server)
	b := openOn(t, Options{}, server)
	former := sqlfault.Join(t, b, "n1")
	granted, _ := sqlfault.Acquire(t, former, sqlfault.Claims(2))
	fence := granted[0].Fence
	node := defaultRoot + "/" + t.Name() + "/!state/shard/" + string(fence.Shard)
	if err := admin.Delete(node, -1); err != nil {
		t.Fatal(err)
	}
	successor := sqlfault.Join(t, openOn(t, Options{}, server), "n2")
	res, err := successor.Acquire(t.Context(), sqlfault.Claims(1))
	if err == nil {
		err = res[0].Err
	}
	if !errors.Is(err, driver.ErrStoreChanged) {
		t.Errorf("a claim on a record that was deleted: %v", err)
	}
	if err := commit(t.Context(), former, fence, 1, "a"); !errors.Is(err, driver.ErrFenced) {
		t.Errorf("a commit under a record that was deleted: %v", err)
	}

	// The whole namespace is created again, with the same versions everywhere.
	s := &suiteStore{admin: admin}
	all, err := s.copyBelow(defaultRoot + "/" + t.Name())
	if err != nil {
		t.Fatal(err)
	}
	versions := make(map[string]int32)
	for _, c := range all {
		_, stat, err := admin.Exists(c.node)
		if err != nil {
			t.Fatal(err)
		}
		versions[c.node] = stat.Version
	}
	if err := s.removeBelow(defaultRoot + "/" + t.Name()); err != nil {
		t.Fatal(err)
	}
	for i, c := range all {
		if strings.Contains(c.node, "/!id"+separator) {
			all = append(all[:i], all[i+1:]...)
			break
		}
	}
	if err := s.makeAgain(all); err != nil {
		t.Fatal(err)
	}
	for _, c := range all {
		for range versions[c.node] {
			if _, err := admin.Set(c.node, c.value, -1); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := commit(t.Context(), former, granted[1].Fence, 1, "b"); !errors.Is(err, driver.ErrStoreChanged) {
		t.Errorf("a commit to a namespace that was made again: %v", err)
	}
	if err := former.Beat(t.Context()); !errors.Is(err, driver.ErrStoreChanged) {
		t.Errorf("a heartbeat to a namespace that was made again: %v", err)
	}
}

// TestVersionsDoNotPass: another process deletes an item and recreates it with the same version.
// The new item still counts as a different item.
func TestVersionsDoNotPass(t *testing.T) {
	t.Parallel()
	server := pool.Get(t, servers.ZooKeeper, nil)
	mine, other := openOn(t, Options{}, server).store, openOn(t, Options{}, server).store
	key := t.Name() + "/!item/eu/k"
	apply := func(s *store, rev kv.Rev, op kv.Op) kv.Result {
		op.Key = key
		out, err := s.Apply(t.Context(), &changelog.Batch{Batch: kv.Batch{Txns: []kv.Txn{{If: []kv.Compare{{Key: key, Rev: rev}}, Ops: []kv.Op{op}}}}})
		if err != nil || out.Results[0].Err != nil {
			t.Fatal(out, err)
		}
		return out.Results[0]
	}
	put := kv.Op{Value: []byte("1")}
	first := apply(mine, kv.Absent, put)
	apply(other, kv.Exists, kv.Op{Delete: true})
	second := apply(other, kv.Absent, put)
	if r := apply(mine, first.Rev, put); r.OK {
		t.Error("a write that expects the first record was applied to the second")
	}
	if r := apply(mine, second.Rev, put); !r.OK {
		t.Error("a write that expects the second record was refused")
	}
}

// TestPacketLimit fills transactions up to Limits, with long names. The server accepts these
// transactions. Larger transactions are refused before they are sent.
func TestPacketLimit(t *testing.T) {
	t.Parallel()
	server := servers.New(t, servers.ZooKeeper, nil) // a separate one, because the namespace is the longest, with no room for a random part
	long := strings.Repeat("n", driver.MaxNameLen)
	namespace := t.Name() + strings.Repeat("/"+long, driver.MaxNamespaceParts-1)
	b, err := Open(t.Context(), addrs([]*servers.Server{server}), namespace, &Options{Create: true})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	s := sqlfault.Join(t, b, "n1")
	many := sqlfault.Claims(700)
	for i := range many {
		many[i].Shard = driver.ShardID(fmt.Sprintf("%s%03d", long[:120], i))
	}
	granted, next := sqlfault.Acquire(t, s, many)
	limits := b.Info().Limits
	full := driver.Op{Kind: driver.OpAppend, Value: make([]byte, limits.WriteBytes)}
	one := []driver.Write{{Fence: granted[0].Fence, Number: 1, Nonce: 1, Ops: []driver.Op{full}}}
	if res, err := s.Commit(t.Context(), one); err != nil || res[0].Err != nil {
		t.Error(res, err)
	}
	if err := s.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	sqlfault.Acquire(t, sqlfault.Join(t, b, "n2"), next)
	if n := fit(make([]kv.Txn, 10), 10); n != 10 {
		t.Errorf("%d of 10 empty transactions fit", n)
	}
}

// TestLaggingFollower reads through a member that lags behind, immediately after others have
// written through another member.
func TestLaggingFollower(t *testing.T) {
	t.Parallel()
	cluster := servers.NewCluster(t, servers.ZooKeeper, 3, nil)
	members := cluster.Members()
	writer := openOn(t, Options{}, members[0])
	s := sqlfault.Join(t, writer, "n1")
	granted, _ := sqlfault.Acquire(t, s, sqlfault.Claims(1))
	readers := []*Backend{openOn(t, Options{}, members[0]), openOn(t, Options{}, members[1]),
		openOn(t, Options{}, members[2])}
	for n := driver.WriteNo(1); n <= 50; n++ {
		if err := commit(t.Context(), s, granted[0].Fence, n, "x"); err != nil {
			t.Fatal(err)
		}
		for i, r := range readers {
			page, err := r.ReadLog(t.Context(), granted[0].Fence.Shard, 0, 0)
			if err != nil || page.Head.Number != n {
				t.Fatalf("reader %d: head %d after commit %d, %v", i, page.Head.Number, n, err)
			}
		}
	}
}
