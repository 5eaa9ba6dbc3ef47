package main

import (
	"encoding/json"
	"fmt"
	"math"
)

// A decision is the entry that an airport's owner appends for one departure. The decision's figures
// include that departure, so the next owner needs only the last decision in the log.
type decision struct {
	Departure int     `json:"departure"` // id of the departure in the flights file
	Count     int     `json:"count"`     // number of departures so far
	Total     int     `json:"total"`     // total delay so far, in minutes
	Mean      float64 `json:"mean"`      // Total/Count, rounded to a hundredth
	Longest   int     `json:"longest"`   // longest delay so far, in minutes
	Token     int64   `json:"token"`     // token of the lease that the writer believed to hold
	At        int64   `json:"at"`        // time of the decision on the host's monotonic clock, in nanoseconds
}

// The receiver is the decision for the previous departure, or the zero decision for the first
// departure.
func (s decision) next(d departure, token int64) decision {
	n := decision{Departure: d.id, Count: s.Count + 1, Total: s.Total + d.delay, Longest: d.delay, Token: token}
	if s.Count > 0 {
		n.Longest = max(s.Longest, d.delay)
	}
	n.Mean = math.Round(100*float64(n.Total)/float64(n.Count)) / 100
	return n
}

// The file determines every figure except the token and the time.
func (s decision) facts() decision {
	s.Token, s.At = 0, 0
	return s
}

func (s decision) encode() []byte {
	b, err := json.Marshal(s)
	if err != nil {
		panic(err) // cannot fail, because a decision contains only numbers
	}
	return b
}

func decodeDecision(payload []byte) (decision, error) {
	var d decision
	if err := json.Unmarshal(payload, &d); err != nil {
		return decision{}, fmt.Errorf("not a decision: %w", err)
	}
	return d, nil
}

// An airport's log must contain these facts, which are computed from the flights file.
func truth(departures []departure) []decision {
	out := make([]decision, 0, len(departures))
	var d decision
	for _, dep := range departures {
		d = d.next(dep, 0)
		out = append(out, d)
	}
	return out
}
