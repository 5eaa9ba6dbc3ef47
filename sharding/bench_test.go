package sharding

import (
	"fmt"
	"testing"
	"time"
)

// After one join, the budget is 20 ms.
func BenchmarkPlan100kShards100Members(b *testing.B) {
	c := even(100, 100_000)
	c.Members = append(c.Members, Member{ID: "x", Node: "x", Weight: 1})
	b.ReportAllocs()
	for b.Loop() {
		if p := (Balance{}).Plan(c); len(p.Moves) != 990 {
			b.Fatal(len(p.Moves))
		}
	}
}

// The code that an application runs for each request: at most 50 ns and no allocation with 8
// goroutines.
func BenchmarkSliceAdd(b *testing.B) {
	s := &Slice{m: &Manager{o: &Options{Keyspace: Keyspace{Name: "k", Shards: 1}}}, meter: newMeter(newLanes(), Range{}, time.Now())}
	s.serve(Range{})
	keys := make([]string, 1024)
	for i := range keys {
		keys[i] = fmt.Sprintf("customer-%d", i)
	}
	b.ReportAllocs()
	b.SetParallelism(8)
	b.RunParallel(func(pb *testing.PB) {
		for i := 0; pb.Next(); i++ {
			s.Add(keys[i%len(keys)], 1)
		}
	})
}
