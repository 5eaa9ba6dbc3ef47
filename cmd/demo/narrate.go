//go:build unix

package main

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

func (d *director) say(tone int, format string, args ...any) {
	n := note{at: time.Since(d.began), tone: tone, text: fmt.Sprintf(format, args...)}
	d.notes = append(d.notes, n)
	d.web.say(n.text)
	d.screen.show(d.scene())
}

// detail adds a line that only -v shows.
func (d *director) detail(format string, args ...any) {
	if d.o.verbose {
		d.say(toneNone, format, args...)
	}
}

// sayTakeovers sums up the takeovers after the first so many passages.
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
		d.say(toneGood, "%s of %s taken over by %s: %.2f to %.2f TTL", count(s.N, "airport"), from, d.parts(by), s.Min,
			s.Max)
	}
}

// sayHandOvers sums up the planned hand-overs after the first so many passages.
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
		d.say(toneGood, "%s handed over to %s: median %.1f ms, at most %.1f ms", count(s.N, "airport"), d.parts(by),
			s.Median, s.Max)
	}
}

func (d *director) sayZombie(node string, w write) {
	switch w.Outcome {
	case wasRefused:
		d.say(toneGood, "%s: write of %s #%d under token %d refused by the store (current token %d)", node, w.Airport,
			w.Count, w.Token, w.Current)
	case wasAccepted:
		d.say(toneBad, "%s: write of %s #%d under token %d ACCEPTED although superseded", node, w.Airport, w.Count,
			w.Token)
	default:
		d.say(toneChaos, "%s: write of %s #%d under token %d failed: %s", node, w.Airport, w.Count, w.Token, w.Cause)
	}
}

// parts lists the number of airports that went to each member.
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

// place is an airport with its city.
func (d *director) place(airport string) string {
	if city := d.cities[airport]; city != "" {
		return airport + " (" + city + ")"
	}
	return airport
}

// scene is the present moment for the screen.
func (d *director) scene() scene {
	sc := scene{
		title:   fmt.Sprintf("Tenure flight board   %s, TTL %v, seed %d", d.o.backend, d.o.ttl, d.o.seed),
		elapsed: time.Since(d.began), decided: d.history.decided, total: d.flights.total,
		airports: len(d.flights.airports),
		notes:    d.notes, unfenced: d.o.unfenced, refused: d.refused(),
	}
	for _, s := range d.members {
		owned := d.history.owned(s.label)
		row := memberRow{node: s.label, status: s.status, airports: len(owned)}
		if s.child != nil {
			row.pid = s.child.PID()
		}
		slices.SortStableFunc(owned, func(a, b string) int { return len(d.flights.from[b]) - len(d.flights.from[a]) })
		row.busiest = owned[:min(busiestFew, len(owned))]
		sc.members = append(sc.members, row)
	}
	return sc
}
