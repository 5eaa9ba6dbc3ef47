package consul

import "time"

// Limits of a blocked query.
const (
	// waitTime is how long a query blocks. Consul adds up to a sixteenth of it, so that clients
	// do not all ask again together. A silent loss of the connection is noticed waitGrace
	// later, and so are the changes of that time.
	waitTime = 5 * time.Second
	// waitGrace is how much longer than waitTime an answer may take before the connection counts as
	// lost.
	waitGrace = 3 * time.Second
	// noticed is the longest time until a query notices that its connection was lost.
	noticed = waitTime + waitTime/16 + waitGrace
	// idlePace is the pause after a query that returned nothing new and an index that went back
	// or stood still. It allows at most two queries a second.
	idlePace = 500 * time.Millisecond
	// spuriousPace is the pause if the index moved on. The index of an empty prefix is that of the
	// whole store.
	spuriousPace = 20 * time.Millisecond
)

// answer is the answer to a blocked query.
type answer struct {
	asked   uint64 // the index that was asked with; 0 does not block
	index   uint64 // X-Consul-Index
	changed bool   // the records differ from those delivered before
	waited  bool   // the query blocked for its whole time
}

// turn returns the next step after an answer, which is the index to ask with and the pause
// before it. idle is the number of consecutive answers without news, this one included. The
// caller keeps it.
//
// turn follows Consul's documented rules. If an index went back, because the server was restored or
// forgot the last deletion, turn starts again at 0. An index below 1 counts as 1, because 0 would
// not block. An answer is no proof of a change. Clients limit their rate. No pause follows the
// first answer without news, because the rules above cause one.
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
