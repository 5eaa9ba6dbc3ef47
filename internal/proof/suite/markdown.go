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

// WriteMarkdown writes tables that compare backends: the rules that their reports prove, the cases
// that they could not run, and their limits and measures. cases are all cases of the suite.
func WriteMarkdown(w io.Writer, cases []Case, reports ...*Report) error {
	var b strings.Builder
	t := table{&b, reports}
	b.WriteString("## Rules\n\n")
	t.head("cases passed")
	t.row(fmt.Sprintf("of the suite's %d", len(cases)), func(r *Report) string {
		return fmt.Sprint(len(r.With(Passed)))
	})
	for _, rule := range Rules() {
		t.row(fmt.Sprintf("**%s** %s", rule, rule.Title()), func(r *Report) string { return r.proof(rule) })
	}
	b.WriteString("\n## Limits\n\n")
	t.head("of one call")
	t.row("items of a batch in one round trip", func(r *Report) string { return fmt.Sprint(r.Limits.BatchItems) })
	t.row("operations of a write", func(r *Report) string { return fmt.Sprint(r.Limits.WriteOps) })
	t.row("bytes of a write", func(r *Report) string { return fmt.Sprint(r.Limits.WriteBytes) })
	t.row("a change is visible, at most after", func(r *Report) string {
		if r.Limits.PollPeriod == 0 {
			return "immediately"
		}
		if r.Limits.IdlePollPeriod == 0 {
			return r.Limits.PollPeriod.String()
		}
		return fmt.Sprintf("%v, after a quiet time %v", r.Limits.PollPeriod, r.Limits.IdlePollPeriod)
	})
	t.row("shortest TTL", func(r *Report) string { return r.Limits.MinTTL.String() })
	underFaults(&b, reports)
	measured(t)
	notShown(&b, reports)
	_, err := io.WriteString(w, b.String())
	return err
}

// table shows reports side by side, one column for each.
type table struct {
	b       *strings.Builder
	reports []*Report
}

func (t table) head(first string) {
	t.row(first, func(r *Report) string { return r.Backend })
	t.b.WriteString("|" + strings.Repeat("---|", len(t.reports)+1) + "\n")
}

func (t table) row(first string, cell func(*Report) string) {
	t.b.WriteString("| " + first + " |")
	for _, r := range t.reports {
		t.b.WriteString(" " + cell(r) + " |")
	}
	t.b.WriteString("\n")
}

// underFaults shows the runs of the system suite side by side, for the backends that have any.
func underFaults(b *strings.Builder, all []*Report) {
	reports := slices.DeleteFunc(slices.Clone(all), func(r *Report) bool { return r.Faults == nil })
	if len(reports) == 0 {
		return
	}
	b.WriteString("\n## Under faults\n\n")
	t := table{b, reports}
	t.head("real processes, killed, stopped and cut off")
	for _, x := range []struct {
		name string
		cell func(*Runs) string
	}{
		{"TTL", func(f *Runs) string { return f.TTL.String() }},
		{"runs with violations", func(f *Runs) string { return fmt.Sprintf("%d of %d", f.Failed, f.Runs) }},
		{"writes accepted", func(f *Runs) string { return fmt.Sprint(f.Accepted) }},
		{"writes refused, requests refused by the fence", func(f *Runs) string {
			return fmt.Sprintf("%d, %d", f.Refused, f.Fenced)
		}},
		{"ambiguous writes, resolved ones", func(f *Runs) string {
			return fmt.Sprintf("%d, %d", f.Ambiguous, f.Resolved)
		}},
		{"writes sent after a takeover", func(f *Runs) string { return fmt.Sprint(f.Late) }},
		{"entries under a superseded token", func(f *Runs) string { return fmt.Sprint(f.Damage) }},
		{"longest overlap of trust, µs", func(f *Runs) string { return fmt.Sprint(f.Overlap) }},
		{"takeovers, by force", func(f *Runs) string { return fmt.Sprintf("%d, %d", f.Takeovers, f.ByForce) }},
		{"fault to new grant, in TTLs: median, 99 %, most", func(f *Runs) string {
			return fmt.Sprintf("%.2f, %.2f, %.2f", f.Median, f.P99, f.Most)
		}},
		{"the same, process killed", func(f *Runs) string { return cell(f.Crash) }},
		{"the same, process stopped", func(f *Runs) string { return cell(f.Stop) }},
		{"the same, store away too, from its return", func(f *Runs) string { return cell(f.Outage) }},
		{"the same, no other fault beside, less what has a reason", func(f *Runs) string { return cell(f.Alone) }},
		{"above 1.5 TTL: another member struck, store away, machine stood still, store slow; no reason", func(f *Runs) string {
			l := f.Long
			if f.Alone.N == 0 && l == (Long{}) {
				return "not measured"
			}
			return fmt.Sprintf("%d, %d, %d, %d; %d", l.Struck, l.Away, l.Still, l.Slow, l.None)
		}},
		{"sessions evicted after a kill, reported by the member that did it", func(f *Runs) string {
			if f.Evicted == 0 {
				return "not measured"
			}
			return fmt.Sprintf("%d, %d", f.Evicted, f.Told)
		}},
	} {
		t.row(x.name, func(r *Report) string { return x.cell(r.Faults) })
	}
	t.row("without the fence: runs with damage, damaged entries", func(r *Report) string {
		if c := r.Control; c != nil {
			return fmt.Sprintf("%d of %d, %d", c.Failed, c.Runs, c.Damage)
		}
		return "not run"
	})
}

func cell(t Times) string {
	if t.N == 0 {
		return "not measured"
	}
	return fmt.Sprintf("%.2f, %.2f, %.2f of %d", t.Median, t.P99, t.Most, t.N)
}

// batched finds, in a measure's name, the number of items of a call.
var batched = regexp.MustCompile(`\b(\d+)( shards)? in one call$`)

// measured writes a row for each measure, with the machine that was measured.
func measured(t table) {
	t.b.WriteString("\n## Measured\n\n")
	var places, names []string
	taken := make(map[string][]string)
	cells := make(map[string]map[*Report]string)
	for _, r := range t.reports {
		p := r.Platform
		place := fmt.Sprintf("%s, %s on %s/%s with %d CPUs", p.Made.Format(time.DateOnly), p.Go, p.OS, p.Arch, p.CPUs)
		if taken[place] == nil {
			places = append(places, place)
		}
		taken[place] = append(taken[place], r.Backend)
		for _, m := range r.Measures {
			name, cell := batched.ReplaceAllString(m.Name, "n$2 in one call"), significant(m.Value)
			name += ", " + strings.Replace(m.Unit, "/", "per ", 1)
			if n := batched.FindStringSubmatch(m.Name); n != nil {
				name, cell = name+", n", cell+", "+n[1]
			}
			if cells[name] == nil {
				names, cells[name] = append(names, name), make(map[*Report]string)
			}
			cells[name][r] = cell
		}
	}
	for _, place := range places {
		fmt.Fprintf(t.b, "* %s: %s\n", place, strings.Join(taken[place], ", "))
	}
	t.b.WriteString("\n")
	t.head("figure")
	t.row("store", (*Report).about)
	for _, name := range names {
		t.row(name, func(r *Report) string {
			if cell := cells[name][r]; cell != "" {
				return cell
			}
			return "-"
		})
	}
}

// notShown lists the cases that failed or were skipped, by reason and backends.
func notShown(b *strings.Builder, reports []*Report) {
	type result struct {
		outcome   Outcome
		why, name string
	}
	on := make(map[result][]string)
	for _, r := range reports {
		for _, res := range slices.Concat(r.With(Failed), r.With(Skipped)) {
			x := result{res.Outcome, strings.Join(res.Messages, "; "), res.Case}
			on[x] = append(on[x], r.Backend)
		}
	}
	cases := make(map[string][]string)
	for x, backends := range on {
		line := fmt.Sprintf("* %s on %s: %s", x.outcome, strings.Join(backends, ", "), x.why)
		cases[line] = append(cases[line], "`"+x.name+"`")
	}
	b.WriteString("\n## Not shown\n\n")
	for _, line := range slices.Sorted(maps.Keys(cases)) {
		slices.Sort(cases[line])
		fmt.Fprintf(b, "%s: %s\n", line, strings.Join(cases[line], ", "))
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
func (r *Report) proof(rule Rule) string {
	passed, all := 0, 0
	for _, res := range r.Results {
		if slices.Contains(res.Rules, rule) {
			all++
			if res.Outcome == Passed {
				passed++
			}
		}
	}
	if passed == all {
		return fmt.Sprint(passed)
	}
	return fmt.Sprintf("%d/%d", passed, all)
}
