package main

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

func sample() scene {
	return scene{
		title: "Tenure flight board   sqlite, TTL 1s, seed 7", elapsed: 12340 * time.Millisecond,
		decided: 9480, total: 20000, airports: 220, refused: 3,
		members: []memberRow{
			{node: "member-1", pid: 4711, status: statusRunning, airports: 110, busiest: []string{"ORD", "ATL", "PHX", "LAS"}},
			{node: "member-2", pid: 4712, status: statusStopped},
			{node: "member-3", pid: 4713, status: statusRunning, airports: 110, busiest: []string{"DFW", "LAX"}},
		},
		notes: []note{
			{at: 300 * time.Millisecond, text: "all airports are owned"},
			{at: 3100 * time.Millisecond, tone: toneChaos, text: "member-1 killed with SIGKILL; it owned 71 airports"},
			{at: 4 * time.Second, tone: toneGood, text: "71 airports of member-1 taken over by member-2 (33) and " +
				"member-3 (38): 0.81 to 0.95 TTL"},
			{at: 12 * time.Second, tone: toneBad, text: "member-2: write of ATL #133 under token 41 ACCEPTED although superseded"},
		},
	}
}

func TestFrame(t *testing.T) {
	t.Parallel()
	golden(t, "frame.golden", strings.Join(frame(sample(), size{110, 18}), "\n")+"\n")
	small := sample()
	small.unfenced = true
	golden(t, "frame-small.golden", strings.Join(frame(small, size{50, 10}), "\n")+"\n")
}

func TestFrameFits(t *testing.T) {
	t.Parallel()
	for _, z := range []size{{20, 8}, {80, 24}, {200, 60}} {
		lines := frame(sample(), z)
		if len(lines) >= z.height && z.height > 10 {
			t.Errorf("%v: %d lines", z, len(lines))
		}
		for _, l := range lines {
			for _, esc := range []string{bold, dim, plain, style(toneGood), style(toneBad), style(toneChaos)} {
				l = strings.ReplaceAll(l, esc, "")
			}
			if n := utf8.RuneCountInString(l); n > z.width {
				t.Errorf("%v: a line of %d characters: %q", z, n, l)
			}
		}
	}
}

func TestScreenLines(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	s := newScreen(&b)
	sc := sample()
	all := sc.notes
	sc.notes, sc.decided = all[:1], 500
	s.show(sc)
	sc.notes, sc.decided = all, 9480
	s.show(sc)
	s.show(sc)
	s.close()
	golden(t, "lines.golden", b.String())
}
