package certify

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
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

// Verdict is the result of a run.
type Verdict string

// The verdicts. The first that applies counts.
const (
	NotOpened Verdict = "not opened"     // nothing was judged
	Broken    Verdict = "broken"         // a rule was broken
	Nothing   Verdict = "proves nothing" // a phase did too little for its figures
	Held      Verdict = "held"           // no phase that was run broke a rule
)

// kind begins a report. A later run recognizes the report by it.
const kind = "report of tenure certify"

// Report has the findings of a run. It is a plain value.
type Report struct {
	Kind    string   `json:"kind"`
	Verdict Verdict  `json:"verdict"`
	Why     []string `json:"why"` // reasons for the verdict; for a breach its rules

	Tenure   Build                `json:"tenure"`
	Platform conformance.Platform `json:"platform"`
	Store    Store                `json:"store"`
	Options  RunOptions           `json:"options"`
	Took     map[Phase]string     `json:"took"`

	Opening     OpeningReport   `json:"opening"`
	Conformance json.RawMessage `json:"conformance,omitempty"` // in the form of docs/reports
	Rules       []RuleCount     `json:"rules,omitempty"`       // of the conformance suite
	System      *SystemReport   `json:"system,omitempty"`
	Control     *SystemReport   `json:"control,omitempty"`

	Findings []Finding `json:"findings"`
	Skipped  []Skip    `json:"skipped"`
	Removed  string    `json:"removed"` // description of the run's records
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
	Version   string    `json:"version,omitempty"` // empty: unknown
	Where     string    `json:"where"`
	Namespace string    `json:"namespace"` // the run worked below it
	Settings  []Setting `json:"settings"`
}

// Setting is one setting of the configuration.
type Setting struct {
	Name  string `json:"name"`
	Value string `json:"value"` // xxxxx for a secret
}

// RunOptions are the options of the run.
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

// OpeningReport has the findings of the opening.
type OpeningReport struct {
	Outcome   string           `json:"outcome"` // "opened", or the error
	Limits    driver.Limits    `json:"limits"`  // durations in nanoseconds
	RoundTrip time.Duration    `json:"round_trip"`
	Slowest   time.Duration    `json:"slowest_round_trip"`
	Rollback  string           `json:"rollback,omitempty"`
	Findings  []driver.Finding `json:"findings"` // about settings, rights and clock
}

// RuleCount has the numbers of cases that tested a rule.
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

// Finding is one finding of a phase.
type Finding struct {
	Phase   Phase  `json:"phase"`
	Rule    string `json:"rule,omitempty"` // empty: it is about no rule
	Check   string `json:"check"`
	Message string `json:"message"`
	breach  bool
}

// Skip is a part that was left out.
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

// ofCase begins the name of a skipped case of the conformance suite.
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

// notChosen is why a phase or a case was skipped that Options.Only or Cases do not select.
const notChosen = "not chosen"

// ruleOf returns the rule at the beginning of a failed case's message, and whether the message says
// that the rule was broken. A preparing step that failed or hung breaks no rule.
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

// traffic is the rule of findings that a run had too little traffic.
const traffic = "traffic"

// inTime are the rules that a store breaks if it is only slow, or away. They are not judged if a
// run had too little traffic.
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

// judge sets the verdict. err is the error of the opening.
func (r *Report) judge(err error) {
	r.Opening.Outcome = "opened"
	if err != nil {
		// If nothing opened, it is unknown which part of a setting is a misplaced secret.
		r.Store = Store{Backend: r.Store.Backend, Settings: []Setting{}}
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
	nothing = append(nothing, r.idle()...)
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

// idle returns why a run judged nothing. The control alone judges no store.
func (r *Report) idle() []string {
	passed := slices.ContainsFunc(r.Rules, func(c RuleCount) bool { return c.Passed > 0 })
	switch {
	case slices.Contains(r.Options.Only, Conformance) && !passed:
		return []string{"no case of the conformance suite passed"}
	case !passed && r.System == nil:
		return []string{"neither a case of the conformance suite nor a run of the system suite judged the store"}
	}
	return nil
}

// scrub replaces secrets in the texts of the report that come from outside: errors, messages, and
// the store's description of itself. The report's own words stay, even if one of them is a secret.
// Settings and addresses have no secrets.
func (r *Report) scrub(f func(string) string) {
	texts := []*string{&r.Store.Version, &r.Opening.Rollback}
	if r.Verdict == NotOpened {
		texts = append(texts, &r.Opening.Outcome, &r.Why[0])
	}
	for i := range r.Findings {
		texts = append(texts, &r.Findings[i].Message)
	}
	for i := range r.Opening.Findings {
		texts = append(texts, &r.Opening.Findings[i].Value, &r.Opening.Findings[i].Remedy)
	}
	for _, text := range texts {
		*text = f(*text)
	}
	if r.Conformance != nil {
		r.Conformance = messages(r.Conformance, f)
	}
}

// messages returns a report of the conformance suite with f applied to its failures and the store's
// version.
func messages(report json.RawMessage, f func(string) string) json.RawMessage {
	var v map[string]any
	if json.Unmarshal(report, &v) != nil {
		return nil
	}
	if version, ok := v["version"].(string); ok {
		v["version"] = f(version)
	}
	results, _ := v["results"].([]any)
	for _, res := range results {
		if res, ok := res.(map[string]any); ok && res["outcome"] == string(conformance.Failed) {
			res["messages"] = scrubValue(res["messages"], f)
		}
	}
	b, err := json.Marshal(v)
	if err != nil {
		return nil
	}
	return b
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

// errNoReport is the error of a report that cannot be encoded, which only a mistake in this package
// causes.
var errNoReport = errors.New("tenure: certify: the report cannot be written as JSON")

// JSON returns the report for programs.
func (r *Report) JSON() ([]byte, error) {
	b, err := json.MarshalIndent(r, "", "\t")
	if err != nil {
		return nil, errors.Join(errNoReport, err)
	}
	return append(b, '\n'), nil
}
