package history

import (
	"cmp"
	"maps"
	"math"
	"slices"

	"github.com/tenure-go/tenure/core/driver"
)

// History contains the recorded operations, in the order of their calls. A History is a plain
// value, which this package never changes.
type History struct {
	Operations []Operation
}

// Merge merges histories.
func Merge(parts ...*History) *History {
	var out []Operation
	for _, h := range parts {
		out = append(out, h.Operations...)
	}
	slices.SortStableFunc(out, func(a, b Operation) int {
		return cmp.Or(cmp.Compare(a.Call, b.Call), cmp.Compare(a.Process, b.Process), cmp.Compare(a.ID, b.ID))
	})
	return &History{Operations: out}
}

// Count returns the number of operations with the given kind and outcome. A run can use Count to
// detect too little traffic.
func (h *History) Count(k Kind, o Outcome) int {
	n := 0
	for i := range h.Operations {
		if h.Operations[i].Kind == k && h.Operations[i].Outcome == o {
			n++
		}
	}
	return n
}

const never Instant = math.MaxInt64

// index groups a history's operations by shard.
type index struct {
	all    []*Operation
	shards []driver.ShardID // sorted
	of     map[driver.ShardID][]*Operation
}

func newIndex(h *History) *index {
	x := &index{of: map[driver.ShardID][]*Operation{}}
	for i := range h.Operations {
		op := &h.Operations[i]
		x.all = append(x.all, op)
		if op.Shard != "" {
			x.of[op.Shard] = append(x.of[op.Shard], op)
		}
	}
	x.shards = slices.Sorted(maps.Keys(x.of))
	return x
}

// kind returns the operations of kind k with outcome o. An empty k or o matches all operations.
func kind(ops []*Operation, k Kind, o Outcome) []*Operation {
	var out []*Operation
	for _, op := range ops {
		if op.Kind == k && (o == "" || op.Outcome == o) {
			out = append(out, op)
		}
	}
	return out
}
