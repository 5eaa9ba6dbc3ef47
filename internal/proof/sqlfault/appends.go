package sqlfault

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/proof/ample"
)

// BenchmarkAppend makes producers append 128-byte entries under leases, through core's group
// commit. The benchmark measures 1 producer and 64 producers on one shard, and 64 producers on 64
// shards.
func BenchmarkAppend(b *testing.B, open func(b *testing.B) driver.Backend) {
	for _, c := range []struct{ shards, producers int }{{1, 1}, {1, 64}, {64, 64}} {
		b.Run(fmt.Sprintf("shards%d/producers%d", c.shards, c.producers), func(b *testing.B) {
			leases, stop := lead(b, open(b), c.shards)
			defer stop()
			payload := make([]byte, 128)
			Produce(b, c.producers, func(p int) error {
				_, err := leases[p%c.shards].Append(b.Context(), payload)
				return err
			})
		})
	}
}

// BenchmarkLocked makes 64 producers append to one shard each, while another transaction locks the
// first shard's row for 2 s. The benchmark reports how long appends to the other 63 shards took.
func BenchmarkLocked(b *testing.B, be driver.Backend, lock func(shard string) (unlock func())) {
	const shards, held = 64, 2 * time.Second
	leases, stop := lead(b, be, shards)
	defer stop()
	payload := make([]byte, 128)
	took := make([][]time.Duration, shards)
	for b.Loop() {
		unlock := lock("s0")
		var over atomic.Bool
		var wg sync.WaitGroup
		for p, l := range leases {
			wg.Go(func() {
				for !over.Load() {
					began := time.Now()
					if _, err := l.Append(b.Context(), payload); err != nil {
						b.Error(err)
						return
					}
					took[p] = append(took[p], time.Since(began))
				}
			})
		}
		time.Sleep(held)
		over.Store(true)
		unlock()
		wg.Wait()
	}
	others := slices.DeleteFunc(slices.Clone(took), func(t []time.Duration) bool { return slices.Max(t) >= held/2 })
	all := slices.Sorted(slices.Values(slices.Concat(others...)))
	if len(others) != shards-1 || len(all) == 0 {
		b.Fatalf("%d shards of %d were delayed by the one that was locked", shards-len(others), shards)
	}
	b.ReportMetric(float64(len(all))/held.Seconds()/float64(b.N), "entries/s")
	b.ReportMetric(float64(all[len(all)*99/100].Microseconds())/1000, "p99-ms")
}

// Produce calls appends with each producer's number, in one goroutine per producer. It reports the
// entries per second and the time per entry.
func Produce(b *testing.B, producers int, appends func(producer int) error) {
	var left atomic.Int64
	left.Store(int64(b.N))
	took := make([][]time.Duration, producers)
	var wg sync.WaitGroup
	b.ResetTimer()
	for p := range producers {
		wg.Go(func() {
			for left.Add(-1) >= 0 {
				began := time.Now()
				if err := appends(p); err != nil {
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
	if len(all) == 0 {
		b.FailNow()
	}
	slices.Sort(all)
	b.ReportMetric(float64(len(all))/b.Elapsed().Seconds(), "entries/s")
	b.ReportMetric(float64(all[len(all)*99/100].Microseconds())/1000, "p99-ms")
}

// lead runs an elector on the backend until stop is called, and returns its leases of n shards.
func lead(b *testing.B, be driver.Backend, n int) (leases []*core.Lease, stop func()) {
	e, err := core.NewElector(be, &core.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- e.Run(ctx) }()
	stop = func() {
		cancel()
		if err := <-done; err != nil {
			b.Error(err)
		}
	}
	got := make(chan *core.Lease, n)
	serve := func(ctx context.Context, l *core.Lease) error { got <- l; <-ctx.Done(); return nil }
	shards := make([]string, n)
	for i := range shards {
		shards[i] = fmt.Sprint("s", i)
	}
	if err := e.Contend(serve, shards...); err != nil {
		stop()
		b.Fatal(err)
	}
	for limit := time.After(ample.Time); len(leases) < n; {
		select {
		case l := <-got:
			leases = append(leases, l)
		case <-limit:
			stop()
			b.Fatalf("%d of %d leases within %v", len(leases), n, ample.Time)
		}
	}
	return leases, stop
}
