package history

import (
	"github.com/tenure-go/tenure/core/driver"
)

// lives contains the known beginnings and ends of sessions.
type lives struct {
	node       map[driver.SessionID]string  // for sessions whose join is in the history
	joined     map[driver.SessionID]Instant // earliest call that could have begun the session
	ends       map[driver.SessionID]Instant // earliest call that could have ended it
	supersedes map[string][]*Operation      // joins that supersede, by node
}

func endings(x *index) *lives {
	l := &lives{
		node:       map[driver.SessionID]string{},
		joined:     map[driver.SessionID]Instant{},
		ends:       map[driver.SessionID]Instant{},
		supersedes: map[string][]*Operation{},
	}
	for _, op := range x.all {
		if op.Outcome == Refused {
			continue
		}
		switch op.Kind {
		case Join:
			l.node[op.Session] = op.Node
			earliest(l.joined, op.Session, op.Call)
			if op.Supersede {
				l.supersedes[op.Node] = append(l.supersedes[op.Node], op)
			}
		case Evict:
			earliest(l.ends, op.Target, op.Call)
		case Leave:
			earliest(l.ends, op.Session, op.Call)
		default: // the others neither begin nor end a session
		}
	}
	return l
}

// earliest keeps the earliest Instant for each key.
func earliest[K comparable](of map[K]Instant, key K, at Instant) {
	if first, ok := of[key]; !ok || at < first {
		of[key] = at
	}
}

// superseded reports whether a session that superseded s could have joined by the given time. The
// method ignores sessions that joined before s.
func (l *lives) superseded(s driver.SessionID, by Instant) bool {
	node, known := l.node[s]
	if !known {
		return false
	}
	for _, op := range l.supersedes[node] {
		before := op.Outcome == OK && op.by(l.joined[s])
		if op.Session != s && op.Call <= by && !before {
			return true
		}
	}
	return false
}

// attempts returns the claims and transfers that pick selects and that may have taken effect. A
// repeated claim may find that an earlier claim succeeded. Therefore, checks compare attempts
// instead of operations.
func attempts(x *index, pick func(*Operation) bool) map[attempt]bool {
	out := map[attempt]bool{}
	for _, op := range x.all {
		if op.Outcome != Refused && pick(op) {
			out[op.attempt()] = true
		}
	}
	return out
}

func preempts(op *Operation) bool { return op.Kind == Acquire && op.Preempt }

func transfers(op *Operation) bool { return op.Kind == Transfer }

// takeoverAfterEnd finds claims that took a shard, without preemption, from a session that cannot
// have ended earlier (A1). It checks only sessions whose join is in the history.
func takeoverAfterEnd(x *index) []Finding {
	l := endings(x)
	preempted, given := attempts(x, preempts), attempts(x, transfers)
	var out []Finding
	for _, op := range kind(x.all, Acquire, OK) {
		holder := op.Seen.Session
		if _, known := l.node[holder]; holder == "" || preempted[op.attempt()] || given[op.attempt()] || !known {
			continue
		}
		if at, ended := l.ends[holder]; ended && at <= op.Return || l.superseded(holder, op.Return) {
			continue
		}
		out = append(out, finding("A1", CheckTakeover, op.Shard, []*Operation{op},
			"%s took the shard from %s, which lived: nothing that could end it had been called, and the claim did not "+
				"preempt", op.Session, holder))
	}
	return out
}
