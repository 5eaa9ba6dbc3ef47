package main

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// Numbers have about three significant digits.
func number(v float64) string {
	switch a := math.Abs(v); {
	case math.IsNaN(v) || math.IsInf(v, 0):
		return "-"
	case a == 0:
		return "0"
	case a < 1:
		return fmt.Sprintf("%.2g", v)
	case a < 9.995:
		return fmt.Sprintf("%.2f", v)
	case a < 99.95:
		return fmt.Sprintf("%.1f", v)
	}
	digits := fmt.Sprintf("%.0f", v)
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

// spread returns the median, minimum and maximum values of one figure.
func (c *cell) spread(figure int) (median, low, high float64) {
	var v []float64
	for _, s := range c.samples {
		v = append(v, s[figure])
	}
	slices.Sort(v)
	return v[len(v)/2], v[0], v[len(v)-1]
}

func (c *cell) usable() bool { return c != nil && c.err == nil && len(c.samples) > 0 }

// For other contenders, beside is Tenure's cell.
func (c *cell) text(w row, beside *cell) string {
	switch {
	case c == nil:
		return ""
	case errors.Is(c.err, errNone):
		return "-" + strings.TrimPrefix(c.err.Error(), errNone.Error())
	case c.err != nil:
		return "failed"
	case len(c.samples) == 0:
		return ""
	}
	var parts []string
	for i, f := range w.figures {
		median, low, high := c.spread(i)
		text := f.write(median)
		if f.name != "" {
			text = f.name + " " + text
		}
		if math.IsNaN(median) || math.IsInf(median, 0) {
			continue
		}
		if i == 0 && len(c.samples) > 1 {
			text += fmt.Sprintf(" (%s to %s)", number(low), number(high))
		}
		parts = append(parts, text)
	}
	if beside.usable() {
		ours, _, _ := beside.spread(0)
		theirs, _, _ := c.spread(0)
		if ratio := theirs / ours; !math.IsInf(ratio, 0) && !math.IsNaN(ratio) {
			parts[0] += fmt.Sprintf(", ×%s", number(ratio))
		}
	}
	return strings.Join(parts, "; ")
}

// If the row is withheld, the reason replaces the cell's text.
func (c *cell) unless(busy string, w row, beside *cell) string {
	if busy != "" && c.usable() {
		return busy
	}
	return c.text(w, beside)
}

// The reasons for failed measurements appear below each store's table.
func (r *results) tables(out *bytes.Buffer, p *plan) {
	for _, s := range p.stores {
		if err := r.missing[s.name]; err != nil {
			fmt.Fprintf(out, "### %s\n\nNot measured: %v.\n\n", s.title, err)
			continue
		}
		fmt.Fprintf(out, "### %s %s\n\n|", s.title, r.versions[s.name])
		for _, c := range s.contenders {
			fmt.Fprintf(out, " | %s", c.name)
		}
		fmt.Fprintf(out, " | a flush |\n|---%s|\n", strings.Repeat("|---", len(s.contenders)+1))
		var failures []string
		for _, w := range p.rows {
			var ours *cell
			var texts []string
			on := r.seen[key{store: s.name, row: w.name}]
			busy := on.busy()
			for _, c := range s.contenders {
				got := r.cells[key{s.name, w.name, c.name}]
				texts = append(texts, got.unless(busy, w, ours))
				if c.ours {
					ours = got
				}
				if got != nil && got.err != nil && !errors.Is(got.err, errNone) {
					failures = append(failures, fmt.Sprintf("%s, %s: %s", c.name, w.title, oneLine(got.err)))
				}
			}
			if slices.ContainsFunc(texts, func(text string) bool { return text != "-" }) {
				fmt.Fprintf(out, "| %s | %s | %s |\n", w.title, strings.Join(texts, " | "), flushText(on.flush))
			}
		}
		fmt.Fprintln(out)
		for _, f := range failures {
			fmt.Fprintf(out, "* Failed: %s\n", f)
		}
		if failures != nil {
			fmt.Fprintln(out)
		}
	}
}

// A flush to the machine's disk is timed before each row.
func flushText(d time.Duration) string {
	if d == 0 {
		return ""
	}
	return millis(float64(d.Microseconds()) / 1000)
}

func oneLine(err error) string {
	text := strings.Join(strings.Fields(err.Error()), " ")
	if len(text) > 200 {
		text = strings.ToValidUTF8(text[:200], "") + "..."
	}
	return text
}
