package sqlfault

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/proof/intercept"
)

// BenchmarkMany makes one process acquire 10,000 shards and hand them over to another process. A
// second run uses 100,000 shards. The open function returns two backends on one new namespace.
// BenchmarkMany reports the times, the number of single-head reads, and the memory per owned and
// per unowned shard. It does not count the handlers' goroutines.
func BenchmarkMany(b *testing.B, open func(b *testing.B) [2]driver.Backend) {
	for _, n := range []int{10_000, 100_000} {
		b.Run(fmt.Sprintf("shards=%d", n), func(b *testing.B) {
			names := make([]string, n)
			for i := range names {
				names[i] = fmt.Sprintf("shard-%06d", i)
			}
			for b.Loop() {
				p := startPair(b, open(b))
				reserveGoroutines(n)
				start, heap := time.Now(), heapInUse()
				p.contend(b, 0, names)
				p.await(b, 0, int64(n))
				b.ReportMetric(time.Since(start).Seconds(), "acquire-s")
				b.ReportMetric(float64(p.reads.Load()), "acquire-reads")
				b.ReportMetric(float64(heapInUse()-heap)/float64(n), "bytes/owned")
				heap = heapInUse()
				p.contend(b, 1, names)
				b.ReportMetric(float64(heapInUse()-heap)/float64(n), "bytes/unowned")
				p.reads.Store(0)
				start = time.Now()
				if err := p.members[0].HandOver(b.Context(), p.members[1].View().Session, names...); err != nil {
					b.Fatal(err)
				}
				p.await(b, 1, int64(n))
				b.ReportMetric(time.Since(start).Seconds(), "handover-s")
				b.ReportMetric(float64(p.reads.Load()), "handover-reads")
				p.stop()
			}
		})
	}
}

// reserveGoroutines makes the runtime keep the memory of n ended goroutines. The handlers'
// goroutines reuse this memory, so the benchmark does not count it.
func reserveGoroutines(n int) {
	end := make(chan struct{})
	var all sync.WaitGroup
	for range n {
		all.Go(func() { <-end })
	}
	close(end)
	all.Wait()
}

func heapInUse() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// BenchmarkMoves moves one shard back and forth between two processes: by a hand-over, by a
// Withdraw with one standby, and by a release that the successor observes. It reports the median
// time from the request until the successor's handler runs.
func BenchmarkMoves(b *testing.B, open func(b *testing.B) [2]driver.Backend) {
	move := map[string]func(p *pair, from int) error{
		"handover": func(p *pair, from int) error {
			return p.members[from].HandOver(context.Background(), p.members[1-from].View().Session, "s")
		},
		"withdraw": func(p *pair, from int) error { return p.members[from].Withdraw(context.Background(), "s") },
		"return":   func(p *pair, from int) error { p.quit[from] <- struct{}{}; return nil },
	}
	for _, how := range []string{"handover", "withdraw", "return"} {
		b.Run(how, func(b *testing.B) {
			p := startPair(b, open(b))
			p.contend(b, 0, []string{"s"})
			p.await(b, 0, 1)
			p.contend(b, 1, []string{"s"})
			time.Sleep(100 * time.Millisecond)
			var took []time.Duration
			for from := 0; b.Loop(); from = 1 - from {
				before := p.granted[1-from].Load()
				start := time.Now()
				if err := move[how](p, from); err != nil {
					b.Fatal(err)
				}
				p.await(b, 1-from, before+1)
				took = append(took, p.since[1-from].Load().(time.Time).Sub(start))
				b.StopTimer()
				if how != "return" {
					p.contend(b, from, []string{"s"})
				}
				time.Sleep(20 * time.Millisecond)
				b.StartTimer()
			}
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "p50-ms")
			p.stop()
		})
	}
}

// pair contains two processes that serve shards of one namespace.
type pair struct {
	members [2]*core.Elector
	reads   atomic.Int64 // of heads
	granted [2]atomic.Int64
	since   [2]atomic.Value // time.Time of the last grant
	quit    [2]chan struct{}
	wake    chan struct{}
	end     context.CancelFunc
	all     sync.WaitGroup
}

func startPair(b *testing.B, on [2]driver.Backend) *pair {
	b.Helper()
	p := &pair{wake: make(chan struct{}, 1), quit: [2]chan struct{}{make(chan struct{}), make(chan struct{})}}
	ctx, end := context.WithCancel(b.Context())
	p.end = end
	for i := range p.members {
		counted := intercept.Wrap(on[i], func(ctx context.Context, c *intercept.Call, proceed func(context.Context) error) error {
			if c.Op == intercept.ReadLog {
				p.reads.Add(1)
			}
			return proceed(ctx)
		})
		e, err := core.NewElector(counted, &core.Options{
			Node: fmt.Sprint("n", i), BackoffMin: time.Millisecond, BackoffMax: time.Millisecond,
			Logger: slog.New(slog.DiscardHandler),
		})
		if err != nil {
			b.Fatal(err)
		}
		p.members[i] = e
		own := func(ctx context.Context, _ *core.Lease) error { // both processes must be members
			p.grant(i)
			<-ctx.Done()
			return nil
		}
		if err := e.Contend(own, fmt.Sprint("own-", i)); err != nil {
			b.Fatal(err)
		}
		p.all.Go(func() {
			if err := e.Run(ctx); err != nil {
				b.Error(err)
			}
		})
		p.await(b, i, 1)
		p.granted[i].Store(0)
	}
	p.reads.Store(0)
	return p
}

// grant records that member i was granted a shard.
func (p *pair) grant(i int) {
	p.since[i].Store(time.Now())
	p.granted[i].Add(1)
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

func (p *pair) contend(b *testing.B, i int, shards []string) {
	b.Helper()
	err := p.members[i].Contend(func(ctx context.Context, _ *core.Lease) error {
		p.grant(i)
		select {
		case <-ctx.Done():
		case <-p.quit[i]:
		}
		return nil
	}, shards...)
	if err != nil {
		b.Fatal(err)
	}
}

// await waits until member i has been granted n shards.
func (p *pair) await(b *testing.B, i int, n int64) {
	b.Helper()
	limit := time.After(2 * time.Minute)
	for p.granted[i].Load() < int64(n) {
		select {
		case <-p.wake:
		case <-limit:
			b.Fatalf("%d of %d granted", p.granted[i].Load(), n)
		}
	}
}

func (p *pair) stop() {
	p.end()
	p.all.Wait()
}
