package assign

import (
	"container/heap"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/tenure-go/tenure/internal/keyspace"
)

// Heirs returns, for each shard, the member that takes it over when its owner dies, or None if
// there is no other member. Heirs distributes each member's shards among the other members as
// evenly as a plan would. Every member computes the same heirs from the same table. After a death,
// each heir therefore claims its shards immediately, and the next plan need not move any shard.
// Heirs ignores rules, which only plans apply.
func Heirs(members []Member, owner []int32) []int32 {
	out := make([]int32, len(owner))
	have := make([]int, len(members))
	count := make([]int32, len(members)+1)
	for s, o := range owner {
		out[s] = None
		if o != None {
			have[o]++
			count[o+1]++
		}
	}
	for m := range members {
		count[m+1] += count[m]
	}
	sorted, next := make([]int32, count[len(members)]), append([]int32(nil), count...)
	for s, o := range owner {
		if o != None {
			sorted[next[o]] = int32(s)
			next[o]++
		}
	}
	q := make(bids, 0, len(members))
	for dead := range members {
		list := sorted[count[dead]:count[dead+1]]
		if len(list) == 0 {
			continue
		}
		// The order is random. If the same shards always moved together, the assigner could not
		// identify the shard that kills its owners.
		rand.New(rand.NewPCG(keyspace.FNV(string(members[dead].ID)), 0)).Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
		// A member in the dead member's zone gets at most twice the share that a plan would give
		// it, so that a death does not overload the zone.
		near := deal(q[:0], members, dead, have, list, out, func(x *Member, even float64) int {
			if x.Zone != members[dead].Zone {
				return 0
			}
			return 2 * int(math.Ceil(even*float64(x.Weight)))
		})
		deal(q[:0], members, dead, have, list[near:], out, func(*Member, float64) int { return len(owner) })
		for _, s := range list {
			if out[s] != None {
				have[out[s]]--
			}
		}
	}
	return out
}

// deal distributes a dead member's shards evenly among the others, up to each member's limit from
// the function most, and returns the number of shards that got an heir. For the function most, even
// is the average number of shards per unit of weight, without the dead member.
func deal(q bids, members []Member, dead int, have []int, list, out []int32, most func(x *Member, even float64) int) int {
	h := keyspace.FNV(string(members[dead].ID))
	weight, all := 0.0, 0
	for m := range members {
		all += have[m]
		if x := &members[m]; m != dead && x.ID != "" && !x.Drain && x.Weight > 0 {
			weight += float64(x.Weight)
			q = append(q, bid{float64(have[m]+1) / float64(x.Weight), keyspace.Rank(h, keyspace.FNV(x.Node)), int32(m)})
		}
	}
	even := float64(all) / weight
	q = slices.DeleteFunc(q, func(b bid) bool { return most(&members[b.member], even) <= have[b.member] })
	heap.Init(&q)
	for i, s := range list {
		if len(q) == 0 {
			return i
		}
		m := q[0].member
		out[s] = m
		if have[m]++; have[m] >= most(&members[m], even) {
			heap.Pop(&q)
			continue
		}
		q[0].load += 1 / float64(members[m].Weight)
		q[0].tie >>= 32 // this keeps as few shards as possible together
		heap.Fix(&q, 0)
	}
	return len(list)
}

// A bid is the load that a member would have with one more shard, relative to its weight.
type bid struct {
	load   float64
	tie    uint64
	member int32
}

type bids []bid

func (b bids) Len() int      { return len(b) }
func (b bids) Swap(i, j int) { b[i], b[j] = b[j], b[i] }
func (b bids) Less(i, j int) bool {
	return b[i].load < b[j].load || b[i].load == b[j].load && (b[i].tie > b[j].tie || b[i].tie == b[j].tie && b[i].member < b[j].member)
}

// Push implements heap.Interface, but is never called.
func (b *bids) Push(any) {}

// Pop implements heap.Interface.
func (b *bids) Pop() any {
	*b = (*b)[:len(*b)-1]
	return nil
}
