package consul

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"

	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/proof/servers"
	"github.com/tenure-go/tenure/internal/proof/sqlfault"
)

// openOn opens a namespace on a server through a separate network.
func openOn(t testing.TB, server *servers.Server, namespace string, count *traffic) *Backend {
	t.Helper()
	n := newNetwork(count)
	l := []*slots{n.slots(t, server)}
	return sqlfault.Open(t, func(ctx context.Context) (*Backend, error) {
		return open(ctx, l, namespace, &Options{Create: true})
	})
}

func fresh() string { return "test/" + rand.Text() }

// acquire makes claims that must all be granted.
func acquire(t testing.TB, s driver.Session, batch []driver.Claim) (fences []driver.Fence, next []driver.Claim) {
	t.Helper()
	results, next := sqlfault.Acquire(t, s, batch)
	for _, r := range results {
		fences = append(fences, r.Fence)
	}
	return fences, next
}

func entry1(f driver.Fence, number driver.WriteNo, payloads ...[]byte) driver.Write {
	w := driver.Write{Fence: f, Number: number, Nonce: driver.Nonce(number)}
	for _, p := range payloads {
		w.Ops = append(w.Ops, driver.Op{Kind: driver.OpAppend, Value: p})
	}
	return w
}

func commit(t testing.TB, s driver.Session, w driver.Write) driver.Head {
	t.Helper()
	return sqlfault.Commit(t, s, w).Head
}

// observed waits until a backend has seen the owner of a shard.
func observed(t testing.TB, b driver.Backend, cursor driver.Cursor, want driver.Fence) driver.Cursor {
	t.Helper()
	for {
		v, err := b.Observe(t.Context(), driver.ObserveQuery{Since: cursor})
		if err != nil {
			t.Fatal(err)
		}
		cursor = v.Cursor
		if slices.ContainsFunc(v.Shards, func(s driver.ShardState) bool {
			return s.Shard == want.Shard && s.Owner.Token >= want.Token
		}) {
			return cursor
		}
	}
}

// BenchmarkAcquire10000 claims 10,000 shards in one call, both for the first time and from an
// evicted member.
func BenchmarkAcquire10000(b *testing.B) {
	server := pool.Get(b, servers.Consul, nil)
	b.Run("first", func(b *testing.B) {
		for b.Loop() {
			b.StopTimer()
			s := sqlfault.Join(b, openOn(b, server, fresh(), new(traffic)), "n")
			b.StartTimer()
			acquire(b, s, sqlfault.Claims(10_000))
		}
	})
	b.Run("takeover", func(b *testing.B) {
		be := openOn(b, server, fresh(), new(traffic))
		s := sqlfault.Join(b, be, "n0")
		_, next := acquire(b, s, sqlfault.Claims(10_000))
		for i := 0; b.Loop(); i++ {
			b.StopTimer()
			successor := sqlfault.Join(b, be, fmt.Sprint("n", i+1))
			view, err := be.Observe(b.Context(), driver.ObserveQuery{Beats: []driver.Beat{{Session: s.ID()}}})
			if err != nil || len(view.Beats) != 1 {
				b.Fatal(err, view)
			}
			b.StartTimer()
			res, err := successor.Evict(b.Context(),
				[]driver.Suspect{{Session: s.ID(), Version: view.Beats[0].Version}})
			if err != nil || !res[0].Evicted {
				b.Fatal(err, res)
			}
			_, next = acquire(b, successor, next)
			s = successor
		}
	})
}

// BenchmarkHandOver passes a lease to a member in another process. That member learns of the lease
// from its view, and then writes.
func BenchmarkHandOver(b *testing.B) {
	server, ns := pool.Get(b, servers.Consul, nil), fresh()
	type side struct {
		b      *Backend
		s      driver.Session
		cursor driver.Cursor
	}
	var sides [2]side
	for i := range sides {
		be := openOn(b, server, ns, new(traffic))
		sides[i] = side{b: be, s: sqlfault.Join(b, be, fmt.Sprint("n", i))}
	}
	fences, _ := acquire(b, sides[0].s, sqlfault.Claims(1))
	fence := fences[0]
	for i := range sides {
		sides[i].cursor = observed(b, sides[i].b, "", fence)
	}
	number := driver.WriteNo(0)
	var took []time.Duration
	for i := 0; b.Loop(); i++ {
		from, to := &sides[i%2], &sides[1-i%2]
		seen := make(chan struct{})
		go func() {
			defer close(seen)
			to.cursor = observed(b, to.b, to.cursor, driver.Fence{Shard: fence.Shard, Token: fence.Token + 1})
		}()
		start := time.Now()
		res, err := from.s.Transfer(b.Context(), []driver.Transfer{{Fence: fence, To: to.s.ID()}})
		if err != nil || res[0].Err != nil {
			b.Fatal(err, res)
		}
		fence = res[0].Fence
		<-seen
		number++
		commit(b, to.s, entry1(fence, number, []byte("first")))
		took = append(took, time.Since(start))
	}
	quantiles(b, took)
}

func quantiles(b *testing.B, took []time.Duration) {
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds())/1e3, "p50-ms")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1e3, "p99-ms")
}

// BenchmarkCommit appends batches of 128-byte entries to one shard's log, as group commit does for
// several producers.
func BenchmarkCommit(b *testing.B) {
	server := pool.Get(b, servers.Consul, nil)
	for _, n := range []int{1, 64, 100} {
		b.Run(fmt.Sprintf("append%d", n), func(b *testing.B) {
			s := sqlfault.Join(b, openOn(b, server, fresh(), new(traffic)), "n1")
			fences, _ := acquire(b, s, sqlfault.Claims(1))
			payloads := make([][]byte, n)
			for i := range payloads {
				payloads[i] = make([]byte, 128)
			}
			number := driver.WriteNo(0)
			for b.Loop() {
				number++
				commit(b, s, entry1(fences[0], number, payloads...))
			}
			b.ReportMetric(float64(int(number)*n)/b.Elapsed().Seconds(), "entries/s")
		})
	}
}

func BenchmarkAppend(b *testing.B) {
	server := pool.Get(b, servers.Consul, nil)
	sqlfault.BenchmarkAppend(b, func(b *testing.B) driver.Backend { return openOn(b, server, fresh(), new(traffic)) })
}

func BenchmarkBeat(b *testing.B) {
	s := sqlfault.Join(b, openOn(b, pool.Get(b, servers.Consul, nil), fresh(), new(traffic)), "n1")
	for b.Loop() {
		if err := s.Beat(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkTail measures the time from the acknowledgement of a commit until a follower in another
// process has the entry. It also measures the bytes that the follower received for the entry.
func BenchmarkTail(b *testing.B) {
	server, ns := pool.Get(b, servers.Consul, nil), fresh()
	s := sqlfault.Join(b, openOn(b, server, ns, new(traffic)), "n1")
	fences, _ := acquire(b, s, sqlfault.Claims(1))
	count := new(traffic)
	follower := openOn(b, server, ns, count)
	page, err := follower.TailLog(b.Context(), "", 100)
	if err != nil {
		b.Fatal(err)
	}
	number, before := driver.WriteNo(0), count.bytes.Load()
	var lag []time.Duration
	for b.Loop() {
		number++
		arrived := make(chan time.Time, 1)
		go func() {
			next, err := follower.TailLog(b.Context(), page.Cursor, 100)
			if err != nil {
				b.Error(err)
			} else {
				page = next
			}
			arrived <- time.Now()
		}()
		commit(b, s, entry1(fences[0], number, make([]byte, 128)))
		committed := time.Now()
		lag = append(lag, max(0, (<-arrived).Sub(committed)))
	}
	quantiles(b, lag)
	b.ReportMetric(float64(count.bytes.Load()-before)/float64(number), "received-B/op")
}

// BenchmarkConsulLock measures the alternative, a lock of Consul's own client for each shard. If
// there are many shards, 64 goroutines take the locks.
func BenchmarkConsulLock(b *testing.B) {
	server := pool.Get(b, servers.Consul, nil)
	other, err := client(server)
	if err != nil {
		b.Fatal(err)
	}
	client, err := client(server)
	if err != nil {
		b.Fatal(err)
	}
	session := func(b *testing.B) string {
		id, _, err := client.Session().CreateNoChecks(&api.SessionEntry{TTL: "10s", LockDelay: time.Millisecond}, nil)
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { _, _ = client.Session().Destroy(id, nil) })
		return id
	}
	lock := func(b *testing.B, key, session string) *api.Lock {
		l, err := client.LockOpts(&api.LockOptions{Key: key, Session: session, LockDelay: time.Millisecond,
			LockWaitTime: time.Second})
		if err != nil {
			b.Fatal(err)
		}
		return l
	}
	b.Run("handover", func(b *testing.B) {
		key := fresh()
		var took []time.Duration
		from := lock(b, key, session(b))
		if _, err := from.Lock(nil); err != nil {
			b.Fatal(err)
		}
		for b.Loop() {
			to := lock(b, key, session(b))
			held := make(chan error, 1)
			go func() { _, err := to.Lock(nil); held <- err }()
			time.Sleep(5 * time.Millisecond) // so that the standby waits
			start := time.Now()
			if err := from.Unlock(); err != nil {
				b.Fatal(err)
			}
			if err := <-held; err != nil {
				b.Fatal(err)
			}
			if _, err := client.KV().Put(&api.KVPair{Key: key + "/first"}, nil); err != nil {
				b.Fatal(err)
			}
			took = append(took, time.Since(start))
			from = to
		}
		quantiles(b, took)
	})
	// This is the lower limit of a hand-over: one client writes, and another client sees the write
	// through a blocking query and then writes.
	b.Run("bare", func(b *testing.B) {
		key := fresh()
		clients := [2]*api.KV{client.KV(), other.KV()}
		if _, err := clients[0].Put(&api.KVPair{Key: key}, nil); err != nil {
			b.Fatal(err)
		}
		_, meta, err := clients[0].Get(key, nil)
		if err != nil {
			b.Fatal(err)
		}
		index := meta.LastIndex
		var took []time.Duration
		for i := 0; b.Loop(); i++ {
			from, to := clients[i%2], clients[1-i%2]
			seen := make(chan error, 1)
			go func() {
				_, meta, err := to.Get(key, &api.QueryOptions{WaitIndex: index, RequireConsistent: true})
				if err == nil {
					index = meta.LastIndex
				}
				seen <- err
			}()
			time.Sleep(5 * time.Millisecond) // so that it waits
			start := time.Now()
			if _, err := from.Put(&api.KVPair{Key: key, Value: fmt.Append(nil, i)}, nil); err != nil {
				b.Fatal(err)
			}
			if err := <-seen; err != nil {
				b.Fatal(err)
			}
			if _, err := to.Put(&api.KVPair{Key: key + "/written", Value: []byte("first")}, nil); err != nil {
				b.Fatal(err)
			}
			took = append(took, time.Since(start))
		}
		quantiles(b, took)
	})
	b.Run("acquire500", func(b *testing.B) { // each lock keeps a connection while held
		for b.Loop() {
			b.StopTimer()
			id, root := session(b), fresh()
			locks := make([]*api.Lock, 500)
			for i := range locks {
				locks[i] = lock(b, fmt.Sprintf("%s/%05d", root, i), id)
			}
			b.StartTimer()
			all64(b, locks, func(l *api.Lock) error {
				_, err := l.Lock(nil)
				return err
			})
			b.StopTimer()
			all64(b, locks, (*api.Lock).Unlock)
			b.StartTimer()
		}
	})
	b.Run("acquire10000", func(b *testing.B) { // without the other steps of a lock
		for b.Loop() {
			b.StopTimer()
			id, root := session(b), fresh()
			keys := make([]string, 10_000)
			for i := range keys {
				keys[i] = fmt.Sprintf("%s/%05d", root, i)
			}
			b.StartTimer()
			all64(b, keys, func(key string) error {
				_, _, err := client.KV().Acquire(&api.KVPair{Key: key, Session: id}, nil)
				return err
			})
		}
	})
}

// all64 processes each item, from 64 goroutines.
func all64[T any](b *testing.B, items []T, do func(T) error) {
	work, done := make(chan T), make(chan error)
	for range 64 {
		go func() {
			var failed error
			for item := range work {
				if err := do(item); err != nil {
					failed = err
				}
			}
			done <- failed
		}()
	}
	for _, item := range items {
		work <- item
	}
	close(work)
	var failed error
	for range 64 {
		if err := <-done; err != nil {
			failed = err
		}
	}
	if failed != nil {
		b.Fatal(failed)
	}
}

func BenchmarkMoves(b *testing.B) { sqlfault.BenchmarkMoves(b, openedTwice) }

func openedTwice(b *testing.B) [2]driver.Backend {
	server, name := pool.Get(b, servers.Consul, nil), fresh()
	return [2]driver.Backend{openOn(b, server, name, new(traffic)), openOn(b, server, name, new(traffic))}
}
