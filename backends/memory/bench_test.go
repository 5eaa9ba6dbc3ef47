package memory_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/tenure-go/tenure/backends/kv"
	"github.com/tenure-go/tenure/backends/memory"
	"github.com/tenure-go/tenure/core/driver"
)

func open(tb testing.TB, s *memory.Store, o *memory.Options) *kv.Backend {
	tb.Helper()
	b, err := memory.Open(context.Background(), s, "test", o)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := b.Close(); err != nil {
			tb.Error(err)
		}
	})
	return b
}

func join(tb testing.TB, b *kv.Backend, id driver.SessionID) driver.Session {
	tb.Helper()
	s, err := b.Join(context.Background(), driver.Member{Session: id, Node: "node-" + string(id), TTL: 5 * time.Second})
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

func BenchmarkBeat(b *testing.B) {
	s := join(b, open(b, memory.New(), nil), "a")
	b.ReportAllocs()
	for b.Loop() {
		if err := s.Beat(context.Background()); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkCommitOneAppend(b *testing.B) {
	s := join(b, open(b, memory.New(), nil), "a")
	got, err := s.Acquire(context.Background(), []driver.Claim{{Shard: "s"}})
	if err != nil || got[0].Err != nil {
		b.Fatal(err, got)
	}
	payload := make([]byte, 128)
	n := driver.WriteNo(0)
	b.ReportAllocs()
	for b.Loop() {
		n++
		r, err := s.Commit(context.Background(), []driver.Write{{
			Fence: got[0].Fence, Number: n, Nonce: 1, Ops: []driver.Op{{Kind: driver.OpAppend, Value: payload}},
		}})
		if err != nil || r[0].Err != nil {
			b.Fatal(err, r)
		}
	}
}

func BenchmarkAcquire10000(b *testing.B) {
	claims := make([]driver.Claim, 10_000)
	for i := range claims {
		claims[i].Shard = driver.ShardID(fmt.Sprintf("shard-%05d", i))
	}
	for b.Loop() {
		s := join(b, open(b, memory.New(), nil), "a")
		got, err := s.Acquire(context.Background(), claims)
		if err != nil || got[9999].Err != nil {
			b.Fatal(err)
		}
	}
}
