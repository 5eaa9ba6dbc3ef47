package main

import "math/rand/v2"

// A schedule is the chaos of one run: which member meets what, and after how
// many departures were let through. It depends on the seed only.
type schedule struct {
	kill, stop, leave       string // node labels
	killAt, stopAt, leaveAt int
	restartAt               int    // of the server, if it is the run's own
	stopPick                uint64 // chooses among the victim's busy airports
}

// newSchedule spreads three strikes at members, and one at the server, over a run
// of total departures. With three or more members each strikes another one.
func newSchedule(seed uint64, members []string, total int) schedule {
	r := rand.New(rand.NewPCG(seed, 0))
	order := r.Perm(len(members))
	at := func(from, to float64) int { return int(float64(total) * (from + (to-from)*r.Float64())) }
	s := schedule{
		kill: members[order[0]], stop: members[order[1]], leave: members[order[2%len(order)]],
		killAt: at(0.12, 0.20), stopAt: at(0.42, 0.50), leaveAt: at(0.76, 0.84),
		stopPick: r.Uint64(),
	}
	s.restartAt = at(0.62, 0.68)
	return s
}
