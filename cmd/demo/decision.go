package main

import (
	"encoding/json"
	"fmt"
	"math"
)

// A decision is the entry that an airport's owner appends for one departure: the airport's figures
// up to and including it. The last decision of a log is all that the next owner needs to continue.
type decision struct {
	Departure int     `json:"departure"` // id in the flights file
	Count     int     `json:"count"`     // departures so far
	Total     int     `json:"total"`     // minutes of delay so far
	Mean      float64 `json:"mean"`      // Total/Count, to a hundredth
	Longest   int     `json:"longest"`   // longest delay so far, minutes
	Token     int64   `json:"token"`     // of the lease that its writer believed to hold
	At        int64   `json:"at"`        // host's monotonic clock when it was written, nanoseconds
}

// next returns the decision for d that follows s. The zero decision comes before the first.
func (s decision) next(d departure, token int64) decision {
	n := decision{Departure: d.id, Count: s.Count + 1, Total: s.Total + d.delay, Longest: d.delay, Token: token}
	if s.Count > 0 {
		n.Longest = max(s.Longest, d.delay)
	}
	n.Mean = math.Round(100*float64(n.Total)/float64(n.Count)) / 100
	return n
}

// facts returns the decision with only the figures that the file determines.
func (s decision) facts() decision {
	s.Token, s.At = 0, 0
	return s
}

func (s decision) encode() []byte {
	b, err := json.Marshal(s)
	if err != nil {
		panic(err) // numbers only: cannot fail
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

// truth returns the facts that an airport's log must hold, computed only from the file.
func truth(departures []departure) []decision {
	out := make([]decision, 0, len(departures))
	var d decision
	for _, dep := range departures {
		d = d.next(dep, 0)
		out = append(out, d)
	}
	return out
}
