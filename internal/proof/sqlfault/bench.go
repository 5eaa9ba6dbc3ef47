package sqlfault

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tenure-go/tenure/core/driver"
)

// BenchmarkCommit appends batches of 128-byte entries to one shard's log, as group commit does for
// as many producers. The largest batch has 500 entries, or fewer if the store's limit for a write
// is lower.
func BenchmarkCommit(b *testing.B, open func(b *testing.B) driver.Backend) {
	most := 500
	if limit := open(b).Info().Limits.WriteOps; limit > 0 {
		most = min(most, limit)
	}
	for _, n := range []int{1, 64, most} {
		b.Run(fmt.Sprintf("append%d", n), func(b *testing.B) {
			s := Join(b, open(b), "n1")
			granted, _ := Acquire(b, s, Claims(1))
			payloads := make([][]byte, n)
			for i := range payloads {
				payloads[i] = make([]byte, 128)
			}
			number := driver.WriteNo(0)
			for b.Loop() {
				number++
				Commit(b, s, AppendOf(granted[0].Fence, number, payloads...))
			}
			b.ReportMetric(float64(int(number)*n)/b.Elapsed().Seconds(), "entries/s")
		})
	}
}

// BenchmarkShards appends a 64-byte entry to each of 64 shards, as group commit does for 64 leases.
// The benchmark makes one call at a time, or several concurrent calls that divide the shards.
func BenchmarkShards(b *testing.B, open func(b *testing.B) driver.Backend) {
	const shards = 64
	for _, calls := range []int{1, 2, 4} {
		b.Run(fmt.Sprintf("%dx%d", calls, shards/calls), func(b *testing.B) {
			s := Join(b, open(b), "n1")
			granted, _ := Acquire(b, s, Claims(shards))
			var made atomic.Int64
			var all sync.WaitGroup
			b.ResetTimer()
			for part := range slices.Chunk(granted, shards/calls) {
				all.Go(func() {
					for number := driver.WriteNo(1); made.Add(1) <= int64(b.N); number++ {
						CommitEach(b, s, part, number)
					}
				})
			}
			all.Wait()
			b.ReportMetric(float64(b.N*shards/calls)/b.Elapsed().Seconds(), "entries/s")
		})
	}
}

// CommitEach appends a 64-byte entry to each shard in one call. The call must succeed.
func CommitEach(t testing.TB, s driver.Session, granted []driver.AcquireResult, number driver.WriteNo) {
	t.Helper()
	writes := make([]driver.Write, len(granted))
	for i, g := range granted {
		writes[i] = AppendOf(g.Fence, number, make([]byte, 64))
	}
	results, err := s.Commit(t.Context(), writes)
	if err != nil {
		t.Error(err)
	}
	for _, r := range results {
		if r.Err != nil {
			t.Error(r.Err)
		}
	}
}

// BenchmarkBeat changes one session's record.
func BenchmarkBeat(b *testing.B, be driver.Backend) {
	s := Join(b, be, "n1")
	for b.Loop() {
		if err := s.Beat(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkHandOver hands a lease over to another member, which then writes.
func BenchmarkHandOver(b *testing.B, be driver.Backend) {
	from, to := Join(b, be, "n1"), Join(b, be, "n2")
	granted, _ := Acquire(b, from, Claims(1))
	fence := granted[0].Fence
	for b.Loop() {
		res, err := from.Transfer(b.Context(), []driver.Transfer{{Fence: fence, To: to.ID()}})
		if err != nil || res[0].Err != nil {
			b.Fatal(err, res)
		}
		fence = res[0].Fence
		Commit(b, to, AppendOf(fence, res[0].Head.Number+1, []byte("first")))
		from, to = to, from
	}
}

// BenchmarkTail appends b.N 128-byte entries to one shard, one entry per millisecond. It reports
// the time from an entry's acknowledgment until a follower in another process has the entry. The
// two backends must be open on the same new namespace.
func BenchmarkTail(b *testing.B, leader, follower driver.Backend) {
	const producers, every = 8, time.Millisecond
	leases, stop := lead(b, leader, 1)
	defer stop()
	ctx, cancel := context.WithTimeout(b.Context(), 10*time.Second+10*every*time.Duration(b.N))
	defer cancel()
	page, err := follower.TailLog(ctx, "", 1024)
	if err != nil {
		b.Fatal(err)
	}
	acked, arrived := make([]time.Time, b.N), make([]time.Time, b.N)
	var all sync.WaitGroup
	all.Go(func() {
		for cursor, n := page.Cursor, 0; n < b.N; n += len(page.Entries) {
			if page, err = follower.TailLog(ctx, cursor, 1024); err != nil {
				b.Error(err)
				return
			}
			for _, e := range page.Entries {
				arrived[e.Seq-1] = time.Now()
			}
			cursor = page.Cursor
		}
	})
	var next atomic.Int64
	b.ResetTimer()
	start := time.Now()
	for range producers {
		all.Go(func() {
			for i := next.Add(1) - 1; i < int64(b.N); i = next.Add(1) - 1 {
				time.Sleep(time.Until(start.Add(time.Duration(i) * every)))
				seq, err := leases[0].Append(ctx, make([]byte, 128))
				if err != nil {
					b.Error(err)
					return
				}
				acked[seq-1] = time.Now()
			}
		})
	}
	all.Wait()
	b.StopTimer()
	if b.Failed() {
		return
	}
	late := make([]time.Duration, b.N)
	for i := range late {
		late[i] = max(0, arrived[i].Sub(acked[i]))
	}
	slices.Sort(late)
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "entries/s")
	b.ReportMetric(float64(late[len(late)/2].Microseconds())/1000, "p50-ms")
	b.ReportMetric(float64(late[len(late)*99/100].Microseconds())/1000, "p99-ms")
}

// BenchmarkIdlePoll measures one poll of the store by a blocked Observe, which is the cost of an
// idle process.
func BenchmarkIdlePoll(b *testing.B, be driver.Backend) {
	Join(b, be, "n1")
	view, err := be.Observe(b.Context(), driver.ObserveQuery{})
	if err != nil {
		b.Fatal(err)
	}
	beats := []driver.Beat{{Session: view.Members[0].Session}}
	for b.Loop() {
		if _, err := be.Observe(b.Context(), driver.ObserveQuery{Since: view.Cursor, Beats: beats}); err != nil {
			b.Fatal(err)
		}
	}
}
