package consul

import "time"

// These constants limit a blocking query.
const (
	// waitTime is the time for which a query blocks. Consul adds up to a sixteenth of waitTime, so
	// that clients do not all query at the same time. If a connection is silently lost, the Backend
	// notices after an additional waitGrace, and then reads the missed changes.
	waitTime = 5 * time.Second
	// waitGrace is the additional time after which the connection is considered lost.
	waitGrace = 3 * time.Second
	// noticed is the maximum time until the Backend notices the loss of a query's connection.
	noticed = waitTime + waitTime/16 + waitGrace
	// idlePace is the pause after a query that returned neither news nor a higher index. It limits
	// the rate to two queries a second.
	idlePace = 500 * time.Millisecond
	// spuriousPace is the pause after a query that returned a higher index but no news. The index
	// of an empty prefix is the index of the whole store.
	spuriousPace = 20 * time.Millisecond
)

// answer describes the result of a blocking query.
type answer struct {
	asked   uint64 // the index in the query; 0 does not block
	index   uint64 // X-Consul-Index
	changed bool   // the records differ from those delivered before
	waited  bool   // the query blocked for its whole time
}

// turn returns the next query's index and the pause before it. The argument idle is the number of
// consecutive answers without news, including this one.
//
// turn follows Consul's documented rules. If an index decreases, because the server was restored or
// forgot the last deletion, turn starts again at 0. Otherwise, an index below 1 becomes 1, because
// a query with index 0 does not block. Because an answer does not prove a change, clients must
// limit their query rate. Under Consul's rules, there is always one answer without news, so no
// pause follows the first one.
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
