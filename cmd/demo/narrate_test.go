//go:build unix

package main

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestLines: the run prints the expected lines, and each tenth of the departures once.
func TestLines(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var b strings.Builder
		h := newHistory()
		d := &director{progress: &b, history: h, flights: &timetable{total: 20000}, began: time.Now(),
			members: []*node{{label: "member-1"}, {label: "member-2"}}}
		h.apply("member-1", event{Is: isGranted, Airport: "ATL", Token: 1})
		h.decided = 500
		time.Sleep(300 * time.Millisecond)
		d.say("%s is owned", "every airport")
		d.showProgress()
		h.decided = 9480
		time.Sleep(12 * time.Second)
		d.showProgress()
		d.showProgress()
		golden(t, "lines.golden", b.String())
	})
}
