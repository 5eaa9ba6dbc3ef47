//go:build unix

package main

import (
	"strings"
	"testing"

	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/follower"
)

const twoAirports = flightsHeader + `
11,2001-01-01T00:47,DTW,LAS,10,1750
12,2001-01-01T01:10,HNL,LAS,-5,2762
13,2001-01-01T02:10,DTW,LAS,30,1750
`

// TestBoard: a board built from the right decisions, with any tokens and batches, equals the file.
// Any other board differs.
func TestBoard(t *testing.T) {
	t.Parallel()
	flights, err := parseTimetable(strings.NewReader(twoAirports))
	if err != nil {
		t.Fatal(err)
	}
	began := monotonic()
	dtw, hnl := truth(flights.from["DTW"]), truth(flights.from["HNL"])
	for i := range dtw {
		dtw[i].Token, dtw[i].At = int64(i)+7, began+1
	}
	wrong := dtw[1]
	wrong.Total++
	for _, c := range []struct {
		name    string
		batches [][]decision // of DTW
		want    bool
	}{
		{"whole", [][]decision{dtw}, true},
		{"in two batches", [][]decision{dtw[:1], dtw[1:]}, true},
		{"lost", [][]decision{dtw[:1]}, false},
		{"doubled", [][]decision{dtw, dtw[1:]}, false},
		{"out of order", [][]decision{dtw[1:], dtw[:1]}, false},
		{"wrong figures", [][]decision{{dtw[0], wrong}}, false},
		{"no airport", nil, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			b := newBoard(began)
			put := func(airport string, list []decision) {
				batch := follower.Batch{From: follower.Position{Shard: airport}}
				for _, d := range list {
					batch.Entries = append(batch.Entries, core.Entry{Payload: d.encode()})
				}
				if err := b.apply(t.Context(), batch); err != nil {
					t.Fatal(err)
				}
			}
			n := len(hnl)
			for _, batch := range c.batches {
				put("DTW", batch)
				n += len(batch)
			}
			put("HNL", hnl) // decided before this process began, so its lag is meaningless
			e := b.shown()
			if got := e.Board == trueBoard(flights); got != c.want {
				t.Errorf("equals the file: %v, want %v", got, c.want)
			}
			if e.Count != n || len(e.Lags) != n-len(hnl) {
				t.Errorf("%d entries, %d lags, want %d and %d", e.Count, len(e.Lags), n, n-len(hnl))
			}
		})
	}
}

// TestBoardSamples checks that the sample of lags is limited and fits into one line.
func TestBoardSamples(t *testing.T) {
	t.Parallel()
	b := newBoard(0)
	d := decision{At: 1}
	batch := follower.Batch{From: follower.Position{Shard: "DTW"}, Entries: []core.Entry{{Payload: d.encode()}}}
	for range maxLags + 100 {
		if err := b.apply(t.Context(), batch); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(b.shown().Lags); n != maxLags {
		t.Errorf("%d lags, want %d", n, maxLags)
	}
}
