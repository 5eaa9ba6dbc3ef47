package certify

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/tenure-go/tenure/conformance"
	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/proof/figures"
	"github.com/tenure-go/tenure/internal/proof/history"
	"github.com/tenure-go/tenure/internal/proof/system"
)

// Verdict is what a run has shown.
type Verdict string

// The verdicts. The first that applies counts.
const (
	NotOpened Verdict = "not opened"     // nothing was judged
	Broken    Verdict = "broken"         // a rule was
	Nothing   Verdict = "proves nothing" // a phase did not do what its figures rest on
	Held      Verdict = "held"           // by all that was run
)

// kind begins a report, by which a later run knows it.
const kind = "report of tenure certify"

// Report is what a run has found. It is a plain value.
type Report struct {
	Kind    string   `json:"kind"`
	Verdict Verdict  `json:"verdict"`
	Why     []string `json:"why"` // for the verdict; of a breach the rules

	Tenure   Build                `json:"tenure"`
	Platform conformance.Platform `json:"platform"`
	Store    Store                `json:"store"`
	Options  RunOptions           `json:"options"`
	Took     map[Phase]string     `json:"took"`

	Opening     OpeningReport   `json:"opening"`
	Conformance json.RawMessage `json:"conformance,omitempty"` // as in docs/reports
	Rules       []RuleCount     `json:"rules,omitempty"`       // of the conformance suite
	System      *SystemReport   `json:"system,omitempty"`
	Control     *SystemReport   `json:"control,omitempty"`

	Findings []Finding `json:"findings"`
	Skipped  []Skip    `json:"skipped"`
	Removed  string    `json:"removed"` // records of the run
	Left     string    `json:"left"`
}

// Build is a version of Tenure.
type Build struct {
	Version  string `json:"version"`
	Commit   string `json:"commit"`
	Modified bool   `json:"modified"`
}

// Store says what was certified.
type Store struct {
	Backend   string    `json:"backend"`
	Version   string    `json:"version,omitempty"` // empty: not known
	Where     string    `json:"where"`
	Namespace string    `json:"namespace"` // of the run, below which it worked
	Settings  []Setting `json:"settings"`
}

// Setting is one of the configuration.
type Setting struct {
	Name  string `json:"name"`
	Value string `json:"value"` // xxxxx: a secret
}

// RunOptions are those of the run.
type RunOptions struct {
	Only         []Phase       `json:"only"`
	Seeds        int           `json:"seeds"`
	First        uint64        `json:"first_seed"`
	ControlSeeds int           `json:"control_seeds"`
	Steps        int           `json:"steps"`
	TTL          time.Duration `json:"ttl"` // nanoseconds
	Long         bool          `json:"long"`
	Serial       bool          `json:"serial"`
}

// OpeningReport is what the opening has found.
type OpeningReport struct {
	Outcome   string           `json:"outcome"` // "opened", or the error
	Limits    driver.Limits    `json:"limits"`  // durations in nanoseconds
	RoundTrip time.Duration    `json:"round_trip"`
	Slowest   time.Duration    `json:"slowest_round_trip"`
	Rollback  string           `json:"rollback,omitempty"`
	Findings  []driver.Finding `json:"findings"` // settings, rights and clock
}

// RuleCount says how often a rule was tested, in cases.
type RuleCount struct {
	Rule    string `json:"rule"`
	Title   string `json:"title"`
	Passed  int    `json:"passed"`
	Failed  int    `json:"failed"`
	Skipped int    `json:"skipped"`
}

// SystemReport has the figures of real processes.
type SystemReport struct {
	figures.Runs
	Planned  int            `json:"planned"` // runs
	Judged   []string       `json:"judged"`  // rules, in each run
	Compared int64          `json:"compared_steps"`
	Faults   map[string]int `json:"faults"`
}

// Finding is what a phase has found.
type Finding struct {
	Phase   Phase  `json:"phase"`
	Rule    string `json:"rule,omitempty"` // empty: it is about none
	Check   string `json:"check"`
	Message string `json:"message"`
	breach  bool
}

// Skip is what was left out.
type Skip struct {
	What string `json:"what"`
	Why  string `json:"why"`
}

func newReport(o *Options, t *target, s settings, root string) *Report {
	return &Report{
		Kind: kind, Why: []string{}, Tenure: o.Tenure,
		Platform: conformance.Platform{Made: time.Now().UTC().Truncate(time.Second), Go: runtime.Version(), OS: runtime.GOOS,
			Arch: runtime.GOARCH, CPUs: runtime.NumCPU()},
		Store: Store{Backend: o.Opener.Name, Where: t.where, Namespace: root, Settings: s.shown()},
		Options: RunOptions{Only: o.Only, Seeds: o.Seeds, First: o.First, ControlSeeds: o.ControlSeeds, Steps: o.Steps,
			TTL: o.TTL, Long: o.Long, Serial: o.Serial},
		Took: map[Phase]string{}, Findings: []Finding{}, Skipped: []Skip{}, Opening: OpeningReport{Findings: []driver.Finding{}},
	}
}

// ofCase begins what is skipped of the conformance suite.
const ofCase = "case "

func (r *Report) skip(what, why string) { r.Skipped = append(r.Skipped, Skip{what, why}) }

func (r *Report) find(f Finding) { r.Findings = append(r.Findings, f) }

// took takes the outcomes of the conformance suite.
func (r *Report) took(report *conformance.Report, errs []string) {
	if report == nil {
		for _, e := range errs {
			r.find(Finding{Phase: Conformance, Check: "the suite", Message: e})
		}
		return
	}
	report.Platform, report.Limits = r.Platform, r.Opening.Limits
	var text bytes.Buffer
	if err := report.WriteJSON(&text); err == nil {
		r.Conformance = bytes.TrimSpace(text.Bytes())
	}
	for _, rule := range conformance.Rules() {
		count := RuleCount{Rule: string(rule), Title: rule.Title()}
		for _, res := range report.Results() {
			if slices.Contains(res.Rules, rule) {
				switch res.Outcome {
				case conformance.Passed:
					count.Passed++
				case conformance.Failed:
					count.Failed++
				case conformance.Skipped:
					count.Skipped++
				}
			}
		}
		r.Rules = append(r.Rules, count)
	}
	for _, res := range report.With(conformance.Failed) {
		for _, m := range res.Messages {
			rule, breach := ruleOf(m, res.Rules)
			r.find(Finding{Phase: Conformance, Rule: rule, Check: res.Case, Message: m, breach: breach})
		}
	}
	left := 0
	for _, res := range report.With(conformance.Skipped) {
		if slices.Equal(res.Messages, []string{notChosen}) {
			left++
			continue
		}
		r.skip(ofCase+res.Case, strings.Join(res.Messages, "; "))
	}
	if left > 0 {
		r.skip(fmt.Sprintf("%d cases of the conformance suite", left), notChosen)
	}
}

// notChosen is why a phase or a case was left out that Options.Only or Cases leave out.
const notChosen = "not chosen"

// ruleOf is the rule that a message of a failed case begins with, and whether it says that
// the rule was broken: a step that failed or hung on the way to it breaks none.
func ruleOf(message string, rules []conformance.Rule) (string, bool) {
	word, rest, _ := strings.Cut(message, " ")
	word = strings.TrimSuffix(word, ":")
	if slices.Contains(conformance.Rules(), conformance.Rule(word)) {
		return word, !strings.HasPrefix(rest, "cannot be judged") && !strings.HasPrefix(rest, "hung:")
	}
	if len(rules) > 0 {
		return string(rules[0]), false
	}
	return "", false
}

// traffic is the rule of findings that say that a run proves too little.
const traffic = "traffic"

// inTime are rules that a store breaks which is only slow, or away: they are not judged where
// a run had too little traffic.
var inTime = []string{"V1", "V2", "V6", "W1"}

// played takes the figures of the system suite.
func (r *Report) played(phase Phase, planned int, report *system.Report, errs []string) {
	if report != nil && report.Runs > 0 {
		s := &SystemReport{Runs: *report.Figures(), Planned: planned, Judged: system.Judged(), Compared: report.Compared, Faults: report.Faults}
		if phase == Control {
			r.Control = s
		} else {
			r.System = s
		}
		tooLittle := slices.ContainsFunc(report.Findings, func(f history.Finding) bool { return f.Rule == traffic })
		for _, f := range report.Findings {
			message := f.Message
			if f.Shard != "" {
				message = fmt.Sprintf("shard %q: %s", f.Shard, message)
			}
			finding := Finding{Phase: phase, Rule: f.Rule, Check: f.Check, Message: message}
			switch {
			case f.Rule == traffic:
				finding.Rule = ""
			default:
				finding.breach = !tooLittle || !slices.Contains(inTime, f.Rule)
			}
			r.find(finding)
		}
		if report.Runs == planned {
			return
		}
	}
	for _, e := range errs {
		r.find(Finding{Phase: phase, Check: "the suite", Message: e})
	}
}

// judge comes to the verdict; err is that of the opening.
func (r *Report) judge(err error) {
	r.Opening.Outcome = "opened"
	if err != nil {
		r.Opening.Outcome, r.Verdict, r.Why = err.Error(), NotOpened, []string{err.Error()}
		return
	}
	var broken []string
	for _, f := range r.Findings {
		if rule := fmt.Sprintf("%s in the %s suite", f.Rule, f.Phase); f.breach && !slices.Contains(broken, rule) {
			broken = append(broken, rule)
		}
	}
	var nothing []string
	for _, f := range r.Findings {
		if !f.breach && !slices.Contains(nothing, f.Check) {
			nothing = append(nothing, f.Check)
		}
	}
	for i, check := range nothing {
		nothing[i] = "not judged: " + check
	}
	if c := r.Control; c != nil && c.Failed*20 < c.Runs.Runs*19 {
		nothing = append(nothing, fmt.Sprintf("without the fence only %d of %d runs did damage", c.Failed, c.Runs.Runs))
	}
	switch {
	case len(broken) > 0:
		r.Verdict, r.Why = Broken, append(broken, nothing...)
	case len(nothing) > 0:
		r.Verdict, r.Why = Nothing, nothing
	default:
		r.Verdict = Held
	}
}

// scrub replaces secrets in every string of the report.
func (r *Report) scrub(f func(string) string) {
	scrubAll(reflect.ValueOf(r).Elem(), f)
	if r.Conformance != nil {
		var v any
		if json.Unmarshal(r.Conformance, &v) == nil {
			if b, err := json.Marshal(scrubValue(v, f)); err == nil {
				r.Conformance = b
			}
		}
	}
}

func scrubAll(v reflect.Value, f func(string) string) {
	switch v.Kind() {
	case reflect.String:
		if v.CanSet() {
			v.SetString(f(v.String()))
		}
	case reflect.Struct:
		if _, is := v.Interface().(time.Time); is {
			return
		}
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				scrubAll(v.Field(i), f)
			}
		}
	case reflect.Pointer:
		if !v.IsNil() {
			scrubAll(v.Elem(), f)
		}
	case reflect.Slice:
		if v.Type() == reflect.TypeFor[json.RawMessage]() {
			return
		}
		for i := range v.Len() {
			scrubAll(v.Index(i), f)
		}
	default: // numbers, and maps that have names of this module only
	}
}

// scrubValue replaces secrets in a value of JSON.
func scrubValue(v any, f func(string) string) any {
	switch v := v.(type) {
	case string:
		return f(v)
	case []any:
		for i := range v {
			v[i] = scrubValue(v[i], f)
		}
	case map[string]any:
		for k := range v {
			v[k] = scrubValue(v[k], f)
		}
	}
	return v
}

// errNoReport is for a report that cannot be encoded, which only a mistake here makes.
var errNoReport = errors.New("tenure: certify: the report cannot be written as JSON")

// JSON is the report for programs.
func (r *Report) JSON() ([]byte, error) {
	b, err := json.MarshalIndent(r, "", "\t")
	if err != nil {
		return nil, errors.Join(errNoReport, err)
	}
	return append(b, '\n'), nil
}
