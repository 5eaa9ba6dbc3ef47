package certify

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tenure-go/tenure/internal/proof/suite"
)

// mark begins a Markdown report, so that a later run recognizes it.
const mark = "<!-- " + kind + " -->"

// maxListed is the maximum number of findings in Markdown. The JSON report contains all findings.
const maxListed = 50

// Markdown returns the report as Markdown, for human readers.
func (r *Report) Markdown() []byte {
	p := new(suite.Page)
	p.WriteString(mark)
	p.Printf("\n# %s: %v\n\n", r.Store.Backend, r.Verdict)
	for _, why := range r.Why {
		p.Printf("* %s\n", why)
	}
	p.WriteString(map[Verdict]string{
		NotOpened: "\nNothing was judged.\n\n",
		Broken:    "\nThe store broke rules that Tenure needs.\n\n",
		Nothing:   "\nNo rule was seen broken, and the run proves nothing.\n\n",
		Held:      "No rule was broken in what was run. A test shows no absence of faults.\n\n",
	}[r.Verdict])
	p.WriteString(facts)
	row(p, "store", cmp.Or(r.Store.Version, "not known"))
	if r.Verdict != NotOpened {
		row(p, "at", r.Store.Where)
		row(p, "namespace of the run", r.Store.Namespace)
	}
	modified := ""
	if r.Tenure.Modified {
		modified = ", with changes"
	}
	row(p, "Tenure", fmt.Sprintf("%s, commit %s%s", r.Tenure.Version, r.Tenure.Commit, modified))
	row(p, "made", r.Platform.At(time.RFC3339))
	o := r.Options
	row(p, "options", fmt.Sprintf("phases %v, seeds %d from %d, control seeds %d, steps %d, TTL %v, long %t, serial %t",
		o.Only, o.Seeds, o.First, o.ControlSeeds, o.Steps, o.TTL, o.Long, o.Serial))
	for _, phase := range append([]Phase{Opening}, Phases()...) {
		if took := r.Took[phase]; took != "" {
			row(p, string(phase)+" took", took)
		}
	}
	row(p, "removed", r.Removed)
	row(p, "left", r.Left)
	r.opening(p)
	r.findings(p)
	r.suites(p)
	p.WriteString("\n## Skipped\n\n")
	for _, s := range r.Skipped {
		if !strings.HasPrefix(s.What, ofCase) { // WriteMarkdown lists skipped cases
			p.Printf("* %s: %s\n", s.What, s.Why)
		}
	}
	return p.Bytes()
}

// facts begins a table of names and values.
const facts = "| | |\n|---|---|\n"

func row(p *suite.Page, name, value string) { p.Printf("| %s | %s |\n", name, cmp.Or(value, "none")) }

func (r *Report) opening(p *suite.Page) {
	o := r.Opening
	p.WriteString("\n## Opening\n\n" + facts)
	row(p, "outcome", o.Outcome)
	if r.Verdict != NotOpened {
		row(p, "round trip", fmt.Sprintf("%v, at most %v of %d", o.RoundTrip, o.Slowest, trips))
	}
	if o.Rollback != "" {
		row(p, "warning", o.Rollback)
	}
	for _, f := range o.Findings {
		value := f.Value
		if f.Remedy != "" {
			value += ". Warning: " + f.Remedy
		}
		row(p, f.Name, value)
	}
	for _, s := range r.Store.Settings {
		row(p, "setting "+s.Name, s.Value)
	}
}

func (r *Report) findings(p *suite.Page) {
	p.WriteString("\n## Findings\n\n")
	if len(r.Findings) == 0 {
		p.WriteString("None.\n")
	}
	for _, f := range r.Findings[:min(len(r.Findings), maxListed)] {
		p.Printf("* %v, %s: %s\n", f.Phase, f.Check, strings.TrimSpace(prefixed(f.Rule, f.Message)))
	}
	if more := len(r.Findings) - maxListed; more > 0 {
		p.Printf("* and %d more\n", more)
	}
}

// The returned message begins with its rule.
func prefixed(rule, message string) string {
	if strings.HasPrefix(message, rule) {
		return message
	}
	return rule + " " + message
}

// suites writes the tables of docs/internals/guarantees.md for this store.
func (r *Report) suites(p *suite.Page) {
	report := &suite.Report{Backend: r.Store.Backend, Limits: r.Opening.Limits, Platform: r.Platform}
	if c := r.Conformance; c != nil {
		report.Version, report.Measures = c.Version, c.Measures
		report.Results = slices.DeleteFunc(slices.Clone(c.Results), leftOut)
	}
	if r.System != nil {
		report.Faults = &r.System.Figures
	}
	if r.Control != nil {
		report.Control = &r.Control.Figures
	}
	if r.Conformance != nil || r.System != nil || r.Control != nil {
		p.WriteString("\n")
		_ = suite.WriteMarkdown(p, Cases(), report) // writing to a Page cannot fail
	}
	for _, s := range []struct {
		phase Phase
		*SystemReport
	}{{System, r.System}, {Control, r.Control}} {
		if s.SystemReport == nil {
			continue
		}
		p.Printf("\n## Faults of the %v suite\n\n%d of %d runs.", s.phase, s.Runs, s.Planned)
		if s.phase == System {
			p.Printf(" Each judged %s. %d steps of members were compared with the rules.", strings.Join(s.Judged, ", "), s.Compared)
		}
		p.WriteString("\n\n")
		for _, f := range slices.Sorted(maps.Keys(s.Faults)) {
			p.Printf("* %s: %d\n", f, s.Faults[f])
		}
	}
}

// Line describes one phase in a few words.
type Line struct {
	Phase   string
	Result  string
	Figures string
}

// Lines returns a Line for each phase.
func (r *Report) Lines() []Line {
	out := []Line{{string(Opening), "opened", strings.TrimPrefix(r.Store.Version+", round trip "+r.Opening.RoundTrip.String(), ", ")}}
	if r.Verdict == NotOpened {
		out[0].Result, out[0].Figures = "failed", r.Opening.Outcome
		return out
	}
	if c := r.Conformance; c != nil {
		out = append(out, Line{string(Conformance), r.result(Conformance), c.Count("").String()})
	}
	if s := r.System; s != nil {
		out = append(out, Line{string(System), r.result(System), figuresOf(&s.Figures)})
	}
	if c := r.Control; c != nil {
		result := "damaged, as it must be"
		if !c.Suffices() {
			result = "too little damage"
		}
		out = append(out, Line{string(Control), result, fmt.Sprintf("%d of %d runs, %d entries", c.Failed, c.Runs, c.Damage)})
	}
	return out
}

func figuresOf(f *suite.Figures) string {
	return fmt.Sprintf("%d runs, %d writes accepted, %d requests fenced, %d takeovers, %d late writes",
		f.Runs, f.Accepted, f.Fenced, f.Takeovers, f.Late)
}

// result describes the findings of a phase in a few words.
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
