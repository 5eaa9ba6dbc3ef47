package conformance

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/proof/figures"
)

// ReportDir is the name of an environment variable that holds the absolute path of a directory.
// If it is set, Test measures the backend after the suite. It then writes the report to that
// directory as JSON, under the backend's name.
const ReportDir = "TENURE_CONFORMANCE_REPORT"

// Platform describes where a report was made.
type Platform struct {
	Made time.Time `json:"made"`
	Go   string    `json:"go"`
	OS   string    `json:"os"`
	Arch string    `json:"arch"`
	CPUs int       `json:"cpus"`
}

// file is a report as JSON.
type file struct {
	Backend  string        `json:"backend"`
	Version  string        `json:"version,omitempty"`
	Options  string        `json:"options,omitempty"`
	Platform Platform      `json:"platform"`
	Limits   driver.Limits `json:"limits"` // durations in nanoseconds
	Measures []Measure     `json:"measures"`
	Results  []fileResult  `json:"results"`
}

type fileResult struct {
	Case     string   `json:"case"`
	Outcome  Outcome  `json:"outcome"`
	Messages []string `json:"messages,omitempty"`
}

// WriteJSON writes the report, without the durations of its cases.
func (r *Report) WriteJSON(w io.Writer) error {
	f := file{Backend: r.Backend, Version: r.Version, Options: r.Options, Platform: r.Platform, Limits: r.Limits,
		Measures: r.Measures}
	for _, res := range r.Results() {
		f.Results = append(f.Results, fileResult{Case: res.Case, Outcome: res.Outcome, Messages: res.Messages})
	}
	e := json.NewEncoder(w)
	e.SetIndent("", "\t")
	return e.Encode(f)
}

// ReadReport reads the output of WriteJSON. Each case gets its current rules. Cases that the
// suite no longer has are left out.
func ReadReport(r io.Reader) (*Report, error) {
	var f file
	if err := json.NewDecoder(r).Decode(&f); err != nil {
		return nil, fmt.Errorf("tenure: reading a conformance report: %w", err)
	}
	report := &Report{Backend: f.Backend, Version: f.Version, Options: f.Options, Platform: f.Platform,
		Limits: f.Limits, Measures: f.Measures}
	cases := Cases()
	for _, res := range f.Results {
		i := slices.IndexFunc(cases, func(c Case) bool { return c.Name() == res.Case })
		if i >= 0 {
			report.add(Result{Case: res.Case, Rules: cases[i].Rules, Outcome: res.Outcome, Messages: res.Messages})
		}
	}
	return report, nil
}

// save measures, and writes the report for ReportDir.
func (r *Report) save(t *testing.T, h Harness, dir string) {
	t.Helper()
	r.Measure(Wrap(t), h)
	r.Platform = Platform{Made: time.Now().UTC().Truncate(time.Second), Go: runtime.Version(), OS: runtime.GOOS,
		Arch: runtime.GOARCH, CPUs: runtime.NumCPU()}
	if err := r.writeFile(filepath.Join(dir, h.Name+".json")); err != nil {
		t.Fatal(err)
	}
}

// amend replaces the outcomes in an existing report. A missing report is no error, because Test was
// not run.
func (r *Report) amend(t *testing.T, h Harness, dir string) {
	t.Helper()
	path := filepath.Join(dir, h.Name+".json")
	whole, err := readReport(path)
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, res := range r.Results() {
		whole.results = slices.DeleteFunc(whole.results, func(old Result) bool { return old.Case == res.Case })
		whole.add(res)
	}
	if err := whole.writeFile(path); err != nil {
		t.Fatal(err)
	}
}

func (r *Report) writeFile(path string) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	err = r.WriteJSON(f)
	if closing := f.Close(); err == nil {
		err = closing
	}
	return err
}

// WriteMarkdown writes tables that compare backends: the rules that their reports prove, the cases
// that they could not run, and their limits and measures.
func WriteMarkdown(w io.Writer, reports ...*Report) error {
	var b strings.Builder
	t := table{&b, reports}
	b.WriteString("## Rules\n\n")
	t.head("cases passed")
	t.row(fmt.Sprintf("of the suite's %d", len(Cases())), func(r *Report) string {
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

// underFaults shows the runs of package system side by side, for the backends that have such
// runs.
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
		cell func(*FaultRuns) string
	}{
		{"TTL", func(f *FaultRuns) string { return f.TTL.String() }},
		{"runs with violations", func(f *FaultRuns) string { return fmt.Sprintf("%d of %d", f.Failed, f.Runs) }},
		{"writes accepted", func(f *FaultRuns) string { return fmt.Sprint(f.Accepted) }},
		{"writes refused, requests refused by the fence", func(f *FaultRuns) string {
			return fmt.Sprintf("%d, %d", f.Refused, f.Fenced)
		}},
		{"ambiguous writes, resolved ones", func(f *FaultRuns) string {
			return fmt.Sprintf("%d, %d", f.Ambiguous, f.Resolved)
		}},
		{"writes sent after a takeover", func(f *FaultRuns) string { return fmt.Sprint(f.Late) }},
		{"entries under a superseded token", func(f *FaultRuns) string { return fmt.Sprint(f.Damage) }},
		{"longest overlap of trust, µs", func(f *FaultRuns) string { return fmt.Sprint(f.Overlap) }},
		{"takeovers, by force", func(f *FaultRuns) string { return fmt.Sprintf("%d, %d", f.Takeovers, f.ByForce) }},
		{"fault to new grant, in TTLs: median, 99 %, most", func(f *FaultRuns) string {
			return fmt.Sprintf("%.2f, %.2f, %.2f", f.Median, f.P99, f.Most)
		}},
		{"the same, process killed", func(f *FaultRuns) string { return cell(f.Crash) }},
		{"the same, process stopped", func(f *FaultRuns) string { return cell(f.Stop) }},
		{"the same, store away too, from its return", func(f *FaultRuns) string { return cell(f.Outage) }},
		{"the same, no other fault beside, less what has a reason", func(f *FaultRuns) string { return cell(f.Alone) }},
		{"above 1.5 TTL: another member struck, store away, machine stood still, store slow; no reason", func(f *FaultRuns) string {
			l := f.Long
			if f.Alone.N == 0 && l == (figures.Long{}) {
				return "not measured"
			}
			return fmt.Sprintf("%d, %d, %d, %d; %d", l.Struck, l.Away, l.Still, l.Slow, l.None)
		}},
		{"sessions evicted after a kill, reported by the member that did it", func(f *FaultRuns) string {
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

func cell(t figures.Times) string {
	if t.N == 0 {
		return "not measured"
	}
	return fmt.Sprintf("%.2f, %.2f, %.2f of %d", t.Median, t.P99, t.Most, t.N)
}

// batched finds the number of items of a call in a measure's name.
var batched = regexp.MustCompile(`\b(\d+)( shards)? in one call$`)

// measured writes a row for each measure, with the machine on which it was taken.
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
	for _, res := range r.Results() {
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
