package sharding

import "container/heap"

// heirs names, for each shard, the member that takes it over when its owner dies:
// the shards of each member are dealt out so that the others are as even
// afterwards as a plan would have them. Every member computes the same from the
// same table, so a death is answered at once, by one claim per heir, and the plan
// that follows finds nothing to move. Rules are left to that plan. None where
// there is nobody else.
func heirs(members []Member, owner []int32) []int32 {
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
		q = q[:0]
		h := fnv1a(string(members[dead].ID))
		for m := range members {
			if x := &members[m]; m != dead && x.ID != "" && !x.Drain && x.Weight > 0 {
				q = append(q, bid{float64(have[m]+1) / float64(x.Weight), rendezvous(h, fnv1a(x.Node)), int32(m)})
			}
		}
		if len(q) == 0 {
			continue
		}
		heap.Init(&q)
		for _, s := range list {
			out[s] = q[0].member
			q[0].load += 1 / float64(members[q[0].member].Weight)
			heap.Fix(&q, 0)
		}
	}
	return out
}

// A bid is what a member would have with one shard more, for its weight.
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

// Push and Pop are there for heap.Interface; the heap never changes its size.
func (b *bids) Push(any) {}

// Pop implements heap.Interface.
func (b *bids) Pop() any { return nil }
