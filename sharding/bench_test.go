package sharding

import (
	"fmt"
	"testing"
	"time"

	"github.com/tenure-go/tenure/sharding/assign"
)

// BenchmarkSliceAdd measures the code that an application runs for each request. With 8 goroutines,
// the code takes at most 50 ns and does not allocate.
func BenchmarkSliceAdd(b *testing.B) {
	s := &Slice{m: &Manager{o: &Options{Keyspace: Keyspace{Name: "k", Shards: 1}}}, meter: newMeter(assign.Range{}, time.Now())}
	s.serve(assign.Range{})
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
