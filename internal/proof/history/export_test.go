package history

import "slices"

// By reports whether the operation had returned before the instant.
func (o *Operation) By(at Instant) bool { return o.by(at) }

// SameAttempt reports whether one of the two operations may find that the other succeeded.
func (o *Operation) SameAttempt(p *Operation) bool { return o.attempt() == p.attempt() }

// Later returns the operations that were granted a lease of a token above 1, in any
// order.
func Later(h *History) []*Operation {
	all := grants(newIndex(h).all)
	var out []*Operation
	for _, g := range all {
		if slices.ContainsFunc(all, func(o *grant) bool { return o.last < g.first && o.fence.Token > 1 }) {
			out = append(out, g.by)
		}
	}
	return out
}

// Unforced returns the claims that took a shard from a session by neither preemption
// nor transfer.
func Unforced(h *History) []*Operation {
	x := newIndex(h)
	preempted, given := attempts(x, preempts), attempts(x, transfers)
	return slices.DeleteFunc(kind(x.all, Acquire, OK), func(o *Operation) bool {
		return o.Seen.Session == "" || preempted[o.attempt()] || given[o.attempt()]
	})
}
