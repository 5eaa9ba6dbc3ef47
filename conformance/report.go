package conformance

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tenure-go/tenure/core/driver"
)

// Outcome is how a case ended.
type Outcome string

// The outcomes of a case.
const (
	Passed  Outcome = "passed"
	Failed  Outcome = "failed"
	Skipped Outcome = "skipped"
)

// Result is the outcome of one case.
type Result struct {
	Case     string // "Area/Property"
	Rules    []Rule // that the case covers
	Outcome  Outcome
	Messages []string // failures, each beginning with the rule it is about; or why it was skipped
	Elapsed  time.Duration
}

// Report has the outcomes of a run. Complete once Run or Check returned.
type Report struct {
	Backend string
	Version string // of the store, as the harness has it
	Options string // of the backend and the store, where they are not the defaults

	// Doors says why the cases went through one door of the store; empty: they went through two.
	Doors string

	// Limits, Measures and Platform are set by ReadReport, and for ReportDir.
	Limits   driver.Limits
	Measures []Measure
	Platform Platform

	// Faults and Control are set by ReadReports, if they were saved.
	Faults, Control *FaultRuns

	mu      sync.Mutex
	results []Result
}

func (r *Report) add(res Result) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.results = append(r.results, res)
}

// oneDoor notes that a store has no other door.
func (r *Report) oneDoor() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.Doors = "through one door of the store: the harness lacks OpenOther"
}

// Results returns the outcome of every case that ran or was skipped, by name.
func (r *Report) Results() []Result {
	r.mu.Lock()
	defer r.mu.Unlock()
	res := slices.Clone(r.results)
	slices.SortFunc(res, func(a, b Result) int { return strings.Compare(a.Case, b.Case) })
	return res
}

// With returns the results of one outcome.
func (r *Report) With(o Outcome) []Result {
	return slices.DeleteFunc(r.Results(), func(res Result) bool { return res.Outcome != o })
}

// about describes the store, to stand behind the backend's name.
func (r *Report) about() string {
	return strings.TrimPrefix(strings.TrimSuffix(r.Version+", "+r.Options, ", "), ", ")
}

// String is a summary, the failures, and the skipped cases with their reasons.
func (r *Report) String() string {
	var b strings.Builder
	failed, skipped := r.With(Failed), r.With(Skipped)
	b.WriteString(r.Backend)
	if about := r.about(); about != "" {
		fmt.Fprintf(&b, " (%s)", about)
	}
	fmt.Fprintf(&b, ": %d passed, %d failed, %d skipped", len(r.With(Passed)), len(failed), len(skipped))
	for _, res := range slices.Concat(failed, skipped) {
		fmt.Fprintf(&b, "\n  %s %s", res.Outcome, res.Case)
		for _, m := range res.Messages {
			fmt.Fprintf(&b, "\n      %s", m)
		}
	}
	return b.String()
}
