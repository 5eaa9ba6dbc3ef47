package main

import "math/rand/v2"

// A schedule lists the faults of one run, with the member of each and the number of departures
// let through before it. It depends only on the seed.
type schedule struct {
	kill, stop, drain, leave         string // node labels
	killAt, stopAt, drainAt, leaveAt int
	joinAt                           int    // of one additional member
	restartAt                        int    // of the server, if it is the run's own
	stopPick                         uint64 // chooses among the victim's busy airports
}

// newSchedule spreads the faults of the members and the server over a run of total departures.
// With four or more members, each fault has its own member. With three, the killed one later
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
