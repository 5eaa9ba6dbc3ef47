package consul

import "time"

// Bounds of a blocked query.
const (
	// waitTime is how long a query blocks. Consul adds up to a sixteenth of it, so
	// that not all clients ask again at once. A connection that was lost in silence
	// is noticed once waitGrace has passed as well, and changes meanwhile are known
	// as late.
	waitTime = 5 * time.Second
	// waitGrace is how much later than that an answer may come before the
	// connection counts as lost.
	waitGrace = 3 * time.Second
	// noticed is how late a query notices that its connection was lost.
	noticed = waitTime + waitTime/16 + waitGrace
	// idlePace is the time between queries that returned nothing new with an index
	// that went back or stood still: at most two a second.
	idlePace = 500 * time.Millisecond
	// spuriousPace is the same with an index that moved on. The index of an empty
	// prefix is that of the whole store.
	spuriousPace = 20 * time.Millisecond
)

// answer is the answer to a blocked query.
type answer struct {
	asked   uint64 // the index that was asked with; 0 does not block
	index   uint64 // X-Consul-Index
	changed bool   // the records differ from those delivered before
	waited  bool   // the query blocked for its whole time
}

// turn returns the next step after an answer: the index to ask with, and the pause
// before. idle is the number of answers in a row without news, this one included;
// the caller keeps it.
//
// The documented rules: an index that went back (the server was restored, or forgot
// the last deletion) starts again at 0; an index below 1 counts as 1, because 0
// would not block; an answer is no proof of a change; and clients limit their rate.
// The first answer in vain is free, because the rules above cause one.
func turn(a answer, idle int) (next uint64, pause time.Duration) {
	next = max(a.index, 1)
	if next < a.asked {
		next = 0
	}
	switch {
	case a.changed || a.waited || idle <= 1:
		return next, 0
	case a.index > a.asked && a.asked > 0:
		return next, spuriousPace
	}
	return next, idlePace
}
