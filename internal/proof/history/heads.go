package history

import (
	"cmp"
	"slices"

	"github.com/tenure-go/tenure/core/driver"
)

// These are the granted claims and transfers, in token order.
func granted(ops []*Operation) []*Operation {
	out := slices.Concat(kind(ops, Acquire, OK), kind(ops, Transfer, OK))
	slices.SortStableFunc(out, func(a, b *Operation) int { return cmp.Compare(a.Granted.Token, b.Granted.Token) })
	return out
}

// The result is the index of the first grant whose token is at least token.
func from(granted []*Operation, token driver.Token) int {
	i, _ := slices.BinarySearchFunc(granted, token, func(op *Operation, t driver.Token) int {
		return cmp.Compare(op.Granted.Token, t)
	})
	return i
}

// headsOfGrants finds accepted writes that contradict a grant's head (F1). The head shows how many
// writes were made under all earlier leases.
func headsOfGrants(x *index) []Finding {
	var out []Finding
	for _, shard := range x.shards {
		gs := granted(x.of[shard])
		// least[i] is the lowest head of grant i and all later grants, and most[i] is the highest
		// head of the grants before i. A repeated claim may read a head that the next owner has
		// already changed.
		least, most := make([]*Operation, len(gs)+1), make([]*Operation, len(gs)+1)
		for i, g := range gs {
			most[i+1] = most[i]
			if g.Head.Token <= g.Granted.Token && (most[i] == nil || g.Head.Number > most[i].Head.Number) {
				most[i+1] = g
			}
		}
		for i, g := range slices.Backward(gs) {
			least[i] = least[i+1]
			if least[i] == nil || g.Head.Number < least[i].Head.Number {
				least[i] = g
			}
		}
		for _, w := range kind(x.of[shard], Commit, OK) {
			if g := least[from(gs, w.Fence.Token+1)]; g != nil && w.Number > g.Head.Number {
				out = append(out, finding("F1", CheckHeads, shard, []*Operation{g, w},
					"write %d was accepted under token %d, although token %d was granted at a head of %d writes",
					w.Number, w.Fence.Token, g.Granted.Token, g.Head.Number))
			}
			if g := most[from(gs, w.Fence.Token)]; g != nil && w.Number <= g.Head.Number {
				out = append(out, finding("F1", CheckHeads, shard, []*Operation{g, w},
					"write %d under token %d lies below the head of %d writes that the grant of token %d reported",
					w.Number, w.Fence.Token, g.Head.Number, g.Granted.Token))
			}
		}
	}
	return out
}

// fencedForAReason finds writes that the store refused as fenced although nothing could have ended
// their lease (F1). It checks only leases whose grant is in the history.
func fencedForAReason(x *index) []Finding {
	var out []Finding
	for _, shard := range x.shards {
		ops := x.of[shard]
		gs := granted(ops)
		known := map[driver.Fence]bool{}
		early := make([]Instant, len(gs)+1) // earliest call of the grants from i on
		early[len(gs)] = never
		for i, g := range slices.Backward(gs) {
			known[g.Granted] = true
			early[i] = min(early[i+1], g.Call)
		}
		unanswered := never
		released := map[driver.Fence]Instant{}
		for _, op := range ops {
			switch {
			case op.Kind == Release && op.Outcome != Refused:
				earliest(released, op.Fence, op.Call)
			case (op.Kind == Acquire || op.Kind == Transfer) && op.open():
				unanswered = min(unanswered, op.Call)
			}
		}
		for _, w := range kind(ops, Commit, Refused) {
			if w.Reason != ReasonFenced || !known[w.Fence] {
				continue
			}
			end := min(unanswered, early[from(gs, w.Fence.Token+1)])
			if at, ok := released[w.Fence]; ok {
				end = min(end, at)
			}
			if end > w.Return {
				out = append(out, finding("F1", CheckFenced, shard, []*Operation{w},
					"a write under token %d was fenced, although nothing had ended that lease", w.Fence.Token))
			}
		}
	}
	return out
}
