package certify

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/tenure-go/tenure/conformance"
	"github.com/tenure-go/tenure/internal/proof/figures"
)

// mark begins a report in Markdown. A later run recognizes the report by it.
const mark = "<!-- " + kind + " -->"

// Limits of the values in Markdown; JSON has all.
const (
	maxText   = 1000 // characters of one value
	maxListed = 50   // findings
)

// plainText returns text from outside for Markdown: on one line, without characters that mean
// something to Markdown, HTML or a terminal.
func plainText(s string) string {
	var b strings.Builder
	n := 0
	for _, c := range s {
		if n++; n > maxText {
			b.WriteString("...")
			break
		}
		switch {
		case unicode.IsSpace(c):
			b.WriteByte(' ')
		case !unicode.IsPrint(c):
			fmt.Fprintf(&b, "\\\\u%04x", c)
		case strings.ContainsRune("\\`*_{}[]<>&|#~$", c):
			b.WriteByte('\\')
			b.WriteRune(c)
		default:
			b.WriteRune(c)
		}
	}
	if b.Len() == 0 {
		return "none"
	}
	return b.String()
}

// Markdown returns the report for people.
func (r *Report) Markdown() []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s\n# %s: %s\n\n", mark, plainText(r.Store.Backend), r.Verdict)
	for _, why := range r.Why {
		fmt.Fprintf(&b, "* %s\n", plainText(why))
	}
	b.WriteString(map[Verdict]string{
		NotOpened: "\nNothing was judged.\n\n",
		Broken:    "\nThe store broke rules that Tenure needs.\n\n",
		Nothing:   "\nNo rule was seen broken, and the run proves nothing.\n\n",
		Held:      "No rule was broken in what was run. A test shows no absence of faults.\n\n",
	}[r.Verdict])
	row(&b, "", "")
	b.WriteString("|---|---|\n")
	version := r.Store.Version
	if version == "" {
		version = "not known"
	}
	row(&b, "store", version)
	if r.Verdict != NotOpened {
		row(&b, "at", r.Store.Where)
		row(&b, "namespace of the run", r.Store.Namespace)
	}
	modified := ""
	if r.Tenure.Modified {
		modified = ", with changes"
	}
	row(&b, "Tenure", fmt.Sprintf("%s, commit %s%s", r.Tenure.Version, r.Tenure.Commit, modified))
	p := r.Platform
	row(&b, "made", fmt.Sprintf("%s, %s on %s/%s with %d CPUs", p.Made.Format(time.RFC3339), p.Go, p.OS, p.Arch, p.CPUs))
	o := r.Options
	row(&b, "options", fmt.Sprintf("phases %v, seeds %d from %d, control seeds %d, steps %d, TTL %v, long %t, serial %t",
		o.Only, o.Seeds, o.First, o.ControlSeeds, o.Steps, o.TTL, o.Long, o.Serial))
	for _, phase := range append([]Phase{Opening}, Phases()...) {
		if took := r.Took[phase]; took != "" {
			row(&b, string(phase)+" took", took)
		}
	}
	row(&b, "removed", r.Removed)
	row(&b, "left", r.Left)
	r.opening(&b)
	r.findings(&b)
	r.suites(&b)
	b.WriteString("\n## Skipped\n\n")
	for _, s := range r.Skipped {
		if strings.HasPrefix(s.What, ofCase) {
			continue // it is listed with the cases not shown
		}
		fmt.Fprintf(&b, "* %s: %s\n", plainText(s.What), plainText(s.Why))
	}
	return b.Bytes()
}

func row(b *bytes.Buffer, name, value string) {
	if name != "" || value != "" {
		name, value = plainText(name), plainText(value)
	}
	fmt.Fprintf(b, "| %s | %s |\n", name, value)
}

func (r *Report) opening(b *bytes.Buffer) {
	o := r.Opening
	b.WriteString("\n## Opening\n\n| | |\n|---|---|\n")
	row(b, "outcome", o.Outcome)
	if r.Verdict != NotOpened {
		row(b, "round trip", fmt.Sprintf("%v, at most %v of %d", o.RoundTrip, o.Slowest, trips))
	}
	if o.Rollback != "" {
		row(b, "warning", o.Rollback)
	}
	for _, f := range o.Findings {
		value := f.Value
		if f.Remedy != "" {
			value += ". Warning: " + f.Remedy
		}
		row(b, f.Name, value)
	}
	for _, s := range r.Store.Settings {
		row(b, "setting "+s.Name, s.Value)
	}
}

func (r *Report) findings(b *bytes.Buffer) {
	b.WriteString("\n## Findings\n\n")
	if len(r.Findings) == 0 {
		b.WriteString("None.\n")
	}
	for _, f := range r.Findings[:min(len(r.Findings), maxListed)] {
		fmt.Fprintf(b, "* %s, %s: %s\n", f.Phase, plainText(f.Check), plainText(strings.TrimSpace(prefixed(f.Rule, f.Message))))
	}
	if more := len(r.Findings) - maxListed; more > 0 {
		fmt.Fprintf(b, "* and %d more\n", more)
	}
}

// prefixed returns a message that begins with its rule.
func prefixed(rule, message string) string {
	if strings.HasPrefix(message, rule) {
		return message
	}
	return rule + " " + message
}

// suites has the tables that docs/internals/guarantees.md has, of this store.
func (r *Report) suites(b *bytes.Buffer) {
	report, err := conformance.ReadReport(bytes.NewReader(r.Conformance))
	if r.Conformance == nil || err != nil {
		report = &conformance.Report{Backend: r.Store.Backend, Limits: r.Opening.Limits, Platform: r.Platform}
	} else {
		report = safe(report)
	}
	if r.System != nil {
		report.Faults = &r.System.Runs
	}
	if r.Control != nil {
		report.Control = &r.Control.Runs
	}
	if r.Conformance != nil || r.System != nil || r.Control != nil {
		b.WriteString("\n")
		_ = conformance.WriteMarkdown(b, report) // a buffer accepts everything
	}
	for _, s := range []struct {
		name string
		*SystemReport
	}{{"system", r.System}, {"control", r.Control}} {
		if s.SystemReport == nil {
			continue
		}
		fmt.Fprintf(b, "\n## Faults of the %s suite\n\n%d of %d runs.", s.name, s.Runs.Runs, s.Planned)
		if s.name == string(System) {
			fmt.Fprintf(b, " Each judged %s. %d steps of members were compared with the rules.", strings.Join(s.Judged, ", "), s.Compared)
		}
		b.WriteString("\n\n")
		for _, f := range slices.Sorted(maps.Keys(s.Faults)) {
			fmt.Fprintf(b, "* %s: %d\n", f, s.Faults[f])
		}
	}
}

// safe returns a copy whose texts have no effect on Markdown.
func safe(r *conformance.Report) *conformance.Report {
	var text bytes.Buffer
	var v map[string]any
	if r.WriteJSON(&text) != nil || json.Unmarshal(text.Bytes(), &v) != nil {
		return r
	}
	for _, key := range []string{"backend", "version", "options"} {
		if s, ok := v[key].(string); ok && s != "" {
			v[key] = plainText(s)
		}
	}
	results, _ := v["results"].([]any)
	results = slices.DeleteFunc(results, func(res any) bool { return strings.Contains(fmt.Sprint(res), "messages:["+notChosen+"]") })
	v["results"] = results
	for _, res := range results {
		if res, ok := res.(map[string]any); ok && res["messages"] != nil {
			res["messages"] = scrubValue(res["messages"], plainText)
		}
	}
	encoded, err := json.Marshal(v)
	if err != nil {
		return r
	}
	out, err := conformance.ReadReport(bytes.NewReader(encoded))
	if err != nil {
		return r
	}
	return out
}

// Line is one phase in a few words.
type Line struct {
	Phase   string
	Result  string
	Figures string
}

// Lines returns the phases for a table.
func (r *Report) Lines() []Line {
	out := []Line{{string(Opening), "opened", strings.TrimPrefix(r.Store.Version+", round trip "+r.Opening.RoundTrip.String(), ", ")}}
	if r.Verdict == NotOpened {
		out[0].Result, out[0].Figures = "failed", r.Opening.Outcome
		return out
	}
	if r.Conformance != nil {
		var counts struct {
			Results []struct{ Outcome conformance.Outcome }
		}
		_ = json.Unmarshal(r.Conformance, &counts) // it was encoded here
		n := map[conformance.Outcome]int{}
		for _, res := range counts.Results {
			n[res.Outcome]++
		}
		out = append(out, Line{string(Conformance), r.result(Conformance),
			fmt.Sprintf("%d passed, %d failed, %d skipped", n[conformance.Passed], n[conformance.Failed], n[conformance.Skipped])})
	}
	if s := r.System; s != nil {
		out = append(out, Line{string(System), r.result(System), figuresOf(&s.Runs)})
	}
	if c := r.Control; c != nil {
		result := "damaged, as it must be"
		if c.Failed*20 < c.Runs.Runs*19 {
			result = "too little damage"
		}
		out = append(out, Line{string(Control), result, fmt.Sprintf("%d of %d runs, %d entries", c.Failed, c.Runs.Runs, c.Damage)})
	}
	return out
}

func figuresOf(f *figures.Runs) string {
	return fmt.Sprintf("%d runs, %d writes accepted, %d requests fenced, %d takeovers, %d late writes",
		f.Runs, f.Accepted, f.Fenced, f.Takeovers, f.Late)
}

// result returns the findings of a phase in a few words.
func (r *Report) result(phase Phase) string {
	result := Held
	for _, f := range r.Findings {
		if f.Phase == phase && f.breach {
			return string(Broken)
		}
		if f.Phase == phase {
			result = Nothing
		}
	}
	return string(result)
}
