package main

import (
	"strings"
	"testing"
)

func TestEmbeddedTimetable(t *testing.T) {
	t.Parallel()
	f, err := openTimetable("")
	if err != nil {
		t.Fatal(err)
	}
	if f.total != 20000 || len(f.airports) != 220 {
		t.Errorf("got %d departures at %d airports, want 20000 at 220", f.total, len(f.airports))
	}
	names, err := airportNames()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range f.airports {
		if names[a] == "" {
			t.Errorf("airport %s has no name", a)
		}
		last := -1
		for _, d := range f.from[a] {
			if d.pos <= last {
				t.Fatalf("%s: departure %d is at position %d, not after %d", a, d.id, d.pos, last)
			}
			last = d.pos
		}
	}
}

func TestParseTimetableRefuses(t *testing.T) {
	t.Parallel()
	const good = flightsHeader + "\n1,2001-01-01T00:47,DTW,LAS,66,1750\n"
	for _, c := range []struct{ name, text, want string }{
		{"empty", "", "it is empty"},
		{"other header", "a,b,c,d,e,f\n", "the first line is"},
		{"not a table", "\x00\x01 binary", "not a flights file"},
		{"no rows", flightsHeader + "\n", "no departures"},
		{"short row", good + "2,2001-01-01T01:10,HNL\n", "wrong number of fields"},
		{"id not a number", good + "x,2001-01-01T01:10,HNL,LAS,95,1\n", `line 3: id "x"`},
		{"id twice", good + "1,2001-01-01T01:10,HNL,LAS,95,1\n", `line 3: id "1"`},
		{"no time", good + "2,yesterday,HNL,LAS,95,1\n", `line 3: departure "yesterday"`},
		{"time goes back", good + "2,2001-01-01T00:46,HNL,LAS,95,1\n", "at or after"},
		{"name outside the grammar", good + "2,2001-01-01T01:10,H/NL,LAS,95,1\n", "line 3: origin"},
		{"empty name", good + "2,2001-01-01T01:10,,LAS,95,1\n", "line 3: origin"},
		{"reserved name", good + "2,2001-01-01T01:10,_HNL,LAS,95,1\n", "reserved"},
		{"written like a range", good + "2,2001-01-01T01:10,HNL1..2,LAS,95,1\n", "like a range"},
		{"written like no range", good + "2,2001-01-01T01:10,HNL..2,LAS,95,1\n", "range"},
		{"delay not a number", good + "2,2001-01-01T01:10,HNL,LAS,late,1\n", `line 3: delay "late"`},
		{"absurd delay", good + "2,2001-01-01T01:10,HNL,LAS,999999999,1\n", "within a week"},
		{"open quote", good + "2,\"2001-01-01T01:10,HNL,LAS,95,1\n", "correct that line"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			_, err := parseTimetable(strings.NewReader(c.text))
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got error %v, want one with %q", err, c.want)
			}
		})
	}
}
