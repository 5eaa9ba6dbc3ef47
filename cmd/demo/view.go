package main

import (
	"fmt"
	"strings"
	"time"
)

// Tones of a line of the timeline.
const (
	toneNone  = iota
	toneGood  // as it should be
	toneBad   // damage
	toneChaos // done by the director
)

// Statuses of a member.
const (
	statusStarting = "starting"
	statusRunning  = "running"
	statusKilled   = "killed"
	statusStopped  = "stopped (SIGSTOP)"
	statusDraining = "draining"
	statusDrained  = "drained"
	statusLeaving  = "leaving"
	statusLeft     = "left"
	statusGone     = "gone"
)

// A note is one line of the timeline.
type note struct {
	at   time.Duration // since the start of the run
	tone int
	text string
}

// A memberRow is one member as the screen shows it.
type memberRow struct {
	node     string
	pid      int
	status   string // running, killed, stopped, left ...
	airports int
	busiest  []string
}

// A scene is all that the screen shows at one moment.
type scene struct {
	title    string
	elapsed  time.Duration
	decided  int
	total    int
	airports int
	members  []memberRow
	notes    []note
	refused  int
	unfenced bool
}

// size is that of a terminal, in characters.
type size struct{ width, height int }

// style is the escape sequence of a tone.
func style(tone int) string {
	switch tone {
	case toneGood:
		return "\x1b[32m"
	case toneBad:
		return "\x1b[31m"
	case toneChaos:
		return "\x1b[33m"
	}
	return ""
}

const (
	bold  = "\x1b[1m"
	dim   = "\x1b[2m"
	plain = "\x1b[0m"
)

// frame draws a scene as lines that fit the terminal.
func frame(s scene, t size) []string {
	var out []string
	add := func(how, text string) {
		if r := []rune(text); len(r) > t.width {
			text = string(r[:max(t.width-3, 0)]) + "..."
		}
		if how != "" && text != "" {
			text = how + text + plain
		}
		out = append(out, text)
	}
	add(bold, fmt.Sprintf("%s  %6.1f s", s.title, s.elapsed.Seconds()))
	add("", fmt.Sprintf("%s %s of %s departures", bar(s.decided, s.total, 40, '█', '░'), thousands(s.decided),
		thousands(s.total)))
	add("", "")
	for _, m := range s.members {
		tone := toneNone
		if m.status != statusRunning {
			tone = toneChaos
		}
		add(style(tone), fmt.Sprintf("%-10s pid %-7d %-20s %s %3d airports  %s", m.node, m.pid, m.status,
			bar(m.airports, s.airports, 20, '■', '·'), m.airports, strings.Join(m.busiest, " ")))
	}
	add("", "")
	room := max(t.height-len(out)-2, 1) // the cursor's line and the last one
	for _, n := range s.notes[max(0, len(s.notes)-room):] {
		add(style(n.tone), fmt.Sprintf("%6.1f s  %s", n.at.Seconds(), n.text))
	}
	for range room - len(s.notes) {
		add("", "")
	}
	if s.unfenced {
		add(style(toneBad), "UNFENCED: the control. Neither fence nor order is checked; damage is expected.")
	} else {
		add(dim, fmt.Sprintf("writes by zombies refused by the store: %d", s.refused))
	}
	return out
}

// bar draws n of total as a bar of the given width.
func bar(n, total, width int, full, empty rune) string {
	k := 0
	if total > 0 {
		k = min(n*width/total, width)
	}
	return strings.Repeat(string(full), k) + strings.Repeat(string(empty), width-k)
}

// line is a note as a line of text, for a pipe.
func (n note) line() string { return fmt.Sprintf("%6.1f s  %s\n", n.at.Seconds(), n.text) }
