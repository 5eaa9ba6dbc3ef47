package sqlite_test

import (
	"testing"

	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/proof/sqlfault"
)

// BenchmarkAcquire10000 claims 10,000 free shards in one call.
func BenchmarkAcquire10000(b *testing.B) {
	s := join(b, open(b, dbPath(b), nil), "n1")
	batch := sqlfault.Claims(10_000)
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

func opened(b *testing.B) driver.Backend { return open(b, dbPath(b), nil) }

func BenchmarkAppend(b *testing.B)   { sqlfault.BenchmarkAppend(b, opened) }
func BenchmarkCommit(b *testing.B)   { sqlfault.BenchmarkCommit(b, opened) }
func BenchmarkShards(b *testing.B)   { sqlfault.BenchmarkShards(b, opened) }
func BenchmarkBeat(b *testing.B)     { sqlfault.BenchmarkBeat(b, opened(b)) }
func BenchmarkIdlePoll(b *testing.B) { sqlfault.BenchmarkIdlePoll(b, opened(b)) }

// BenchmarkCommitProducers appends single entries to 64 shards concurrently, each from its own
// goroutine. Waiting calls share one transaction.
func BenchmarkCommitProducers(b *testing.B) {
	const producers = 64
	s := join(b, open(b, dbPath(b), nil), "n1")
	res, err := s.Acquire(b.Context(), sqlfault.Claims(producers))
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

// BenchmarkMany acquires and hands over many shards, and BenchmarkMoves hands over one.
func BenchmarkMany(b *testing.B)  { sqlfault.BenchmarkMany(b, openedTwice) }
func BenchmarkMoves(b *testing.B) { sqlfault.BenchmarkMoves(b, openedTwice) }

func openedTwice(b *testing.B) [2]driver.Backend {
	path := dbPath(b)
	return [2]driver.Backend{open(b, path, nil), open(b, path, nil)}
}
