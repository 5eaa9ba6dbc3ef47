package main

import "math/rand/v2"

// A schedule lists the faults in a run. Each fault has an affected member and a number of
// departures to clear first. A schedule depends only on the seed.
type schedule struct {
	kill, stop, drain, leave         string // node labels of the affected members
	killAt, stopAt, drainAt, leaveAt int
	joinAt                           int    // when an additional member joins
	restartAt                        int    // when the server is restarted, if the run started it
	stopPick                         uint64 // chooses one of the stopped member's busy airports
}

// newSchedule spreads the faults over a run with the given total number of departures. With four or
// more members, each fault affects a different member. With three members, the killed member later
// leaves.
func newSchedule(seed uint64, members []string, total int) schedule {
	r := rand.New(rand.NewPCG(seed, 0))
	order := r.Perm(len(members))
	at := func(from, to float64) int { return int(float64(total) * (from + (to-from)*r.Float64())) }
	s := schedule{
		kill: members[order[0]], stop: members[order[1]], drain: members[order[2%len(order)]],
		leave:  members[order[3%len(order)]],
		killAt: at(0.10, 0.16), joinAt: at(0.28, 0.32), stopAt: at(0.42, 0.48), restartAt: at(0.60, 0.64),
		drainAt: at(0.74, 0.78), leaveAt: at(0.86, 0.90),
		stopPick: r.Uint64(),
	}
	return s
}
