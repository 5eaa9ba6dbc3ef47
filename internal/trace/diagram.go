package trace

import (
	"bufio"
	"fmt"
	"html"
	"io"
	"slices"
	"time"

	"github.com/tenure-go/tenure/core/driver"
)

const (
	diagramBefore = 15 * time.Second // time shown before the first breach
	diagramAfter  = 3 * time.Second
	diagramRows   = 60 // maximum number of leases
	columnWidth   = 200
	rowHeight     = 22
)

// Diagram draws the leases around the first breach as an SVG image. The image has a column for each
// node and a bar for each lease of the shard. Time runs downwards. If there is no breach, Diagram
// writes nothing.
func (r *Report) Diagram(to io.Writer) error {
	if len(r.Breaches) == 0 {
		return nil
	}
	b := r.Breaches[0]
	var nodes []string
	for _, run := range r.Runs {
		if !slices.Contains(nodes, run.Node) {
			nodes = append(nodes, run.Node)
		}
	}
	slices.Sort(nodes)
	var leases []*grant
	for _, g := range r.leases[driver.ShardID(b.Shard)] {
		if g.to.After(b.Time.Add(-diagramBefore)) && g.from.Before(b.Time.Add(diagramAfter)) {
			leases = append(leases, g)
		}
	}
	leases = leases[max(0, len(leases)-diagramRows):]
	// Each beginning, end and breach has a separate row, so that close times remain distinct.
	times := []time.Time{b.Time}
	for _, g := range leases {
		times = append(times, g.from, g.to)
	}
	slices.SortFunc(times, time.Time.Compare)
	times = slices.CompactFunc(times, time.Time.Equal)
	row := func(t time.Time) int {
		i, _ := slices.BinarySearchFunc(times, t, time.Time.Compare)
		return 90 + i*rowHeight
	}
	out := bufio.NewWriter(to)
	w := func(format string, args ...any) { _, _ = fmt.Fprintf(out, format, args...) } // Flush returns the error
	width, height := 150+columnWidth*len(nodes), 120+len(times)*rowHeight
	w(`<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="sans-serif" font-size="12">`+"\n", width, height)
	w(`<rect width="100%%" height="100%%" fill="white"/><text x="10" y="20" font-weight="bold">%s: shard %s</text>`+"\n",
		html.EscapeString(b.Rule), html.EscapeString(fmt.Sprintf("%q", b.Shard)))
	w(`<text x="10" y="38">%s</text>`+"\n", html.EscapeString(b.Text))
	for i, n := range nodes {
		x := 150 + columnWidth*i
		w(`<text x="%d" y="66">%s</text><line x1="%d" y1="74" x2="%d" y2="%d" stroke="#bbb"/>`+"\n", x,
			html.EscapeString(fmt.Sprintf("%.24q", n)), x+6, x+6, height-10)
	}
	for _, t := range times {
		w(`<text x="10" y="%d" fill="#555">%s</text>`+"\n", row(t)+4, t.Format("15:04:05.000000"))
	}
	for _, g := range leases {
		x := 150 + columnWidth*slices.Index(nodes, g.node)
		w(`<rect x="%d" y="%d" width="12" height="%d" fill="#4a90d9"/><text x="%d" y="%d">token %d</text>`+"\n", x, row(g.from),
			max(3, row(g.to)-row(g.from)), x+18, row(g.from)+4, g.fence.Token)
		w(`<text x="%d" y="%d" fill="#555">%s</text>`+"\n", x+18, row(g.to)+4, html.EscapeString(g.why))
	}
	w(`<line x1="10" y1="%d" x2="%d" y2="%d" stroke="#d0021b"/>`+"\n</svg>\n", row(b.Time), width-10, row(b.Time))
	return out.Flush()
}
