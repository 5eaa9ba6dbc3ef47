package history

import (
	"cmp"
	"slices"

	"github.com/tenure-go/tenure/core/driver"
)

// numberSequence checks that accepted writes have the numbers 1, 2, 3 and so on, each once and in
// chronological order (S15). It also checks that the log's entries are numbered without gaps (L1).
// A number may be missing if a write with an unknown outcome used it.
func numberSequence(x *index) []Finding {
	var out []Finding
	for _, shard := range x.shards {
		out = append(out, numbers(shard, x.of[shard])...)
	}
	return out
}

func numbers(shard driver.ShardID, ops []*Operation) (out []Finding) {
	report := func(rule string, ops []*Operation, format string, args ...any) {
		ops = slices.DeleteFunc(ops, func(op *Operation) bool { return op.Kind == "" })
		out = append(out, finding(rule, CheckNumbers, shard, ops, format, args...))
	}
	accepted := kind(ops, Commit, OK)
	slices.SortStableFunc(accepted, func(a, b *Operation) int { return cmp.Compare(a.Number, b.Number) })
	unknown := map[driver.WriteNo]bool{}
	for _, op := range ops {
		if op.Kind == Commit && op.open() {
			unknown[op.Number] = true
		}
	}
	last := &Operation{} // the initial state: number 0 and an empty log
	for _, op := range accepted {
		if op.Head.Number != op.Number || op.Head.Nonce != op.Nonce || op.Head.Token != op.Fence.Token {
			report("S15", []*Operation{op}, "write %d was acknowledged with the head of write %d, nonce %d, token %d",
				op.Number, op.Head.Number, op.Head.Nonce, op.Head.Token)
		}
		switch {
		case op.Number == last.Number:
			report("S15", []*Operation{last, op}, "two writes were accepted as number %d", op.Number)
		case op.Number == last.Number+1:
			if want := last.Head.Seq + driver.Seq(len(op.Entries)); op.Head.Seq != want {
				report("L1", []*Operation{last, op},
					"write %d appended %d entries after entry %d, and left the head at %d", op.Number, len(op.Entries),
					last.Head.Seq, op.Head.Seq)
			}
		default:
			for n := last.Number + 1; n < op.Number; n++ {
				if !unknown[n] {
					report("S15", []*Operation{last, op},
						"write %d follows write %d: number %d was skipped, as no write had it, not even one of "+
							"unknown outcome", op.Number, last.Number, n)
					break
				}
			}
		}
		last = op
	}
	// The loop visits the writes in the order of their calls. newest is the write with the highest
	// number that was answered before the call.
	slices.SortStableFunc(accepted, func(a, b *Operation) int { return cmp.Compare(a.Call, b.Call) })
	answered := slices.SortedFunc(slices.Values(accepted), byReturn)
	newest := &Operation{}
	for _, op := range accepted {
		for len(answered) > 0 && answered[0].Return < op.Call {
			if answered[0].Number > newest.Number {
				newest = answered[0]
			}
			answered = answered[1:]
		}
		if newest.Number > op.Number {
			report("S15", []*Operation{newest, op},
				"write %d was accepted, and sent when write %d had been acknowledged",
				op.Number, newest.Number)
		}
	}
	return out
}
