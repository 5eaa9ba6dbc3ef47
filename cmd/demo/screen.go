package main

import (
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/term"
)

// A screen shows a run while it goes on: redrawn in place on a terminal, else as
// lines. Not safe for concurrent use.
type screen struct {
	w     io.Writer
	fd    int // of the terminal; -1 is a pipe or a file
	drawn int // lines of the last frame
	shown int // percent of the progress last printed in lines
	notes int // written as lines so far
}

func newScreen(w io.Writer) *screen {
	s := &screen{w: w, fd: -1}
	if f, ok := w.(*os.File); ok && term.IsTerminal(int(f.Fd())) && os.Getenv("TERM") != "dumb" {
		s.fd = int(f.Fd())
		fmt.Fprint(w, "\x1b[?25l")
	}
	return s
}

// progressStep is the step between printed progress lines, in percent.
const progressStep = 10

// show draws the scene. Failures to write are left to the report, which follows
// to the same place or a better one.
func (s *screen) show(sc scene) {
	if s.fd < 0 {
		s.lines(sc)
		return
	}
	t := size{width: 80, height: 24}
	if w, h, err := term.GetSize(s.fd); err == nil && w > 0 && h > 0 {
		t = size{w, h}
	}
	lines := frame(sc, t)
	var b strings.Builder
	if s.drawn > 0 {
		fmt.Fprintf(&b, "\x1b[%dA", s.drawn)
	}
	for _, l := range lines {
		b.WriteString(l + "\x1b[K\n")
	}
	b.WriteString("\x1b[J")
	s.drawn = len(lines)
	io.WriteString(s.w, b.String())
}

func (s *screen) lines(sc scene) {
	for _, n := range sc.notes[s.notes:] {
		io.WriteString(s.w, n.line())
	}
	s.notes = len(sc.notes)
	if sc.total == 0 {
		return
	}
	if p := sc.decided * 100 / sc.total; p >= s.shown+progressStep {
		s.shown = p - p%progressStep
		owned := make([]string, len(sc.members))
		for i, m := range sc.members {
			owned[i] = fmt.Sprintf("%s %d", m.node, m.airports)
		}
		io.WriteString(s.w, note{at: sc.elapsed, text: fmt.Sprintf("%d %%: %s departures; airports: %s", s.shown,
			thousands(sc.decided), strings.Join(owned, ", "))}.line())
	}
}

// close gives the terminal back.
func (s *screen) close() {
	if s.fd >= 0 {
		fmt.Fprint(s.w, "\x1b[?25h")
	}
}
