package history

import (
	"cmp"
	"slices"

	"github.com/tenure-go/tenure/core/driver"
)

// grant is one lease as its claimers saw it. It was granted between first, the earliest call that
// could have caused it, and last, the earliest reply with it.
type grant struct {
	fence       driver.Fence
	first, last Instant
	by          *Operation // the operation with the earliest reply
}

// attempt identifies equal claims. A later one may find the success of an earlier one (rule A3),
// because the record names the receiver and the former lease. So a claim may also find a transfer.
type attempt struct {
	shard    driver.ShardID
	receiver driver.SessionID
	from     driver.Owner
}

func (o *Operation) attempt() attempt {
	if o.Kind == Transfer {
		return attempt{o.Shard, o.Target, driver.Owner{Session: o.Fence.Session, Token: o.Fence.Token}}
	}
	return attempt{o.Shard, o.Session, o.Seen}
}

// grants returns every granted lease, in the order of the tokens.
func grants(ops []*Operation) []*grant {
	first := map[attempt]Instant{}
	byFence := map[driver.Fence]*grant{}
	var out []*grant
	for _, op := range ops {
		if op.Kind != Acquire && op.Kind != Transfer || op.Outcome == Refused {
			continue
		}
		a := op.attempt()
		if at, ok := first[a]; !ok || op.Call < at {
			first[a] = op.Call
		}
		if op.Outcome != OK {
			continue
		}
		g := byFence[op.Granted]
		if g == nil {
			g = &grant{fence: op.Granted, first: op.Call, last: op.Return, by: op}
			byFence[op.Granted] = g
			out = append(out, g)
		}
		if op.Return < g.last {
			g.last, g.by = op.Return, op
		}
		g.first = min(g.first, first[a])
	}
	slices.SortStableFunc(out, func(a, b *grant) int { return cmp.Compare(a.fence.Token, b.fence.Token) })
	return out
}
