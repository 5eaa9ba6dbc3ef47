package sqlite_test

import (
	"fmt"
	"testing"

	"github.com/tenure-go/tenure/core/driver"
)

// shards returns n claims on shards without a record.
func claims(n int) []driver.Claim {
	c := make([]driver.Claim, n)
	for i := range c {
		c[i].Shard = driver.ShardID(fmt.Sprintf("shard-%05d", i))
	}
	return c
}

// BenchmarkAcquire10000 claims 10,000 free shards in one call.
func BenchmarkAcquire10000(b *testing.B) {
	s := join(b, open(b, dbPath(b), nil), "n1")
	batch := claims(10_000)
	for b.Loop() {
		res, err := s.Acquire(b.Context(), batch)
		if err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		fences := make([]driver.Fence, len(res))
		for i, r := range res {
			if r.Err != nil {
				b.Fatal(r.Err)
			}
			fences[i] = r.Fence
			batch[i].Seen = driver.Owner{Token: r.Fence.Token}
		}
		if err := s.Release(b.Context(), fences); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
}

// BenchmarkCommit appends batches of 128-byte entries to one shard's log.
func BenchmarkCommit(b *testing.B) {
	for _, n := range []int{1, 64, 500} {
		b.Run(fmt.Sprintf("append%d", n), func(b *testing.B) {
			s := join(b, open(b, dbPath(b), nil), "n1")
			fence := acquire(b, s, "a", driver.Owner{}).Fence
			payload := string(make([]byte, 128))
			payloads := make([]string, n)
			for i := range payloads {
				payloads[i] = payload
			}
			number := driver.WriteNo(0)
			for b.Loop() {
				number++
				commit(b, s, appendOf(fence, number, payloads...))
			}
			b.ReportMetric(float64(int(number)*n)/b.Elapsed().Seconds(), "entries/s")
		})
	}
}

// BenchmarkBeat changes one session's record.
func BenchmarkBeat(b *testing.B) {
	s := join(b, open(b, dbPath(b), nil), "n1")
	for b.Loop() {
		if err := s.Beat(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkIdlePoll is one look at the store by a blocked Observe: its cost times
// the polls per second is what an idle process costs.
func BenchmarkIdlePoll(b *testing.B) {
	be := open(b, dbPath(b), nil)
	join(b, be, "n1")
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

// BenchmarkCommitProducers appends single entries to 64 shards at once, each from
// a goroutine of its own: calls that wait share a transaction.
func BenchmarkCommitProducers(b *testing.B) {
	const producers = 64
	s := join(b, open(b, dbPath(b), nil), "n1")
	res, err := s.Acquire(b.Context(), claims(producers))
	if err != nil {
		b.Fatal(err)
	}
	payload := string(make([]byte, 128))
	next := make(chan driver.AcquireResult, producers)
	for _, r := range res {
		next <- r
	}
	b.SetParallelism(producers / 2)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			r := <-next
			out, err := s.Commit(b.Context(), []driver.Write{appendOf(r.Fence, r.Head.Number+1, payload)})
			if err != nil || out[0].Err != nil {
				b.Error(err, out)
				return
			}
			r.Head = out[0].Head
			next <- r
		}
	})
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "entries/s")
}
