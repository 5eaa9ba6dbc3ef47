package history

import (
	"cmp"
	"slices"

	"github.com/tenure-go/tenure/core/driver"
)

// grant is one lease, according to its claimers. The store granted it between the earliest call
// that could have caused the grant (first) and the earliest reply that shows it (last).
type grant struct {
	fence       driver.Fence
	first, last Instant
	by          *Operation // the operation with the earliest reply
}

// attempt identifies equal claims. A shard's record contains the receiver and the former lease. A
// claim may therefore find that an equal claim or transfer has already succeeded (rule A3).
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

// grants returns every granted lease, in token order.
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
