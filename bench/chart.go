package main

import (
	"encoding/xml"
	"fmt"
	"io"
	"math"
	"strings"
)

// A point is one line of a chart, with its median, minimum and maximum values.
type point struct {
	group, label      string // the group's name is shown before its first line
	ours              bool
	median, low, high float64
	text              string
}

const (
	chartWidth = 760.0
	chartLeft  = 300.0 // where the axis begins
	chartRight = 640.0 // where the axis ends, followed by the figure
	lineHeight = 20.0
	chartTop   = 44.0
)

// The picture has a background, so that it is readable on a page that does not follow the system's
// color scheme.
const chartStyle = `
.page{fill:#ffffff;stroke:#d0d7de}.text{fill:#1f2328}.faint{fill:#59636e}.grid{stroke:#d0d7de}
.ours{fill:#0969da;stroke:#0969da}.peer{fill:#bc4c00;stroke:#bc4c00}
@media (prefers-color-scheme:dark){
.page{fill:#0d1117;stroke:#3d444d}.text{fill:#f0f6fc}.faint{fill:#9198a1}.grid{stroke:#3d444d}
.ours{fill:#4493f8;stroke:#4493f8}.peer{fill:#db6d28;stroke:#db6d28}}
text{font:13px system-ui,sans-serif}.title{font-weight:600}.faint{font-size:11px}
`

// The axis is logarithmic, and each point shows the range of its values in all rounds.
func chart(out io.Writer, title string, points []point) error {
	low, high := decades(points)
	x := func(v float64) float64 {
		share := (math.Log10(max(v, low)) - math.Log10(low)) / (math.Log10(high) - math.Log10(low))
		return chartLeft + share*(chartRight-chartLeft)
	}
	var body strings.Builder
	y, group := chartTop, ""
	for _, p := range points {
		if p.group != group {
			group = p.group
			y += lineHeight / 2
			fmt.Fprintf(&body, `<text class="text title" x="16" y="%.0f">%s</text>`+"\n", y+lineHeight, escaped(group))
			y += lineHeight
		}
		y += lineHeight
		class := "peer"
		if p.ours {
			class = "ours"
		}
		fmt.Fprintf(&body, `<text class="text" x="28" y="%.0f">%s</text>`+"\n", y, escaped(p.label))
		fmt.Fprintf(&body, `<g class="%s"><line x1="%.1f" x2="%.1f" y1="%.0f" y2="%.0f" stroke-width="2"/>`+
			`<circle cx="%.1f" cy="%.0f" r="5"/></g>`+"\n", class, x(p.low), x(p.high), y-4, y-4, x(p.median), y-4)
		fmt.Fprintf(&body, `<text class="text" x="%.0f" y="%.0f">%s</text>`+"\n", chartRight+14, y, escaped(p.text))
	}
	height := y + 40
	w := &printer{out: out}
	w.printf(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %.0f %.0f" role="img" aria-label="%s">`+
		"\n<style>%s</style>\n", chartWidth, height, escaped(title), chartStyle)
	w.printf(`<rect class="page" x="0.5" y="0.5" width="%.0f" height="%.0f" rx="6"/>`+"\n", chartWidth-1, height-1)
	w.printf(`<text class="text title" x="16" y="26">%s</text>`+"\n", escaped(title))
	for v := low; v < high*1.01; v *= 10 {
		w.printf(`<line class="grid" x1="%.1f" x2="%.1f" y1="%.0f" y2="%.0f"/>`+"\n", x(v), x(v), chartTop, y+8)
		w.printf(`<text class="faint" text-anchor="middle" x="%.1f" y="%.0f">%s</text>`+"\n", x(v), y+24, axis(v))
	}
	w.printf("%s</svg>\n", body.String())
	return w.err
}

// decades returns the powers of ten that bound all points.
func decades(points []point) (low, high float64) {
	low, high = math.Inf(1), math.Inf(-1)
	for _, p := range points {
		if p.low > 0 {
			low = min(low, p.low)
		}
		high = max(high, p.high)
	}
	if high <= 0 || math.IsInf(low, 0) {
		return 1, 10
	}
	low, high = math.Pow(10, math.Floor(math.Log10(low))), math.Pow(10, math.Ceil(math.Log10(high)))
	if low == high {
		high *= 10
	}
	return low, high
}

func axis(v float64) string {
	if v < 1 {
		return fmt.Sprintf("%g", v)
	}
	return strings.TrimSuffix(strings.TrimSuffix(number(math.Round(v)), ".00"), ".0")
}

func escaped(text string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(text)) // a Builder never fails
	return b.String()
}

// A printer keeps the first write error.
type printer struct {
	out io.Writer
	err error
}

func (p *printer) printf(format string, args ...any) {
	if p.err == nil {
		_, p.err = fmt.Fprintf(p.out, format, args...)
	}
}

// Zeros are omitted, because a logarithmic axis cannot show them.
func (r *results) points(p *plan, name string) (points []point) {
	for _, w := range p.rows {
		if w.chart != name {
			continue
		}
		for _, s := range p.stores {
			if r.seen[key{store: s.name, row: w.name}].busy() != "" {
				continue
			}
			for _, c := range s.contenders {
				got := r.cells[key{s.name, w.name, c.name}]
				if !got.usable() {
					continue
				}
				median, low, high := got.spread(0)
				if !(median > 0) || math.IsInf(median, 0) {
					continue
				}
				points = append(points, point{group: w.title, label: s.title + ": " + c.name, ours: c.ours,
					median: median, low: low, high: high, text: w.figures[0].write(median)})
			}
		}
	}
	return points
}
