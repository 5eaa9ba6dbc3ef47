package main

import (
	"strings"
	"testing"
)

func wholeReport() *report {
	return &report{
		Backend: "sqlite", Members: 3, TTLMillis: 1000, Seed: 7, Seconds: 23.4, Airports: 220, Departures: 20000,
		Decisions: 20000, Leases: 655,
		Takeovers: map[string]spread{sigKill: {71, 0.81, 0.9, 0.97}, sigStop: {75, 0.8, 0.92, 0.96}},
		HandOvers: spread{221, 1.2, 4.5, 30.4}, Attempted: 4, Refused: 4,
		Plans: 12, Moves: []reshare{{"member-1 killed", 73, 73}, {"member-4 joined", 55, 55},
			{"member-2 drained", 56, 55}},
		Boards: boards{N: 3, Median: 4.25, P95: 31.7}, Calls: callsJudged{N: 123456}, Steps: stepsChecked{N: 4321},
	}
}

func TestReport(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		change func(*report)
		code   int
	}{
		{"pass", func(*report) {}, exitOK},
		{"lost", func(r *report) { r.Damage = damage{Lost: 1, Examples: []string{"ATL: departure 7 has no decision"}} }, exitDamage},
		{"contradiction", func(r *report) {
			r.Calls = callsJudged{N: 9, Contradictions: 1, Kept: "/tmp/tenure-demo-1",
				Examples: []string{"S2 tokens-increase: ATL: token 3 was granted after token 7"}}
		}, exitDamage},
		{"breach", func(r *report) { r.Steps = stepsChecked{N: 9, Breaches: 1, Examples: []string{"S1: two members"}} }, exitDamage},
		{"no-trace", func(r *report) { r.Steps = stepsChecked{} }, exitDamage},
		{"no-zombie", func(r *report) { r.Attempted, r.Refused = 0, 0 }, exitDamage},
		{"zombie-accepted", func(r *report) { r.Refused, r.Accepted = 3, 1 }, exitDamage},
		{"no-takeover", func(r *report) { r.Takeovers[sigKill] = spread{} }, exitDamage},
		{"server-killed", func(r *report) { r.Backend, r.ServerAway = "postgres", []float64{1234} }, exitOK},
		{"no-handover", func(r *report) { r.HandOvers = spread{} }, exitDamage},
		{"nothing-joined", func(r *report) { r.Moves[1].Moved = 0 }, exitDamage},
		{"wrong-board", func(r *report) { r.Boards.Wrong = 1 }, exitDamage},
		{"no-board", func(r *report) { r.Boards = boards{} }, exitDamage},
		{"control", func(r *report) {
			r.Unfenced, r.Refused, r.Accepted, r.Decisions = true, 0, 4, 20004
			r.Damage = damage{Doubled: 4, Superseded: 4,
				Examples: []string{"ATL: entry 137 decides departure 2051 for the second time"}}
		}, exitDamage},
		{"control-without-damage", func(r *report) { r.Unfenced = true }, exitInconclusive},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := wholeReport()
			c.change(r)
			r.judge()
			if got := r.exitCode(); got != c.code {
				t.Errorf("exit code %d, want %d", got, c.code)
			}
			var b strings.Builder
			if err := r.print(&b); err != nil {
				t.Fatal(err)
			}
			golden(t, "report-"+c.name+".golden", b.String())
		})
	}
}

func TestMeasure(t *testing.T) {
	t.Parallel()
	h := newHistory()
	h.addFault("m1", sigKill, 1000e6)
	for _, e := range []struct {
		by string
		event
	}{
		{"m1", event{Is: isGranted, At: 1, Airport: "ATL", Token: 1}},
		{"m2", event{Is: isGranted, At: 1900e6, Airport: "ATL", Token: 2}},
		{"m2", event{Is: isResumed, At: 1950e6, Airport: "ATL", Token: 2, Count: 3}},
		{"m2", event{Is: isEnded, At: 3000e6, Airport: "ATL", Token: 2, Planned: true}},
		{"m1", event{Is: isResumed, At: 3004e6, Airport: "ATL", Token: 3, Count: 3}},
		{"m1", event{Is: isAnswered, Writes: []write{{Outcome: wasRefused}, {Outcome: wasFailed}, {Outcome: wasAccepted}}}},
	} {
		h.apply(e.by, e.event)
	}
	var r report
	r.measure(h, 1e9)
	if got, want := r.Takeovers[sigKill], (spread{1, 0.95, 0.95, 0.95}); got != want {
		t.Errorf("takeovers %+v, want %+v", got, want)
	}
	if got, want := r.HandOvers, (spread{1, 4, 4, 4}); got != want {
		t.Errorf("hand-overs %+v, want %+v", got, want)
	}
	h.apply("m1", event{Is: isShown, Board: "right", Lags: []int64{3000, 1000, 2000}})
	h.apply("m2", event{Is: isShown, Board: "wrong"})
	r.compareBoards(h, "right")
	if want := (boards{N: 2, Wrong: 1, Median: 2, P95: 3}); r.Boards != want {
		t.Errorf("boards %+v, want %+v", r.Boards, want)
	}
	if r.Leases != 2 || r.Attempted != 3 || r.Refused != 1 || r.Accepted != 1 {
		t.Errorf("got %+v", r)
	}
}
