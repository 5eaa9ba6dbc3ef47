package sqlfault

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/core/driver"
)

// BenchmarkAppend has producers append 128-byte entries to one shard under a lease,
// through the group commit of core: 1 and 64 of them.
func BenchmarkAppend(b *testing.B, open func(b *testing.B) driver.Backend) {
	for _, producers := range []int{1, 64} {
		b.Run(fmt.Sprint("producers", producers), func(b *testing.B) {
			lease, stop := lead(b, open(b))
			defer stop()
			payload := make([]byte, 128)
			Produce(b, producers, func() error {
				_, err := lease.Append(b.Context(), payload)
				return err
			})
		})
	}
}

// Produce calls appends from as many goroutines, and reports entries per second and
// how long one took.
func Produce(b *testing.B, producers int, appends func() error) {
	var left atomic.Int64
	left.Store(int64(b.N))
	took := make([][]time.Duration, producers)
	var wg sync.WaitGroup
	b.ResetTimer()
	for p := range producers {
		wg.Go(func() {
			for left.Add(-1) >= 0 {
				began := time.Now()
				if err := appends(); err != nil {
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

// lead runs an elector on the backend until stop, and returns its lease.
func lead(b *testing.B, be driver.Backend) (lease *core.Lease, stop func()) {
	e, err := core.NewElector(be, nil)
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
	got := make(chan *core.Lease, 1)
	serve := func(ctx context.Context, l *core.Lease) error { got <- l; <-ctx.Done(); return nil }
	if err := e.Contend(serve, "a"); err != nil {
		stop()
		b.Fatal(err)
	}
	select {
	case lease = <-got:
	case <-time.After(10 * time.Second):
		stop()
		b.Fatal("no lease within 10s")
	}
	return lease, stop
}
