package core

import (
	"context"
	"errors"
	"log/slog"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenure-go/tenure/backends/memory"
	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/proof/kvfault"
)

// 10,000 shards that are wanted but not owned cost no goroutine, no call, and at most 300 bytes
// each.
func TestStandbyCost(t *testing.T) { // not parallel, because it counts goroutines
	synctest.Test(t, func(t *testing.T) {
		w := &world{T: t, store: memory.New()}
		const n = 10_000
		b := w.member("b")
		var h leases
		w.must(b.Contend(h.hold, "own"))
		h.await(w, 1)
		names := heldByAnother(w.T, w.store, n)
		time.Sleep(2 * ttl)
		synctest.Wait()
		before, calls := runtime.NumGoroutine(), w.store.Counts()
		w.must(b.Contend(h.hold, names...))
		synctest.Wait()
		time.Sleep(5 * ttl)
		synctest.Wait()
		if g := runtime.NumGoroutine(); g > before+2 {
			w.Errorf("%d goroutines, %d before", g, before)
		}
		if got := w.store.Counts(); got.Writes != calls.Writes || got.Reads != calls.Reads || got.Heartbeats-calls.Heartbeats > 18 {
			w.Errorf("calls from %+v to %+v", calls, got)
		}
		if h.count() != 1 {
			w.Errorf("%d leases", h.count())
		}
	})
}

// heldByAnother creates n shards, owned by a session that does not end, and returns their names.
func heldByAnother(tb testing.TB, store *memory.Store, n int) []string {
	tb.Helper()
	ctx := context.Background()
	b, err := memory.Open(ctx, store, "test", nil)
	if err != nil {
		tb.Fatal(err)
	}
	s, err := b.Join(ctx, Member{Session: newSessionID(), Node: "other", TTL: time.Hour})
	if err != nil {
		tb.Fatal(err)
	}
	names := shardNames(n)
	claims := make([]driver.Claim, n)
	for i, name := range names {
		claims[i].Shard = ShardID(name)
	}
	res, err := s.Acquire(ctx, claims)
	for _, r := range res {
		err = errors.Join(err, r.Err)
	}
	if err = errors.Join(err, b.Close()); err != nil {
		tb.Fatal(err)
	}
	return names
}

// quick returns an elector for benchmarks, in real time.
func quick(b *testing.B, store *memory.Store, o *Options) (*Elector, *kvfault.Link) {
	b.Helper()
	var c Options
	if o != nil {
		c = *o
	}
	c.Logger = slog.New(slog.DiscardHandler)
	link := &kvfault.Link{}
	back, err := memory.Open(b.Context(), store, "test", &memory.Options{Wrap: link.Wrap})
	if err != nil {
		b.Fatal(err)
	}
	e, err := NewElector(back, &c)
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- e.Run(ctx) }()
	b.Cleanup(func() {
		cancel()
		if err := errors.Join(<-done, back.Close()); err != nil {
			b.Error(err)
		}
	})
	return e, link
}

func benchLease(b *testing.B) *Lease { return benchLeaseOf(b, nil) }

func benchLeaseOf(b *testing.B, o *Options) *Lease {
	b.Helper()
	e, _ := quick(b, memory.New(), o)
	got := make(chan *Lease, 1)
	if err := e.Contend(func(ctx context.Context, l *Lease) error { got <- l; <-ctx.Done(); return nil }, "s"); err != nil {
		b.Fatal(err)
	}
	select {
	case l := <-got:
		return l
	case <-time.After(10 * time.Second):
		b.Fatal("no lease within 10s")
		return nil
	}
}

func BenchmarkLeaseErr(b *testing.B) {
	l := benchLease(b)
	b.ReportAllocs()
	for b.Loop() {
		if l.Err() != nil {
			b.Fatal(l.Err())
		}
	}
}

func BenchmarkLeaseErrParallel(b *testing.B) {
	l := benchLease(b)
	b.ReportAllocs()
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if l.Err() != nil {
				b.Error(l.Err())
			}
		}
	})
}

func BenchmarkAppend1(b *testing.B)  { benchAppend(b, 1) }
func BenchmarkAppend64(b *testing.B) { benchAppend(b, 64) }

// benchAppend measures producers that append 128-byte entries to one shard.
func benchAppend(b *testing.B, producers int) {
	l := benchLease(b)
	payload := make([]byte, 128)
	var left atomic.Int64
	left.Store(int64(b.N))
	took := make([][]time.Duration, producers)
	b.ReportAllocs()
	b.ResetTimer()
	var wg sync.WaitGroup
	for p := range producers {
		wg.Go(func() {
			for left.Add(-1) >= 0 {
				began := time.Now()
				if _, err := l.Append(context.Background(), payload); err != nil {
					b.Error(err)
					return
				}
				took[p] = append(took[p], time.Since(began))
			}
		})
	}
	wg.Wait()
	b.StopTimer()
	all := slices.Concat(took...)
	slices.Sort(all)
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "entries/s")
	b.ReportMetric(float64(all[len(all)*99/100].Microseconds()), "p99-µs")
	b.ReportMetric(float64(l.Head().Number)/float64(b.N), "commits/entry")
}

// BenchmarkStandby1 and BenchmarkStandby10000 report the cost of a member that wants shards and
// owns none: bytes, goroutines, and heartbeats per interval.
func BenchmarkStandby1(b *testing.B)     { benchStandby(b, 1) }
func BenchmarkStandby10000(b *testing.B) { benchStandby(b, 10_000) }

func benchStandby(b *testing.B, n int) {
	for b.Loop() {
		store := memory.New()
		names := heldByAnother(b, store, n)
		settle := func() (uint64, int) {
			time.Sleep(200 * time.Millisecond)
			runtime.GC()
			runtime.GC()
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			return m.HeapAlloc, runtime.NumGoroutine()
		}
		heap, goroutines := settle()
		e, link := quick(b, store, &Options{Node: "standby", TTL: time.Second})
		if err := e.Contend(func(ctx context.Context, _ *Lease) error { <-ctx.Done(); return nil }, names...); err != nil {
			b.Fatal(err)
		}
		heapAfter, goroutinesAfter := settle()
		beats, writes := link.Count(kvfault.Heartbeat), link.Count(kvfault.Write)
		const intervals = 6
		time.Sleep(intervals * e.o.Heartbeat)
		// Count the whole member: elector, backend and their data.
		b.ReportMetric(float64(int64(heapAfter-heap))/float64(n), "bytes/shard")
		b.ReportMetric(float64(goroutinesAfter-goroutines), "goroutines")
		b.ReportMetric(float64(link.Count(kvfault.Heartbeat)-beats)/intervals, "heartbeats/interval")
		b.ReportMetric(float64(link.Count(kvfault.Write)-writes), "other-writes")
		runtime.KeepAlive(names)
	}
}

// BenchmarkAcquire10000 measures the time from Contend until every handler runs.
func BenchmarkAcquire10000(b *testing.B) {
	const n = 10_000
	for b.Loop() {
		b.StopTimer()
		e, _ := quick(b, memory.New(), nil)
		names := shardNames(n)
		var left atomic.Int64
		left.Store(n)
		all := make(chan struct{})
		b.StartTimer()
		err := e.Contend(func(ctx context.Context, _ *Lease) error {
			if left.Add(-1) == 0 {
				close(all)
			}
			<-ctx.Done()
			return nil
		}, names...)
		if err != nil {
			b.Fatal(err)
		}
		select {
		case <-all:
		case <-time.After(time.Minute):
			b.Fatalf("%d shards are missing after a minute", left.Load())
		}
	}
}

// BenchmarkClockRead measures the clock's share of BenchmarkLeaseErr.
func BenchmarkClockRead(b *testing.B) {
	start := time.Now()
	for b.Loop() {
		if time.Since(start) < 0 {
			b.Fatal("the clock went back")
		}
	}
}
