package history

import (
	"cmp"
	"slices"

	"github.com/tenure-go/tenure/core/driver"
)

// granted returns the granted claims and transfers, by their tokens.
func granted(ops []*Operation) []*Operation {
	out := slices.Concat(kind(ops, Acquire, OK), kind(ops, Transfer, OK))
	slices.SortStableFunc(out, func(a, b *Operation) int { return cmp.Compare(a.Granted.Token, b.Granted.Token) })
	return out
}

// from returns the index of the first grant with at least this token.
func from(granted []*Operation, token driver.Token) int {
	i, _ := slices.BinarySearchFunc(granted, token, func(op *Operation, t driver.Token) int {
		return cmp.Compare(op.Granted.Token, t)
	})
	return i
}

// headsOfGrants finds accepted writes that contradict the head of a grant (F1). A grant shows how
// many writes there were under all leases before it.
func headsOfGrants(x *index) []Finding {
	var out []Finding
	for _, shard := range x.shards {
		gs := granted(x.of[shard])
		// least[i] has the lowest head of the grants from i on, most[i] the highest of the grants
		// before i. A repeated claim may read the head later, after the next owner has moved it.
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

// fencedForAReason finds writes that were refused as fenced before anything can have ended their
// lease (F1). It judges only leases whose grant is in the history.
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
