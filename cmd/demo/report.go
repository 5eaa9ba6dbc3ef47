package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// A spread summarizes a set of measurements. The spread of an empty set is zero.
type spread struct {
	N      int     `json:"n"`
	Min    float64 `json:"min"`
	Median float64 `json:"median"`
	Max    float64 `json:"max"`
}

func spreadOf(values []float64) spread {
	if len(values) == 0 {
		return spread{}
	}
	v := slices.Sorted(slices.Values(values))
	return spread{N: len(v), Min: v[0], Median: v[len(v)/2], Max: v[len(v)-1]}
}

func (s spread) in(format, unit string) string {
	if s.N == 0 {
		return "none"
	}
	return fmt.Sprintf("%s, in "+format+" to "+format+" %s, median "+format, thousands(s.N), s.Min, s.Max, unit,
		s.Median)
}

// The members' final boards are summarized with their lags.
type boards struct {
	N      int     `json:"n"`
	Wrong  int     `json:"wrong"` // number of boards that differ from the file
	Median float64 `json:"lag_median_ms"`
	P95    float64 `json:"lag_p95_ms"`
}

// callsJudged is the verdict of package history on the recorded calls.
type callsJudged struct {
	N              int      `json:"n"`
	Contradictions int      `json:"contradictions"` // number of calls that no order of operations in the store explains
	Examples       []string `json:"examples,omitempty"`
	Kept           string   `json:"kept,omitempty"` // directory with the history
}

type stepsChecked struct {
	N        int      `json:"n"`
	Breaches int      `json:"breaches"`
	Examples []string `json:"examples,omitempty"`
}

type report struct {
	Backend    string            `json:"backend"`
	Members    int               `json:"members"`
	TTLMillis  int64             `json:"ttl_ms"`
	Seed       uint64            `json:"seed"`
	Unfenced   bool              `json:"unfenced"`
	Seconds    float64           `json:"seconds"`
	Airports   int               `json:"airports"`
	Departures int               `json:"departures"`
	Decisions  int               `json:"decisions"` // number of entries in the logs
	Leases     int               `json:"leases_granted"`
	Takeovers  map[string]spread `json:"takeovers_ttl"` // durations of takeovers by signal, in multiples of the TTL
	HandOvers  spread            `json:"handovers_ms"`
	Plans      int               `json:"plans"`
	Moves      []reshare         `json:"moves"`
	ServerAway []float64         `json:"server_away_ms,omitempty"` // for each kill of the server, the time until the server ran again
	Attempted  int               `json:"zombie_writes_attempted"`
	Refused    int               `json:"zombie_writes_refused"`
	Accepted   int               `json:"zombie_writes_accepted"`
	Boards     boards            `json:"boards"`
	Calls      callsJudged       `json:"calls"`
	Steps      stepsChecked      `json:"steps"`
	Damage     damage            `json:"damage"`
	Passed     bool              `json:"passed"`
	Failures   []string          `json:"failures,omitempty"`
}

func (r *report) measure(h *history, ttl time.Duration) {
	takeovers := map[string][]float64{}
	var handOvers []float64
	for _, p := range h.passages() {
		if p.signal != "" {
			takeovers[p.signal] = append(takeovers[p.signal], float64(p.took)/float64(ttl))
		} else {
			handOvers = append(handOvers, float64(p.took)/float64(time.Millisecond))
		}
	}
	r.Takeovers = map[string]spread{sigKill: spreadOf(takeovers[sigKill]), sigStop: spreadOf(takeovers[sigStop])}
	r.HandOvers = spreadOf(handOvers)
	r.Leases, r.Plans, r.Moves = h.granted, h.plans, h.reshares
	for _, away := range h.serverAway {
		r.ServerAway = append(r.ServerAway, float64(away)/float64(time.Millisecond))
	}
	for _, w := range h.zombies {
		r.Attempted++
		switch w.Outcome {
		case wasRefused:
			r.Refused++
		case wasAccepted:
			r.Accepted++
		}
	}
}

func (r *report) compareBoards(h *history, want string) {
	for _, board := range h.boards {
		r.Boards.N++
		if board != want {
			r.Boards.Wrong++
		}
	}
	if lags := slices.Sorted(slices.Values(h.lags)); len(lags) > 0 {
		r.Boards.Median, r.Boards.P95 = lags[len(lags)/2], lags[len(lags)*95/100]
	}
}

func (r *report) judge() {
	var failures []string
	fail := func(bad bool, format string, args ...any) {
		if bad {
			failures = append(failures, fmt.Sprintf(format, args...))
		}
	}
	fail(r.Damage.total() > 0, "the logs differ from the file")
	fail(r.Calls.Contradictions > 0, "%s among the calls, kept in %s",
		count(r.Calls.Contradictions, "contradiction"), r.Calls.Kept)
	fail(r.Calls.N == 0, "no call was recorded")
	fail(r.Steps.Breaches > 0, "%s in the members' traces", count(r.Steps.Breaches, "breach"))
	fail(r.Steps.N == 0 && !r.Unfenced, "no step was traced")
	fail(r.Attempted == 0, "no zombie tried to write, so the run proves nothing about the fence")
	fail(r.Attempted > 0 && r.Refused == 0, "no zombie's write was refused")
	fail(r.Accepted > 0, "%s of a zombie accepted", count(r.Accepted, "write"))
	for _, s := range []string{sigKill, sigStop} {
		fail(r.Takeovers[s].N == 0, "no takeover after %s", s)
	}
	fail(r.HandOvers.N == 0, "no planned hand-over")
	for _, m := range r.Moves {
		fail(m.Moved == 0, "%s, and no airport moved", m.What)
	}
	fail(r.Boards.N == 0, "no member showed its board")
	fail(r.Boards.Wrong > 0, "boards that differ from the file: %d of %d", r.Boards.Wrong, r.Boards.N)
	r.Failures, r.Passed = failures, len(failures) == 0
}

// exitCode returns 0 if all checks passed, and 1 if a check failed. A control without damage proves
// nothing, so its exit code is 3.
func (r *report) exitCode() int {
	switch {
	case r.Unfenced && r.Damage.total() == 0:
		return exitInconclusive
	case r.Passed:
		return exitOK
	}
	return exitDamage
}

func (r *report) print(w io.Writer) error {
	var b strings.Builder
	row := func(name, format string, args ...any) {
		fmt.Fprintf(&b, "  %-26s %s\n", name, fmt.Sprintf(format, args...))
	}
	fmt.Fprintf(&b, "\nFlight board: %.1f s on %s with %d and then %s, TTL %v, seed %d", r.Seconds, r.Backend,
		r.Members, count(r.Members+1, "member process"), time.Duration(r.TTLMillis)*time.Millisecond, r.Seed)
	if r.Unfenced {
		b.WriteString(", UNFENCED (the control)")
	}
	b.WriteString("\n\n")
	row("departures processed", "%s at %d airports; %s entries in their logs", thousands(r.Departures), r.Airports,
		thousands(r.Decisions))
	row("leases granted", "%s", thousands(r.Leases))
	for _, s := range []string{sigKill, sigStop} {
		row("takeovers after "+s, "%s", r.Takeovers[s].in("%.2f", "TTL"))
	}
	row("plans that move airports", "%s", thousands(r.Plans))
	row("planned hand-overs", "%s", r.HandOvers.in("%.1f", "ms"))
	if s := spreadOf(r.ServerAway); s.N > 0 {
		row("server killed", "%s, away for %.0f ms at most", count(s.N, "time"), s.Max)
	}
	row("boards of the members", "%d, %d as the file says; from decision to board %.1f ms, %.0f ms at p95", r.Boards.N,
		r.Boards.N-r.Boards.Wrong, r.Boards.Median, r.Boards.P95)
	row("calls judged", "%s, %s", thousands(r.Calls.N), count(r.Calls.Contradictions, "contradiction"))
	if r.Steps.N > 0 {
		row("steps compared with rules", "%s, %s", thousands(r.Steps.N), count(r.Steps.Breaches, "breach"))
	}
	row("writes by zombies", "%d attempted, %d refused, %d accepted", r.Attempted, r.Refused, r.Accepted)
	b.WriteString("\n")
	for _, m := range r.Moves {
		if m.Moved == m.Least {
			row(m.What, "%s, the least for even shares", count(m.Moved, "move"))
		} else {
			row(m.What, "%s; the least for even shares is %d", count(m.Moved, "move"), m.Least)
		}
	}
	b.WriteString("\n")
	row("entries lost", "%d", r.Damage.Lost)
	row("doubled", "%d", r.Damage.Doubled)
	row("out of order", "%d", r.Damage.OutOfOrder)
	row("with wrong figures", "%d", r.Damage.Wrong)
	row("under a superseded token", "%d", r.Damage.Superseded)
	if r.Damage.Broken > 0 {
		row("broken", "%d", r.Damage.Broken)
	}
	if examples := slices.Concat(r.Damage.Examples, r.Calls.Examples, r.Steps.Examples); len(examples) > 0 {
		b.WriteString("\n  for example\n")
		for _, e := range examples {
			fmt.Fprintf(&b, "    %s\n", e)
		}
	}
	fmt.Fprintf(&b, "\n%s\n", r.verdict())
	_, err := io.WriteString(w, b.String())
	return err
}

func (r *report) verdict() string {
	switch {
	case r.Unfenced && r.Damage.total() == 0:
		return "INCONCLUSIVE: without the fence damage was expected, and none was found. Try another -seed."
	case r.Unfenced && r.Damage.Superseded > 0:
		return "DAMAGED, as it must be without the fence: a process that had been stopped wrote\ninto its " +
			"successor's log. Run again without -unfenced."
	case r.Passed:
		return "PASS: every log matches the file exactly, through every fault of the members."
	}
	return "FAIL: " + strings.Join(r.Failures, "; ") + "."
}

func count(n int, thing string) string {
	switch {
	case n == 1:
		return "1 " + thing
	case strings.HasSuffix(thing, "s"), strings.HasSuffix(thing, "ch"):
		return fmt.Sprintf("%s %ses", thousands(n), thing)
	}
	return fmt.Sprintf("%s %ss", thousands(n), thing)
}

// The number must not be negative.
func thousands(n int) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
