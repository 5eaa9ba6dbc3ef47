package kv

import (
	"fmt"
	"github.com/tenure-go/tenure/internal/kvkeys"
	"runtime"
	"testing"
)

// BenchmarkMirrorMemory reports the mirror's memory per shard, including the shard's name, for
// shards that no session of this process owns.
func BenchmarkMirrorMemory(b *testing.B) {
	const shards = 100_000
	for b.Loop() {
		page := &Page{Rev: shards}
		keys := kvkeys.Keys("ns")
		for i := range shards {
			page.Pairs = append(page.Pairs, Pair{
				Key:   keys.Shards() + fmt.Sprintf("shard-%06d", i),
				Value: []byte("1 held another-session-0123456789 1"), Rev: Rev(i + 1),
			})
		}
		m := new(mirror)
		m.init(keys, 0)
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		m.load(page)
		runtime.GC()
		runtime.ReadMemStats(&after)
		b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/shards, "B/shard")
		runtime.KeepAlive(page)
		runtime.KeepAlive(m)
	}
}

// BenchmarkMirrorDiff reports the cost of one change among 100,000 shards.
func BenchmarkMirrorDiff(b *testing.B) {
	const shards = 100_000
	m := new(mirror)
	m.init(kvkeys.Keys("ns"), 0)
	change := make([]Change, 1)
	for i := range shards {
		change[0] = Change{Key: fmt.Sprintf("%sshard-%06d", m.keys.Shards(), i), Value: []byte("1 held s 1"), Rev: Rev(i + 1)}
		m.follow(Rev(i+1), change)
	}
	rev := Rev(shards)
	b.ReportAllocs()
	for b.Loop() {
		rev++
		since := m.seq
		change[0].Rev = rev
		m.follow(rev, change)
		if v := m.view(since, false); len(v.Shards) != 1 {
			b.Fatalf("%d changes", len(v.Shards))
		}
	}
}
