package history

import (
	"github.com/tenure-go/tenure/core/driver"
)

// oneLife finds sessions that do not have exactly one life, from a join to an eviction or a leave.
// It finds two joins with the same id (M3), two evictions of one session, and an eviction of a
// session that had left (M2). It also finds leases and evictions by an ended session (M1), and
// leases transferred to an ended session (A5).
func oneLife(x *index) []Finding {
	ended := endsCertain(x)
	joins, evicts := map[driver.SessionID]*Operation{}, map[driver.SessionID]*Operation{}
	var out []Finding
	for _, op := range x.all {
		if op.Outcome != OK {
			continue
		}
		switch op.Kind {
		case Join:
			if first := joins[op.Session]; first != nil {
				out = append(out, finding("M3", CheckLife, "", []*Operation{first, op}, "session %s joined twice",
					op.Session))
			}
			joins[op.Session] = op
		case Evict:
			end := ended[op.Target]
			switch first := evicts[op.Target]; {
			case first != nil:
				out = append(out, finding("M2", CheckLife, "", []*Operation{first, op}, "session %s was evicted twice",
					op.Target))
			case end != nil && end.by(op.Call):
				out = append(out, finding("M2", CheckLife, "", []*Operation{end, op},
					"session %s was evicted although it had left before", op.Target))
			}
			evicts[op.Target] = op
			if end := ended[op.Session]; end != nil && end.by(op.Call) {
				out = append(out, finding("M1", CheckLife, "", []*Operation{end, op},
					"session %s evicted %s after its own end", op.Session, op.Target))
			}
		default: // the others end no life
		}
	}
	// A repeated claim or hand-over may find that an attempt before the session's end succeeded
	// (A3). Therefore, the check uses the first call that could have created the lease.
	for _, g := range grants(x.all) {
		to := g.fence.Session
		if end := ended[to]; end != nil && end.by(g.first) {
			rule, how := "M1", "took"
			if g.by.Kind == Transfer {
				rule, how = "A5", "was given"
			}
			out = append(out, finding(rule, CheckLife, g.fence.Shard, []*Operation{end, g.by},
				"session %s %s token %d after its end", to, how, g.fence.Token))
		}
		if from := g.by.Session; g.by.Kind == Transfer && from != to {
			if end := ended[from]; end != nil && end.by(g.first) {
				out = append(out, finding("M1", CheckLife, g.fence.Shard, []*Operation{end, g.by},
					"session %s handed token %d over after its own end", from, g.by.Fence.Token))
			}
		}
	}
	return out
}

// endsCertain returns the eviction or leave that ended each session: the one answered first, if
// there were both.
func endsCertain(x *index) map[driver.SessionID]*Operation {
	ended := map[driver.SessionID]*Operation{}
	for _, op := range x.all {
		if op.Outcome != OK {
			continue
		}
		var s driver.SessionID
		switch op.Kind {
		case Evict:
			s = op.Target
		case Leave:
			s = op.Session
		default:
			continue
		}
		if first := ended[s]; first == nil || op.Return < first.Return {
			ended[s] = op
		}
	}
	return ended
}
