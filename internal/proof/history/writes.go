package history

import (
	"cmp"
	"slices"

	"github.com/tenure-go/tenure/core/driver"
)

// tokenOrder finds accepted writes with a lower token than an earlier write (S3). It checks the
// writes in the order of their numbers and in chronological order.
func tokenOrder(x *index) []Finding {
	var out []Finding
	for _, shard := range x.shards {
		accepted := kind(x.of[shard], Commit, OK)
		slices.SortStableFunc(accepted, func(a, b *Operation) int { return cmp.Compare(a.Number, b.Number) })
		for i := 1; i < len(accepted); i++ {
			if a, b := accepted[i-1], accepted[i]; a.Fence.Token > b.Fence.Token {
				out = append(out, finding("S3", CheckTokenOrder, shard, []*Operation{a, b},
					"write %d was accepted under token %d after write %d under token %d", b.Number, b.Fence.Token,
					a.Number, a.Fence.Token))
			}
		}
		// The loop runs from the highest token down. early is the write under a higher token that
		// was answered first.
		slices.SortStableFunc(accepted, func(a, b *Operation) int { return cmp.Compare(b.Fence.Token, a.Fence.Token) })
		var early *Operation
		for start := 0; start < len(accepted); {
			end := start
			for end < len(accepted) && accepted[end].Fence.Token == accepted[start].Fence.Token {
				if early != nil && early.Return < accepted[end].Call {
					out = append(out, finding("S3", CheckTokenOrder, shard, []*Operation{early, accepted[end]},
						"a write under token %d was accepted, although one under token %d had been accepted before it "+
							"was sent", accepted[end].Fence.Token, early.Fence.Token))
				}
				end++
			}
			for _, op := range accepted[start:end] {
				if early == nil || op.Return < early.Return {
					early = op
				}
			}
			start = end
		}
	}
	return out
}

// proof is a reply that shows that a lease was granted.
type proof struct {
	op    *Operation
	token driver.Token
}

// The results are the proofs of grants, in reply order, and the first release of each lease.
func ends(ops []*Operation) (proofs []proof, released map[driver.Fence]*Operation) {
	released = map[driver.Fence]*Operation{}
	for _, op := range ops {
		switch {
		case op.Return == 0:
			continue
		case op.Outcome == OK && op.Granted.Token > 0:
			proofs = append(proofs, proof{op, op.Granted.Token})
		case op.Outcome == Refused && op.Current.Token > 0:
			proofs = append(proofs, proof{op, op.Current.Token})
		}
		if op.Outcome == OK && op.Kind == Release {
			if first := released[op.Fence]; first == nil || op.Return < first.Return {
				released[op.Fence] = op
			}
		}
	}
	slices.SortStableFunc(proofs, func(a, b proof) int { return byReturn(a.op, b.op) })
	return proofs, released
}

// nothingSuperseded finds accepted writes that were sent too late. An earlier answer had shown that
// a higher token was granted, or that the lease was released (S3, F1).
func nothingSuperseded(x *index) []Finding {
	var out []Finding
	for _, shard := range x.shards {
		proofs, released := ends(x.of[shard])
		var highest proof
		// The loop visits the commits in the order of their calls.
		for _, w := range kind(x.of[shard], Commit, OK) {
			for len(proofs) > 0 && proofs[0].op.by(w.Call) {
				if proofs[0].token > highest.token {
					highest = proofs[0]
				}
				proofs = proofs[1:]
			}
			if highest.token > w.Fence.Token {
				out = append(out, finding("S3", CheckSuperseded, shard, []*Operation{highest.op, w},
					"write %d was accepted under token %d, sent when token %d was known to be granted", w.Number,
					w.Fence.Token, highest.token))
			}
			if r := released[w.Fence]; r != nil && r.by(w.Call) {
				out = append(out, finding("F1", CheckSuperseded, shard, []*Operation{r, w},
					"write %d was accepted under token %d, sent when that lease had been released", w.Number,
					w.Fence.Token))
			}
		}
	}
	return out
}
