//go:build unix

package main

import (
	"fmt"
	"strings"
	"time"
)

// Write errors are ignored here, because they would also affect the report.
func (d *director) say(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	d.web.say(text)
	_, _ = fmt.Fprintf(d.progress, "%6.1f s  %s\n", time.Since(d.began).Seconds(), text)
}

const progressStep = 10 // in percent

func (d *director) showProgress() {
	p := d.history.decided * 100 / d.flights.total
	if p < d.shown+progressStep {
		return
	}
	d.shown = p - p%progressStep
	owned := make([]string, len(d.members))
	for i, m := range d.members {
		owned[i] = fmt.Sprintf("%s %d", m.label, len(d.history.owned(m.label)))
	}
	line := fmt.Sprintf("%d %%: %s departures; airports: %s", d.shown, thousands(d.history.decided), strings.Join(owned, ", "))
	_, _ = fmt.Fprintf(d.progress, "%6.1f s  %s\n", time.Since(d.began).Seconds(), line)
}

func (d *director) detail(format string, args ...any) {
	if d.o.verbose {
		d.say(format, args...)
	}
}

// sayTakeovers summarizes the takeovers among the passages that begin at index before.
func (d *director) sayTakeovers(from string, before int) {
	var took []float64
	by := map[string]int{}
	for _, p := range d.history.passages()[before:] {
		if p.signal != "" && p.from.member == from {
			took = append(took, d.ttls(p.took))
			by[p.to.member]++
		}
	}
	if s := spreadOf(took); s.N > 0 {
		d.say("%s of %s taken over by %s: %.2f to %.2f TTL", count(s.N, "airport"), from, d.parts(by), s.Min,
			s.Max)
	}
}

// sayHandOvers summarizes the planned hand-overs among the passages that begin at index before.
func (d *director) sayHandOvers(before int) {
	var took []float64
	by := map[string]int{}
	for _, p := range d.history.passages()[before:] {
		if p.signal == "" {
			took = append(took, float64(p.took)/float64(time.Millisecond))
			by[p.to.member]++
		}
	}
	if s := spreadOf(took); s.N > 0 {
		d.say("%s handed over to %s: median %.1f ms, at most %.1f ms", count(s.N, "airport"), d.parts(by),
			s.Median, s.Max)
	}
}

func (d *director) sayZombie(node string, w write) {
	switch w.Outcome {
	case wasRefused:
		d.say("%s: write of %s #%d under token %d refused by the store (current token %d)", node, w.Airport,
			w.Count, w.Token, w.Current)
	case wasAccepted:
		d.say("%s: write of %s #%d under token %d ACCEPTED although superseded", node, w.Airport, w.Count,
			w.Token)
	default:
		d.say("%s: write of %s #%d under token %d failed: %s", node, w.Airport, w.Count, w.Token, w.Cause)
	}
}

// The text lists the number of airports that each member received.
func (d *director) parts(by map[string]int) string {
	var out []string
	for _, s := range d.members {
		if n := by[s.label]; n > 0 {
			out = append(out, fmt.Sprintf("%s (%d)", s.label, n))
		}
	}
	return strings.Join(out, " and ")
}

func (d *director) shares() string {
	by := map[string]int{}
	for _, s := range d.members {
		by[s.label] = len(d.history.owned(s.label))
	}
	return d.parts(by)
}

func (d *director) place(airport string) string {
	if city := d.cities[airport]; city != "" {
		return airport + " (" + city + ")"
	}
	return airport
}
