package zookeeper

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/proof/servers"
	"github.com/tenure-go/tenure/internal/proof/sqlfault"
)

// warmUps is the number of calls of BenchmarkAcquire10000 that do not count. The virtual machine of
// a server that has just started still interprets its code. The first call is reported separately,
// as cold-ms.
const warmUps = 3

// BenchmarkAcquire10000 claims 10,000 shards in one call. First claims are always in a new
// namespace. Other claims are from a member that is gone, as the backend knows from its view.
//
// The nodes of each new namespace are removed afterwards. A test server has a heap of 256 MiB. With
// 20,000 more nodes each time, the server would spend most of its time collecting garbage.
func BenchmarkAcquire10000(b *testing.B) {
	b.Run("first", func(b *testing.B) {
		server := servers.New(b, servers.ZooKeeper, nil)
		admin := client(b, server)
		once := func() time.Duration {
			b.StopTimer()
			be := fresh(b, server, "first")
			s := sqlfault.Join(b, be, "n")
			b.StartTimer()
			start := time.Now()
			sqlfault.Acquire(b, s, sqlfault.Claims(10_000))
			took := time.Since(start)
			b.StopTimer()
			name := be.Info().Namespace
			if err := be.Close(); err != nil {
				b.Fatal(err)
			}
			for _, dir := range []string{"!state/shard", "!log"} {
				empty(b, admin, defaultRoot+"/"+name+"/"+dir)
			}
			b.StartTimer()
			return took
		}
		cold := once()
		timed(b, warmUps-1, once)
		b.ReportMetric(float64(cold.Microseconds())/1000, "cold-ms")
	})
	b.Run("takeover", func(b *testing.B) {
		server := servers.New(b, servers.ZooKeeper, nil)
		be := fresh(b, server, "takeover")
		s := sqlfault.Join(b, be, "n0")
		_, next := sqlfault.Acquire(b, s, sqlfault.Claims(10_000))
		n := 0
		once := func() time.Duration {
			b.StopTimer()
			n++
			successor := sqlfault.Join(b, be, fmt.Sprint("n", n))
			if err := s.Close(b.Context()); err != nil {
				b.Fatal(err)
			}
			if _, err := be.Observe(b.Context(), driver.ObserveQuery{}); err != nil {
				b.Fatal(err)
			}
			b.StartTimer()
			start := time.Now()
			_, next = sqlfault.Acquire(b, successor, next)
			s = successor
			return time.Since(start)
		}
		timed(b, warmUps, once)
	})
}

// timed measures one call, after some calls that do not count.
func timed(b *testing.B, warm int, once func() time.Duration) {
	b.Helper()
	for range warm {
		once()
	}
	var took []time.Duration
	for b.Loop() {
		took = append(took, once())
	}
	sampled(b, took)
}

func empty(b *testing.B, conn *zk.Conn, dir string) {
	b.Helper()
	names, _, err := conn.Children(dir)
	if err != nil {
		b.Fatal(err)
	}
	for some := range slices.Chunk(names, 1000) {
		var ops []any
		for _, name := range some {
			ops = append(ops, &zk.DeleteRequest{Path: dir + "/" + name, Version: anyVersion})
		}
		if _, err := conn.Multi(ops...); err != nil {
			b.Fatal(err)
		}
	}
}

func fresh(b *testing.B, server *servers.Server, name string) *Backend {
	b.Helper()
	be, err := Open(b.Context(), []string{server.Addr()}, fmt.Sprint("bench/", name, time.Now().UnixNano()),
		&Options{Create: true})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { be.Close() })
	return be
}

const (
	// warmHandOvers is the number of hand-overs of each kind that are not counted (see warmUps).
	warmHandOvers = 1000
	// handOverRest is the pause between two hand-overs. It keeps other processes' reads after one
	// hand-over from slowing the next.
	handOverRest = 3 * time.Millisecond
)

func BenchmarkAppend(b *testing.B) {
	server := pool.Get(b, servers.ZooKeeper, nil)
	sqlfault.BenchmarkAppend(b, func(b *testing.B) driver.Backend { return fresh(b, server, "append") })
}

// BenchmarkHandOver measures the time from the start of a transfer to the end of the successor's
// first fenced write, on another connection. With zk.Lock, it measures from the unlock to the end
// of the successor's first write.
func BenchmarkHandOver(b *testing.B) {
	server := pool.Get(b, servers.ZooKeeper, nil)
	b.Run("tenure", func(b *testing.B) {
		name := fmt.Sprint("bench/handover", time.Now().UnixNano())
		type side struct {
			b      *Backend
			s      driver.Session
			cursor driver.Cursor
		}
		var sides [2]side
		for i := range sides {
			be, err := Open(b.Context(), []string{server.Addr()}, name, &Options{Create: true})
			if err != nil {
				b.Fatal(err)
			}
			b.Cleanup(func() { be.Close() })
			sides[i] = side{b: be, s: sqlfault.Join(b, be, fmt.Sprint("n", i))}
		}
		granted, _ := sqlfault.Acquire(b, sides[0].s, sqlfault.Claims(1))
		fence := granted[0].Fence
		learns := func(s *side) driver.Owner {
			for {
				view, err := s.b.Observe(b.Context(), driver.ObserveQuery{Since: s.cursor})
				if err != nil {
					b.Error(err)
					return driver.Owner{}
				}
				s.cursor = view.Cursor
				for _, sh := range view.Shards {
					if sh.Owner.Session == s.s.ID() {
						return sh.Owner
					}
				}
			}
		}
		learns(&sides[0])
		view, err := sides[1].b.Observe(b.Context(), driver.ObserveQuery{})
		if err != nil {
			b.Fatal(err)
		}
		sides[1].cursor = view.Cursor
		number := driver.WriteNo(0)
		once := func() time.Duration {
			b.StopTimer()
			time.Sleep(handOverRest)
			from, to := &sides[number%2], &sides[1-number%2]
			number++
			b.StartTimer()
			written := make(chan time.Time, 1)
			go func() {
				owner := learns(to)
				f := driver.Fence{Shard: fence.Shard, Session: owner.Session, Token: owner.Token}
				if err := commit(b.Context(), to.s, f, number, "first"); err != nil {
					b.Error(err)
				}
				fence = f
				written <- time.Now()
			}()
			start := time.Now()
			res, err := from.s.Transfer(b.Context(), []driver.Transfer{{Fence: fence, To: to.s.ID()}})
			if err != nil || res[0].Err != nil {
				b.Fatal(err, res)
			}
			return (<-written).Sub(start)
		}
		timed(b, warmHandOvers, once)
	})
	b.Run("Lock", func(b *testing.B) {
		node := fmt.Sprint("/handover", time.Now().UnixNano())
		var conns [2]*zk.Conn
		for i := range conns {
			conns[i] = client(b, server)
		}
		acl := zk.WorldACL(zk.PermAll)
		held := zk.NewLock(conns[0], node, acl)
		if err := held.Lock(); err != nil {
			b.Fatal(err)
		}
		n := 0
		once := func() time.Duration {
			b.StopTimer()
			n++
			to := conns[n%2]
			next := zk.NewLock(to, node, acl)
			written := make(chan time.Time, 1)
			go func() {
				if err := next.Lock(); err != nil {
					b.Error(err)
				}
				if _, err := to.Set(node, []byte("first"), -1); err != nil {
					b.Error(err)
				}
				written <- time.Now()
			}()
			for queued := 0; queued < 2; { // until it waits
				names, _, err := to.Children(node)
				if err != nil {
					b.Fatal(err)
				}
				queued = len(names)
			}
			time.Sleep(handOverRest)
			b.StartTimer()
			start := time.Now()
			if err := held.Unlock(); err != nil {
				b.Fatal(err)
			}
			held = next
			return (<-written).Sub(start)
		}
		timed(b, warmHandOvers, once)
	})
	// This is the lower limit of a hand-over between two writers: one client writes, and another
	// client gets the event, reads, and then writes.
	b.Run("bare", func(b *testing.B) {
		node := fmt.Sprint("/handover-bare", time.Now().UnixNano())
		var conns [2]*zk.Conn
		for i := range conns {
			conns[i] = client(b, server)
		}
		acl := zk.WorldACL(zk.PermAll)
		for _, path := range []string{node, node + "/written"} {
			if _, err := conns[0].Create(path, nil, 0, acl); err != nil {
				b.Fatal(err)
			}
		}
		n := 0
		once := func() time.Duration {
			b.StopTimer()
			n++
			from, to := conns[n%2], conns[1-n%2]
			_, _, changed, err := to.GetW(node)
			if err != nil {
				b.Fatal(err)
			}
			time.Sleep(handOverRest)
			b.StartTimer()
			start := time.Now()
			if _, err := from.Set(node, []byte("given"), -1); err != nil {
				b.Fatal(err)
			}
			<-changed
			if _, _, err := to.Get(node); err != nil {
				b.Fatal(err)
			}
			if _, err := to.Set(node+"/written", []byte("first"), -1); err != nil {
				b.Fatal(err)
			}
			return time.Since(start)
		}
		timed(b, warmHandOvers, once)
	})
}

// TestWatches counts the watches at the server for a process that wants 10,000 shards owned by
// another process.
func TestWatches(t *testing.T) {
	t.Parallel()
	server := servers.New(t, servers.ZooKeeper, nil)
	owner := openOn(t, Options{}, server)
	sqlfault.Acquire(t, sqlfault.Join(t, owner, "n1"), sqlfault.Claims(10_000))
	idle := openOn(t, Options{}, server)
	view, err := idle.Observe(t.Context(), driver.ObserveQuery{})
	if err != nil || len(view.Shards) != 10_000 {
		t.Fatal(len(view.Shards), err)
	}
	// It follows until it sees one more member.
	done := make(chan error, 1)
	go func() {
		beats := []driver.Beat{{Session: view.Members[0].Session}}
		for {
			v, err := idle.Observe(t.Context(), driver.ObserveQuery{Since: view.Cursor, Beats: beats})
			if err != nil || len(v.Members) > 0 {
				done <- err
				return
			}
			view.Cursor = v.Cursor
			for _, b := range v.Beats {
				beats = []driver.Beat{b}
			}
		}
	}()
	sqlfault.Join(t, owner, "n2")
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	watches := 0
	for line := range strings.Lines(ask(t, server, "mntr")) {
		if n, ok := strings.CutPrefix(line, "zk_watch_count\t"); ok {
			if watches, err = strconv.Atoi(strings.TrimSpace(n)); err != nil {
				t.Fatal(err)
			}
		}
	}
	t.Logf("%d watches", watches)
	if watches == 0 || watches >= 100 {
		t.Errorf("%d watches, want some and fewer than 100", watches)
	}
}

func BenchmarkMoves(b *testing.B) { sqlfault.BenchmarkMoves(b, openedTwice) }

func openedTwice(b *testing.B) [2]driver.Backend {
	server := pool.Get(b, servers.ZooKeeper, nil)
	return [2]driver.Backend{openOn(b, Options{}, server), openOn(b, Options{}, server)}
}
