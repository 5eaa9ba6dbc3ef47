package main

import "fmt"

type entry struct {
	seq     int64
	token   int64 // the token under which the store accepted it
	payload []byte
}

// Mistakes in the logs are counted by kind.
type damage struct {
	Lost       int      `json:"lost"`         // number of departures without a decision
	Doubled    int      `json:"doubled"`      // number of decisions for a departure that already had a decision
	OutOfOrder int      `json:"out_of_order"` // number of decisions for a departure before one that is already decided
	Wrong      int      `json:"wrong"`        // number of decisions with wrong figures
	Superseded int      `json:"superseded"`   // number of entries accepted under a lower token than an earlier entry
	Broken     int      `json:"broken"`       // number of unreadable entries, unknown departures and gaps in the log's numbers
	Examples   []string `json:"examples,omitempty"`
}

const maxExamples = 8

func (d *damage) total() int {
	return d.Lost + d.Doubled + d.OutOfOrder + d.Wrong + d.Superseded + d.Broken
}

func (d *damage) note(counter *int, format string, args ...any) {
	*counter++
	if len(d.Examples) < maxExamples {
		d.Examples = append(d.Examples, fmt.Sprintf(format, args...))
	}
}

// checkLog compares an airport's log with the one computed from the file, and adds its findings to
// d.
func (d *damage) checkLog(airport string, departures []departure, log []entry) {
	want := truth(departures)
	at := make(map[int]int, len(want))
	for i, w := range want {
		at[w.Departure] = i
	}
	seen := make([]bool, len(want))
	newest, highest := -1, int64(0)
	for i, e := range log {
		if e.seq != int64(i)+1 {
			d.note(&d.Broken, "%s: entry %d has number %d", airport, i+1, e.seq)
		}
		got, err := decodeDecision(e.payload)
		pos, known := at[got.Departure]
		if err != nil || !known {
			d.note(&d.Broken, "%s: entry %d is no decision about a departure from here", airport, e.seq)
			continue
		}
		switch highest = max(highest, e.token); {
		case got.Token < highest:
			d.note(&d.Superseded, "%s: entry %d (departure %d) was written under token %d, and accepted when token %d "+
				"had been granted",
				airport, e.seq, got.Departure, got.Token, highest)
		case e.token < highest:
			d.note(&d.Superseded, "%s: entry %d (departure %d) was accepted under token %d after token %d", airport,
				e.seq, got.Departure, e.token, highest)
		}
		highest = max(highest, got.Token)
		switch {
		case seen[pos]:
			d.note(&d.Doubled, "%s: entry %d decides departure %d for the second time", airport, e.seq, got.Departure)
		case pos < newest:
			d.note(&d.OutOfOrder, "%s: entry %d decides departure %d after departure %d", airport, e.seq, got.Departure,
				want[newest].Departure)
		}
		seen[pos] = true
		newest = max(newest, pos)
		if got.facts() != want[pos] {
			d.note(&d.Wrong, "%s: entry %d (departure %d) says count %d, total %d, longest %d; "+
				"the file says %d, %d, %d", airport, e.seq,
				got.Departure, got.Count, got.Total, got.Longest, want[pos].Count, want[pos].Total, want[pos].Longest)
		}
	}
	for i, ok := range seen {
		if !ok {
			d.note(&d.Lost, "%s: departure %d has no decision", airport, want[i].Departure)
		}
	}
}
