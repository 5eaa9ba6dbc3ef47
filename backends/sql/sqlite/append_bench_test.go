package sqlite_test

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tenure-go/tenure/core"
)

// BenchmarkAppend has producers append 128-byte entries to one shard under a
// lease, through the group commit of core.
func BenchmarkAppend(b *testing.B) {
	b.Run("producers1", func(b *testing.B) { benchAppend(b, 1) })
	b.Run("producers64", func(b *testing.B) { benchAppend(b, 64) })
}

func benchAppend(b *testing.B, producers int) {
	e, err := core.NewElector(open(b, dbPath(b), nil), nil)
	if err != nil {
		b.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- e.Run(ctx) }()
	defer func() {
		stop()
		if err := <-done; err != nil {
			b.Error(err)
		}
	}()
	got := make(chan *core.Lease, 1)
	serve := func(ctx context.Context, l *core.Lease) error { got <- l; <-ctx.Done(); return nil }
	if err := e.Contend(serve, "a"); err != nil {
		b.Fatal(err)
	}
	var lease *core.Lease
	select {
	case lease = <-got:
	case <-time.After(10 * time.Second):
		b.Fatal("no lease within 10s")
	}

	payload := make([]byte, 128)
	var left atomic.Int64
	left.Store(int64(b.N))
	took := make([][]time.Duration, producers)
	var wg sync.WaitGroup
	b.ResetTimer()
	for p := range producers {
		wg.Go(func() {
			for left.Add(-1) >= 0 {
				began := time.Now()
				if _, err := lease.Append(ctx, payload); err != nil {
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
	b.ReportMetric(float64(len(all))/b.Elapsed().Seconds(), "entries/s")
	b.ReportMetric(float64(all[len(all)*99/100].Microseconds())/1000, "p99-ms")
}
