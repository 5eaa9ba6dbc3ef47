// Package shape checks the properties that the plans of every assigner must have. The tests of
// packages sharding and sharding/assign use this package.
package shape

import (
	"testing"

	"github.com/tenure-go/tenure/internal/keyspace"
	"github.com/tenure-go/tenure/sharding/assign"
)

// Check fails t unless a plan's splits and merges are possible. They must change each shard at most
// once, and must not change a shard that moves or is busy.
func Check(t testing.TB, c *assign.Cluster, p *assign.Plan) {
	t.Helper()
	touched := map[int32]bool{}
	for _, m := range p.Moves {
		touched[m.Shard] = true
		if s := c.Shards[m.Shard]; m.To == assign.None || s.Busy && (m.Why == assign.Loaded || m.Why == assign.Shared) {
			t.Fatalf("%+v moves %+v", m, s)
		}
	}
	touch := func(s int32) *assign.Shard {
		if touched[s] || c.Shards[s].Busy || c.Frozen {
			t.Fatalf("shard %d is touched twice, or busy", s)
		}
		touched[s] = true
		return &c.Shards[s]
	}
	for _, x := range p.Splits {
		s := touch(x.Shard)
		if len(x.At) == 0 || len(x.At) > keyspace.MaxCuts {
			t.Fatalf("%d cuts", len(x.At))
		}
		last := s.Range.From
		for _, h := range x.At {
			if h <= last || !s.Range.Has(h) {
				t.Fatalf("%v is cut at %x", s.Range, x.At)
			}
			last = h
		}
	}
	for _, m := range p.Merges {
		a, b := touch(m.From), touch(m.To)
		if a.Range.To != b.Range.From && b.Range.To != a.Range.From {
			t.Fatalf("%v and %v are no neighbours", a.Range, b.Range)
		}
	}
}
