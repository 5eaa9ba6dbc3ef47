package certify

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/proof/history"
	"github.com/tenure-go/tenure/internal/proof/suite"
	"github.com/tenure-go/tenure/internal/proof/system"
)

// Verdict is the result of a run.
type Verdict string

// These are the verdicts. A run gets the first verdict that applies.
const (
	NotOpened Verdict = "not opened"     // nothing was checked
	Broken    Verdict = "broken"         // a rule was broken
	Nothing   Verdict = "proves nothing" // a phase did too little work for its figures
	Held      Verdict = "held"           // no phase of the run broke a rule
)

// kind begins a report, so that a later run recognizes it.
const kind = "report of tenure certify"

// Report contains the findings of a run. A Report is a plain value.
type Report struct {
	Kind    string   `json:"kind"`
	Verdict Verdict  `json:"verdict"`
	Why     []string `json:"why"` // reasons for the verdict; the broken rules, if any

	Tenure   Build            `json:"tenure"`
	Platform suite.Platform   `json:"platform"`
	Store    Store            `json:"store"`
	Options  RunOptions       `json:"options"`
	Took     map[Phase]string `json:"took"`

	Opening     OpeningReport `json:"opening"`
	Conformance *suite.Report `json:"conformance,omitempty"` // in the form of docs/reports
	Rules       []RuleCount   `json:"rules,omitempty"`       // of the conformance suite
	System      *SystemReport `json:"system,omitempty"`
	Control     *SystemReport `json:"control,omitempty"`

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

// Store describes the store that was certified.
type Store struct {
	Backend   string    `json:"backend"`
	Version   string    `json:"version,omitempty"` // empty: unknown
	Where     string    `json:"where"`
	Namespace string    `json:"namespace"` // the run worked below it
	Settings  []Setting `json:"settings"`
}

// Setting is one configuration setting.
type Setting struct {
	Name  string `json:"name"`
	Value string `json:"value"` // xxxxx if it is secret
}

// OpeningReport contains the findings about opening the namespace.
type OpeningReport struct {
	Outcome   string           `json:"outcome"` // "opened", or the error
	Limits    driver.Limits    `json:"limits"`  // durations in nanoseconds
	RoundTrip time.Duration    `json:"round_trip"`
	Slowest   time.Duration    `json:"slowest_round_trip"`
	Rollback  string           `json:"rollback,omitempty"`
	Findings  []driver.Finding `json:"findings"` // about settings, permissions and clock
}

// RuleCount counts the cases that tested a rule.
type RuleCount struct {
	Rule  string `json:"rule"`
	Title string `json:"title"`
	suite.Counts
}

// SystemReport contains the figures of a phase with real processes.
type SystemReport struct {
	suite.Figures
	Planned  int            `json:"planned"` // runs
	Judged   []string       `json:"judged"`  // rules, in each run
	Compared int64          `json:"compared_steps"`
	Faults   map[string]int `json:"faults"`
}

// Finding is a problem that a phase found.
type Finding struct {
	Phase   Phase  `json:"phase"`
	Rule    string `json:"rule,omitempty"` // empty if the finding is about no rule
	Check   string `json:"check"`
	Message string `json:"message"`
	breach  bool
}

// Skip is a part of the run that was left out.
type Skip struct {
	What string `json:"what"`
	Why  string `json:"why"`
}

func newReport(o *Options, t *target, s settings, root string) *Report {
	return &Report{
		Kind: kind, Why: []string{}, Tenure: o.Tenure,
		Platform: suite.Here(),
		Store:    Store{Backend: o.Opener.Name, Where: t.where, Namespace: root, Settings: s.shown()},
		Options:  o.RunOptions,
		Took:     map[Phase]string{}, Findings: []Finding{}, Skipped: []Skip{}, Opening: OpeningReport{Findings: []driver.Finding{}},
	}
}

// ofCase is the prefix of a skipped conformance case's name.
const ofCase = "case "

func (r *Report) skip(what, why string) { r.Skipped = append(r.Skipped, Skip{what, why}) }

func (r *Report) find(f Finding) { r.Findings = append(r.Findings, f) }

// The conformance suite's outcomes are added to the report.
func (r *Report) took(report *suite.Report, errs []string) {
	if report == nil {
		for _, e := range errs {
			r.find(Finding{Phase: Conformance, Check: "the suite", Message: e})
		}
		return
	}
	report.Platform, report.Limits = r.Platform, r.Opening.Limits
	r.Conformance = report
	for _, rule := range suite.Rules() {
		r.Rules = append(r.Rules, RuleCount{string(rule), rule.Title(), report.Count(rule)})
	}
	for _, res := range report.With(suite.Failed) {
		for _, m := range res.Messages {
			rule, breach := ruleOf(m, res.Rules)
			r.find(Finding{Phase: Conformance, Rule: rule, Check: res.Case, Message: m, breach: breach})
		}
	}
	left := 0
	for _, res := range report.With(suite.Skipped) {
		if leftOut(res) {
			left++
			continue
		}
		r.skip(ofCase+res.Case, strings.Join(res.Messages, "; "))
	}
	if left > 0 {
		r.skip(fmt.Sprintf("%d cases of the conformance suite", left), notChosen)
	}
}

// notChosen is the reason for skipping a phase or a case that Options.Only or Cases does not
// select.
const notChosen = "not chosen"

// leftOut reports whether Options.Cases does not select a case.
func leftOut(res suite.Result) bool { return slices.Equal(res.Messages, []string{notChosen}) }

// ruleOf returns the rule at the beginning of a failed case's message, and reports whether the
// message means that the rule was broken. A preparatory step that fails or hangs breaks no rule.
func ruleOf(message string, rules []suite.Rule) (string, bool) {
	word, rest, _ := strings.Cut(message, " ")
	word = strings.TrimSuffix(word, ":")
	if slices.Contains(suite.Rules(), suite.Rule(word)) {
		return word, !strings.HasPrefix(rest, "cannot be judged") && !strings.HasPrefix(rest, "hung:")
	}
	if len(rules) > 0 {
		return string(rules[0]), false
	}
	return "", false
}

// traffic is the rule in findings about a run with too little traffic.
const traffic = "traffic"

// inTime lists the rules that a store may break merely by being slow or unavailable. If a run had
// too little traffic, findings about these rules do not count as breaches.
var inTime = []string{"V1", "V2", "V6", "W1"}

// The system suite's figures are added to the report.
func (r *Report) played(phase Phase, planned int, report *system.Report, errs []string) {
	if report != nil && report.Runs > 0 {
		s := &SystemReport{Figures: report.Figures, Planned: planned, Judged: system.Judged(), Compared: report.Compared, Faults: report.Faults}
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

// judge sets the verdict, given the error from opening the namespace.
func (r *Report) judge(err error) {
	r.Opening.Outcome = "opened"
	if err != nil {
		// If the store was never opened, any part of a setting may be a misplaced secret.
		r.Store = Store{Backend: r.Store.Backend, Settings: []Setting{}}
		r.Opening.Outcome, r.Verdict, r.Why = err.Error(), NotOpened, []string{err.Error()}
		return
	}
	var broken, nothing []string
	add := func(to *[]string, why string) {
		if !slices.Contains(*to, why) {
			*to = append(*to, why)
		}
	}
	for _, f := range r.Findings {
		if f.breach {
			add(&broken, fmt.Sprintf("%s in the %s suite", f.Rule, f.Phase))
		} else {
			add(&nothing, "not judged: "+f.Check)
		}
	}
	nothing = append(nothing, r.idle()...)
	if c := r.Control; c != nil && !c.Suffices() {
		nothing = append(nothing, fmt.Sprintf("without the fence only %d of %d runs did damage", c.Failed, c.Runs))
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

// idle returns the reasons why a run proves nothing. A control alone proves nothing about a store.
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

// scrub replaces secrets in the report's untrusted texts: errors, messages, and the store's
// description of itself. Words that this package writes stay unchanged, even if they equal a
// secret. Settings and addresses contain no secrets.
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
	if c := r.Conformance; c != nil {
		texts = append(texts, &c.Version)
		for i := range c.Results {
			res := &c.Results[i]
			if res.Outcome != suite.Failed {
				continue
			}
			res.Messages = slices.Clone(res.Messages) // a case that hung may still add to them
			for j := range res.Messages {
				texts = append(texts, &res.Messages[j])
			}
		}
	}
	for _, text := range texts {
		*text = f(*text)
	}
}

// JSON returns the report as JSON.
func (r *Report) JSON() ([]byte, error) {
	var b bytes.Buffer
	err := suite.WriteJSON(&b, r)
	return b.Bytes(), err
}
