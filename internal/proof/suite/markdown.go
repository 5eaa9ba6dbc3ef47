package suite

import (
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// WriteMarkdown writes tables that compare backends. The tables show the rules that the reports
// prove, the cases that could not run, the limits and the measurements. The cases argument contains
// all cases of the suite.
func WriteMarkdown(w io.Writer, cases []Case, reports ...*Report) error {
	p := new(Page)
	p.WriteString("## Rules\n\n")
	p.compare("cases passed", reports, func(r *Report) []row {
		rows := []row{{fmt.Sprintf("of the suite's %d", len(cases)), fmt.Sprint(r.Count("").Passed)}}
		for _, rule := range Rules() {
			rows = append(rows, row{fmt.Sprintf("**%s** %s", rule, rule.Title()), r.Count(rule).proof()})
		}
		return rows
	})
	p.WriteString("\n## Limits\n\n")
	p.compare("of one call", reports, func(r *Report) []row {
		l, visible := r.Limits, "immediately"
		if l.PollPeriod > 0 {
			visible = l.PollPeriod.String()
			if l.IdlePollPeriod > 0 {
				visible += ", after a quiet time " + l.IdlePollPeriod.String()
			}
		}
		return []row{
			{"items of a batch in one round trip", fmt.Sprint(l.BatchItems)},
			{"operations of a write", fmt.Sprint(l.WriteOps)},
			{"bytes of a write", fmt.Sprint(l.WriteBytes)},
			{"a change is visible, at most after", visible},
			{"shortest TTL", l.MinTTL.String()},
		}
	})
	faults := slices.DeleteFunc(slices.Clone(reports), func(r *Report) bool { return r.Faults == nil })
	if len(faults) > 0 {
		p.WriteString("\n## Under faults\n\n")
		p.compare("real processes, killed, stopped and cut off", faults, func(r *Report) []row {
			control := "not run"
			if c := r.Control; c != nil {
				control = fmt.Sprintf("%d of %d, %d", c.Failed, c.Runs, c.Damage)
			}
			return append(r.Faults.rows(), row{"without the fence: runs with damage, damaged entries", control})
		})
	}
	measured(p, reports)
	notShown(p, reports)
	_, err := p.WriteTo(w)
	return err
}

// row is one report's value in a table row. The name and the value are Markdown.
type row struct{ name, value string }

// compare writes a table with a column for each report. The table has the rows of all reports, in
// the order in which they first occur. "-" means that a report lacks the row.
func (p *Page) compare(head string, reports []*Report, rows func(*Report) []row) {
	line := func(cells ...string) { p.WriteString("| " + strings.Join(cells, " | ") + " |\n") }
	titles, names, values := []string{head}, []string(nil), map[string][]string{}
	for i, r := range reports {
		titles = append(titles, Plain(r.Backend))
		for _, x := range rows(r) {
			if values[x.name] == nil {
				names, values[x.name] = append(names, x.name), slices.Repeat([]string{"-"}, len(reports))
			}
			values[x.name][i] = x.value
		}
	}
	line(titles...)
	p.WriteString("|" + strings.Repeat("---|", len(titles)) + "\n")
	for _, name := range names {
		line(append([]string{name}, values[name]...)...)
	}
}

// batched finds the number of items per call in a measurement's name.
var batched = regexp.MustCompile(`\b(\d+)( shards)? in one call$`)

// measured writes a row for each measure, and describes the machine that was measured.
func measured(p *Page, reports []*Report) {
	p.WriteString("\n## Measured\n\n")
	var places []string
	taken := make(map[string][]string)
	for _, r := range reports {
		place := r.Platform.At(time.DateOnly)
		if taken[place] == nil {
			places = append(places, place)
		}
		taken[place] = append(taken[place], r.Backend)
	}
	for _, place := range places {
		p.Printf("* %s: %s\n", place, strings.Join(taken[place], ", "))
	}
	p.WriteString("\n")
	p.compare("figure", reports, func(r *Report) []row {
		rows := []row{{"store", Plain(r.about())}}
		for _, m := range r.Measures {
			name, value := batched.ReplaceAllString(m.Name, "n$2 in one call"), significant(m.Value)
			name += ", " + strings.Replace(m.Unit, "/", "per ", 1)
			if n := batched.FindStringSubmatch(m.Name); n != nil {
				name, value = name+", n", value+", "+n[1]
			}
			rows = append(rows, row{name, value})
		}
		return rows
	})
}

// notShown lists the cases that failed or were skipped, by reason and backends.
func notShown(p *Page, reports []*Report) {
	type result struct {
		outcome   Outcome
		why, name string
	}
	on := make(map[result][]string)
	for _, r := range reports {
		for _, res := range slices.Concat(r.With(Failed), r.With(Skipped)) {
			var why []string
			for _, m := range res.Messages {
				why = append(why, Plain(m))
			}
			x := result{res.Outcome, strings.Join(why, "; "), res.Case}
			on[x] = append(on[x], Plain(r.Backend))
		}
	}
	cases := make(map[string][]string)
	for x, backends := range on {
		line := fmt.Sprintf("* %s on %s: %s", x.outcome, strings.Join(backends, ", "), x.why)
		cases[line] = append(cases[line], "`"+x.name+"`")
	}
	p.WriteString("\n## Not shown\n\n")
	for _, line := range slices.Sorted(maps.Keys(cases)) {
		slices.Sort(cases[line])
		p.WriteString(line + ": " + strings.Join(cases[line], ", ") + "\n")
	}
}

// significant formats v with three significant digits.
func significant(v float64) string {
	rounded, err := strconv.ParseFloat(strconv.FormatFloat(v, 'e', 2, 64), 64)
	if err != nil {
		return fmt.Sprint(v)
	}
	return strconv.FormatFloat(rounded, 'f', -1, 64)
}

// proof returns how many of a rule's cases passed.
func (c Counts) proof() string {
	if all := c.Passed + c.Failed + c.Skipped; c.Passed < all {
		return fmt.Sprintf("%d/%d", c.Passed, all)
	}
	return fmt.Sprint(c.Passed)
}
