package main

import (
	"cmp"
	"slices"
	"time"
)

// The members report these facts about a lease. Times are readings of the host's monotonic clock,
// in nanoseconds. A zero time means that the event has not happened yet.
type lease struct {
	member  string
	token   int64
	granted int64
	resumed int64
	ended   int64
	planned bool // the lease ended on purpose: it was drained and handed over
}

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
	signal   string        // the signal that caused the takeover; empty for a planned hand-over
	took     time.Duration // time from the fault, or the end of the previous lease, to the resumption
}

// A history contains the leases and decisions that members reported to the director. The events of
// different members may arrive in any order.
type history struct {
	leases  map[string][]lease // leases by airport, then by token
	counts  map[string]int     // number of accepted decisions, by airport
	decided int                // the sum of counts
	granted int                // number of leases
	faults  []fault
	zombies []write // writes that were sent late, with their outcomes
	plans   int     // number of plans that assigners wrote

	reshares []reshare
	boards   map[string]string // the members' boards at the end
	lags     []float64         // lags of the members' boards, in milliseconds

	serverAway []time.Duration // for each restart of the server, the time since the server was killed
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

// lease returns the record of an airport's lease, creating one if necessary. The pointer is valid
// until the method is called again.
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

func (h *history) addFault(member, signal string, at int64) {
	h.faults = append(h.faults, fault{member, signal, at})
}

// newest returns the airport's lease with the highest token. If the airport has had no lease,
// newest returns the zero lease.
func (h *history) newest(airport string) lease {
	ls := h.leases[airport]
	if len(ls) == 0 {
		return lease{}
	}
	return ls[len(ls)-1]
}

// owned returns the airports, sorted by name, whose newest lease belongs to the member and has not
// ended.
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

// The completed takeovers and planned hand-overs are in order of completion. A passage is a
// takeover if the previous owner had a fault.
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
