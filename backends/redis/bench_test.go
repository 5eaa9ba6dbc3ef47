package redis

import (
	"crypto/rand"
	"testing"

	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/proof/servers"
	"github.com/tenure-go/tenure/internal/proof/sqlfault"
)

func opened(b *testing.B) driver.Backend {
	b.Helper()
	return twice(b)[0]
}

// twice opens a new namespace as two processes would.
func twice(b *testing.B) [2]driver.Backend {
	b.Helper()
	c := config(b, pool.Get(b, servers.Redis, nil))
	namespace := "bench/" + rand.Text()
	var both [2]driver.Backend
	for i := range both {
		be, err := Open(b.Context(), c, namespace, &Options{Create: true})
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { be.Close() })
		both[i] = be
	}
	return both
}

// BenchmarkAcquire10000 claims 10,000 shards in one call.
func BenchmarkAcquire10000(b *testing.B) {
	for b.Loop() {
		b.StopTimer()
		s := sqlfault.Join(b, opened(b), "n")
		b.StartTimer()
		sqlfault.Acquire(b, s, sqlfault.Claims(10_000))
	}
}

func BenchmarkAppend(b *testing.B)   { sqlfault.BenchmarkAppend(b, opened) }
func BenchmarkCommit(b *testing.B)   { sqlfault.BenchmarkCommit(b, opened) }
func BenchmarkShards(b *testing.B)   { sqlfault.BenchmarkShards(b, opened) }
func BenchmarkBeat(b *testing.B)     { sqlfault.BenchmarkBeat(b, opened(b)) }
func BenchmarkHandOver(b *testing.B) { sqlfault.BenchmarkHandOver(b, opened(b)) }

// BenchmarkTail needs a large count: -benchtime 10000x.
func BenchmarkTail(b *testing.B) {
	both := twice(b)
	sqlfault.BenchmarkTail(b, both[0], both[1])
}
