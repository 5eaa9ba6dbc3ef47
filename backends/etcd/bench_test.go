package etcd

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"google.golang.org/grpc"

	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/proof/servers"
	"github.com/tenure-go/tenure/internal/proof/sqlfault"
)

// Each benchmark prints medians. Run it a few times on a quiet machine. The alternative,
// concurrency.Election, is measured on the same server.

// sampled reports the median and the relevant extremes.
func sampled(b *testing.B, took []time.Duration) {
	slices.Sort(took)
	ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1e3 }
	b.ReportMetric(ms(took[len(took)/2]), "p50-ms")
	b.ReportMetric(ms(took[len(took)*99/100]), "p99-ms")
	b.ReportMetric(ms(took[len(took)-1]), "max-ms")
}

func fresh(b *testing.B, c clientv3.Config, name string) *Backend {
	b.Helper()
	be, err := Open(b.Context(), c, "bench/"+name, &Options{Create: true})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { be.Close() })
	return be
}

func BenchmarkAcquire10000(b *testing.B) {
	const shards = 10_000
	c := config(b, pool.Get(b, servers.Etcd, nil))
	b.Run("first", func(b *testing.B) {
		var took []time.Duration
		for b.Loop() {
			b.StopTimer()
			s := sqlfault.Join(b, fresh(b, c, fmt.Sprint("first", time.Now().UnixNano())), "n")
			b.StartTimer()
			start := time.Now()
			sqlfault.Acquire(b, s, sqlfault.Claims(shards))
			took = append(took, time.Since(start))
		}
		sampled(b, took)
	})
	b.Run("takeover", func(b *testing.B) {
		be := fresh(b, c, fmt.Sprint("takeover", time.Now().UnixNano()))
		s := sqlfault.Join(b, be, "n0")
		_, next := sqlfault.Acquire(b, s, sqlfault.Claims(shards))
		var took []time.Duration
		for i := 0; b.Loop(); i++ {
			b.StopTimer()
			successor := sqlfault.Join(b, be, fmt.Sprint("n", i+1))
			view, err := be.Observe(b.Context(), driver.ObserveQuery{Beats: []driver.Beat{{Session: s.ID()}}})
			if err != nil || len(view.Beats) != 1 {
				b.Fatal(view, err)
			}
			b.StartTimer()
			start := time.Now()
			res, err := successor.Evict(b.Context(),
				[]driver.Suspect{{Session: s.ID(), Version: view.Beats[0].Version}})
			if err != nil || !res[0].Evicted {
				b.Fatal(err, res)
			}
			_, next = sqlfault.Acquire(b, successor, next)
			took = append(took, time.Since(start))
			s = successor
		}
		sampled(b, took)
	})
	b.Run("Election", func(b *testing.B) {
		client := newClient(b, c)
		var took []time.Duration
		for b.Loop() {
			b.StopTimer()
			session := newSession(b, client)
			prefix := fmt.Sprint("election", time.Now().UnixNano(), "/")
			b.StartTimer()
			start := time.Now()
			var next atomic.Int64
			var all sync.WaitGroup
			for range 64 {
				all.Go(func() {
					for i := next.Add(1); i <= shards; i = next.Add(1) {
						if err := concurrency.NewElection(session, prefix+fmt.Sprint(i)).Campaign(b.Context(),
							"n"); err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			all.Wait()
			took = append(took, time.Since(start))
			b.StopTimer()
			session.Close()
			b.StartTimer()
		}
		sampled(b, took)
	})
}

func newSession(b *testing.B, client *clientv3.Client) *concurrency.Session {
	b.Helper()
	s, err := concurrency.NewSession(client, concurrency.WithTTL(60))
	if err != nil {
		b.Fatal(err)
	}
	return s
}

// watchCatchesUp is longer than etcd takes to serve a watch of past revisions, such as an
// Election's watch.
const watchCatchesUp = 150 * time.Millisecond

// BenchmarkHandOver measures the time from the transfer of a shard to the successor's first fenced
// write. The successor runs in another process, and learns of its lease from a watch.
func BenchmarkHandOver(b *testing.B) {
	c := config(b, pool.Get(b, servers.Etcd, nil))
	b.Run("tenure", func(b *testing.B) {
		type side struct {
			b      *Backend
			s      driver.Session
			cursor driver.Cursor
		}
		name := fmt.Sprint("handover", time.Now().UnixNano())
		var sides [2]side
		for i := range sides {
			be := fresh(b, c, name)
			sides[i] = side{b: be, s: sqlfault.Join(b, be, fmt.Sprint("n", i))}
		}
		granted, _ := sqlfault.Acquire(b, sides[0].s, sqlfault.Claims(1))
		fence := granted[0].Fence
		// learns returns when the view shows that the session owns the shard.
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
		var took []time.Duration
		number := driver.WriteNo(0)
		for i := 0; b.Loop(); i++ {
			from, to := &sides[i%2], &sides[1-i%2]
			number++
			written := make(chan time.Time, 1)
			go func() {
				owner := learns(to)
				f := driver.Fence{Shard: fence.Shard, Session: owner.Session, Token: owner.Token}
				r, err := to.s.Commit(b.Context(), []driver.Write{sqlfault.AppendOf(f, number, []byte("first"))})
				if err != nil || r[0].Err != nil {
					b.Error(err, r)
				}
				fence = f
				written <- time.Now()
			}()
			start := time.Now()
			res, err := from.s.Transfer(b.Context(), []driver.Transfer{{Fence: fence, To: to.s.ID()}})
			if err != nil || res[0].Err != nil {
				b.Fatal(err, res)
			}
			took = append(took, (<-written).Sub(start))
		}
		sampled(b, took)
	})
	b.Run("Election", func(b *testing.B) {
		prefix := fmt.Sprint("handover-election", time.Now().UnixNano(), "/")
		var sides [2]*concurrency.Election
		for i := range sides {
			session := newSession(b, newClient(b, c))
			defer session.Close()
			sides[i] = concurrency.NewElection(session, prefix)
		}
		client := newClient(b, c)
		if err := sides[0].Campaign(b.Context(), "n"); err != nil {
			b.Fatal(err)
		}
		var took []time.Duration
		for i := 0; b.Loop(); i++ {
			from, to := sides[i%2], sides[1-i%2]
			written := make(chan time.Time, 1)
			go func() {
				if err := to.Campaign(b.Context(), "n"); err != nil {
					b.Error(err)
				}
				_, err := client.Txn(b.Context()).If(clientv3.Compare(clientv3.CreateRevision(to.Key()), "=",
					to.Rev())).
					Then(clientv3.OpPut(prefix+"written", "first")).Commit()
				if err != nil {
					b.Error(err)
				}
				written <- time.Now()
			}()
			b.StopTimer()
			for queued := false; !queued; { // so that it waits
				resp, err := client.Get(b.Context(), prefix, clientv3.WithPrefix(), clientv3.WithCountOnly())
				if err != nil {
					b.Fatal(err)
				}
				written, err := client.Get(b.Context(), prefix+"written", clientv3.WithCountOnly())
				if err != nil {
					b.Fatal(err)
				}
				queued = resp.Count-written.Count == 2
			}
			time.Sleep(watchCatchesUp) // otherwise the benchmark measures the server's timer
			b.StartTimer()
			start := time.Now()
			if err := from.Resign(b.Context()); err != nil {
				b.Fatal(err)
			}
			took = append(took, (<-written).Sub(start))
		}
		sampled(b, took)
	})
	// This is the lower limit of a hand-over: one client writes, and another client sees the write
	// in its watch and then writes.
	b.Run("bare", func(b *testing.B) {
		key := fmt.Sprint("handover-bare", time.Now().UnixNano())
		var clients [2]*clientv3.Client
		var watches [2]clientv3.WatchChan
		for i := range clients {
			clients[i] = newClient(b, c)
			watches[i] = clients[i].Watch(b.Context(), key, clientv3.WithCreatedNotify())
			<-watches[i]
		}
		var took []time.Duration
		for i := 0; b.Loop(); i++ {
			start := time.Now()
			if _, err := clients[i%2].Put(b.Context(), key, "given"); err != nil {
				b.Fatal(err)
			}
			<-watches[1-i%2]
			if _, err := clients[1-i%2].Put(b.Context(), key+"/written", "first"); err != nil {
				b.Fatal(err)
			}
			took = append(took, time.Since(start))
			b.StopTimer()
			<-watches[i%2]
			b.StartTimer()
		}
		sampled(b, took)
	})
}

// BenchmarkAppend appends through an Elector. In the case named single, 64 goroutines append with
// one transaction for each entry.
func BenchmarkAppend(b *testing.B) {
	c := config(b, pool.Get(b, servers.Etcd, nil))
	sqlfault.BenchmarkAppend(b, func(b *testing.B) driver.Backend {
		return fresh(b, c, fmt.Sprint("append", time.Now().UnixNano()))
	})
	b.Run("single", func(b *testing.B) {
		client := newClient(b, c)
		var n atomic.Int64
		key := fmt.Sprint("single", time.Now().UnixNano(), "/")
		if _, err := client.Put(b.Context(), key, "owner"); err != nil {
			b.Fatal(err)
		}
		payload := string(make([]byte, 128))
		sqlfault.Produce(b, 64, func(int) error {
			_, err := client.Txn(b.Context()).If(clientv3.Compare(clientv3.Version(key), "=", 1)).
				Then(clientv3.OpPut(fmt.Sprint(key, n.Add(1)), payload)).Commit()
			return err
		})
	})
}

// TestIdleCost counts the calls of an idle process that owns shards, during some heartbeats. The
// count must be the same for 1 and for 10,000 shards.
func TestIdleCost(t *testing.T) {
	t.Parallel()
	c := config(t, pool.Get(t, servers.Etcd, nil))
	const beats = 20
	cost := func(namespace string, shards int) [4]int64 {
		calls := new(counter)
		counted := c
		counted.DialOptions = []grpc.DialOption{grpc.WithStatsHandler(calls)}
		b, err := Open(t.Context(), counted, namespace, &Options{Create: true})
		if err != nil {
			t.Fatal(err)
		}
		defer b.Close()
		s := sqlfault.Join(t, b, "n1")
		sqlfault.Acquire(t, s, sqlfault.Claims(shards))
		view, err := b.Observe(t.Context(), driver.ObserveQuery{})
		if err != nil {
			t.Fatal(err)
		}
		idle := func() {
			ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
			defer cancel()
			for { // earlier writes may not have been delivered
				next, err := b.Observe(ctx, driver.ObserveQuery{Since: view.Cursor})
				if err != nil {
					return
				}
				view = next
			}
		}
		idle()
		snapshot := func() [4]int64 {
			return [4]int64{calls.reads.Load(), calls.writes.Load(), calls.waits.Load(), calls.others.Load()}
		}
		before := snapshot()
		for range beats {
			if err := s.Beat(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		idle()
		after := snapshot()
		for i := range after {
			after[i] -= before[i]
		}
		return after
	}
	one, many := cost("idle/one", 1), cost("idle/many", 10_000)
	t.Logf("%d heartbeats, and a blocked view: reads, writes, watches and others %v; with 10,000 shards %v", beats, one,
		many)
	if want := [4]int64{0, beats, 0, 0}; one != want || many != want {
		t.Errorf("got %v and %v, want %v", one, many, want)
	}
}

// BenchmarkMany acquires and hands over many shards, and BenchmarkMoves hands over one.
func BenchmarkMany(b *testing.B)  { sqlfault.BenchmarkMany(b, openedTwice) }
func BenchmarkMoves(b *testing.B) { sqlfault.BenchmarkMoves(b, openedTwice) }

func openedTwice(b *testing.B) [2]driver.Backend {
	c, name := config(b, pool.Get(b, servers.Etcd, nil)), fmt.Sprint("many", time.Now().UnixNano())
	return [2]driver.Backend{fresh(b, c, name), fresh(b, c, name)}
}
