package main

import (
	"cmp"
	"slices"
	"time"
)

// A lease is a lease as the members reported it. Instants are of the host's monotonic clock, in
// nanoseconds; zero means not yet.
type lease struct {
	member  string
	token   int64
	granted int64
	resumed int64
	ended   int64
	planned bool // ended on purpose: drained and handed over
}

// Names of the signals of faults.
const (
	sigKill = "SIGKILL"
	sigStop = "SIGSTOP"
)

// A fault is a signal that the director sent to a member.
type fault struct {
	member string
	signal string
	at     int64
}

// A passage is the move of an airport from one member to another.
type passage struct {
	airport  string
	from, to lease
	signal   string        // of the fault that made it a takeover; empty for a planned hand-over
	took     time.Duration // from the fault, or the end of the previous lease, to the resumption
}

// history is what the director knows about leases and decisions from the members' events. Events of
// different members may be applied in any order.
type history struct {
	leases  map[string][]lease // by airport, by token
	counts  map[string]int     // decisions accepted, by airport
	decided int                // their sum
	granted int                // number of leases
	faults  []fault
	zombies []write // sent late, with their outcome
	plans   int     // number of plans that assigners wrote

	reshares []reshare
	boards   map[string]string // the members' boards at the end
	lags     []float64         // of their boards, milliseconds

	serverAway []time.Duration // time of each restart of the server, from its kill
}

func newHistory() *history {
	return &history{leases: map[string][]lease{}, counts: map[string]int{}, boards: map[string]string{}}
}

func (h *history) apply(member string, e event) {
	switch e.Is {
	case isGranted:
		l := h.lease(e.Airport, e.Token)
		l.member, l.granted = member, e.At
		h.granted++
	case isResumed:
		h.lease(e.Airport, e.Token).resumed = e.At
		h.count(e.Airport, e.Count)
	case isWrote:
		h.count(e.Airport, e.Count)
	case isEnded:
		l := h.lease(e.Airport, e.Token)
		l.ended, l.planned = e.At, e.Planned
	case isAnswered:
		h.zombies = append(h.zombies, e.Writes...)
	case isPlanned:
		h.plans++
	case isShown:
		h.boards[member] = e.Board
		for _, lag := range e.Lags {
			h.lags = append(h.lags, float64(lag)/1000)
		}
	}
}

// lease returns the record of an airport's lease, and makes it if it is new. The pointer is valid
// until the next call.
func (h *history) lease(airport string, token int64) *lease {
	ls := h.leases[airport]
	i, found := slices.BinarySearchFunc(ls, token, func(l lease, t int64) int { return cmp.Compare(l.token, t) })
	if !found {
		ls = slices.Insert(ls, i, lease{token: token})
		h.leases[airport] = ls
	}
	return &ls[i]
}

func (h *history) count(airport string, n int) {
	if n > h.counts[airport] {
		h.decided += n - h.counts[airport]
		h.counts[airport] = n
	}
}

// addFault records a signal that was sent to a member.
func (h *history) addFault(member, signal string, at int64) {
	h.faults = append(h.faults, fault{member, signal, at})
}

// newest returns the airport's lease with the highest token, or the zero lease.
func (h *history) newest(airport string) lease {
	ls := h.leases[airport]
	if len(ls) == 0 {
		return lease{}
	}
	return ls[len(ls)-1]
}

// owned returns the airports whose newest lease is the member's and has not ended, sorted by
// name.
func (h *history) owned(member string) []string {
	var out []string
	for a := range h.leases {
		if l := h.newest(a); l.member == member && l.ended == 0 {
			out = append(out, a)
		}
	}
	slices.Sort(out)
	return out
}

// passages returns the completed takeovers and planned hand-overs, in order of completion. If
// the previous owner had a fault, the passage is a takeover.
func (h *history) passages() []passage {
	var out []passage
	for airport, ls := range h.leases {
		for i := 1; i < len(ls); i++ {
			from, to := ls[i-1], ls[i]
			if to.resumed == 0 || from.member == to.member {
				continue
			}
			p := passage{airport: airport, from: from, to: to}
			if s, ok := h.faultBetween(from, to); ok {
				p.signal, p.took = s.signal, time.Duration(to.resumed-s.at)
			} else if from.planned {
				p.took = time.Duration(to.resumed - from.ended)
			} else {
				continue
			}
			out = append(out, p)
		}
	}
	slices.SortFunc(out, func(a, b passage) int {
		return cmp.Or(cmp.Compare(a.to.resumed, b.to.resumed), cmp.Compare(a.airport, b.airport))
	})
	return out
}

func (h *history) faultBetween(from, to lease) (fault, bool) {
	for _, s := range h.faults {
		if s.member == from.member && from.granted <= s.at && s.at <= to.granted &&
			(from.ended == 0 || s.at < from.ended) {
			return s, true
		}
	}
	return fault{}, false
}
