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

// These are the outcomes of a case.
const (
	Passed  Outcome = "passed"
	Failed  Outcome = "failed"
	Skipped Outcome = "skipped"
)

// Result is the outcome of one case.
type Result struct {
	Case     string // "Area/Property"
	Rules    []Rule // rules that the case covers
	Outcome  Outcome
	Messages []string // failures, each beginning with its rule; or the reason for the skip
	Elapsed  time.Duration
}

// Report holds the outcomes of a run. It is complete once Run or Check has returned.
type Report struct {
	Backend string
	Version string // of the store, from the harness
	Options string // of the backend and the store, as far as they are not the defaults

	// Doors is the reason why the cases used only one door of the store, or "" if they used two.
	Doors string

	// Limits, Measures and Platform are set by ReadReport, and if ReportDir is set.
	Limits   driver.Limits
	Measures []Measure
	Platform Platform

	// ReadReports sets Faults and Control if they were saved.
	Faults, Control *FaultRuns

	mu      sync.Mutex
	results []Result
}

func (r *Report) add(res Result) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.results = append(r.results, res)
}

// oneDoor records that a store has only one door.
func (r *Report) oneDoor() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.Doors = "through one door of the store: the harness lacks OpenOther"
}

// Results returns the outcome of every case that ran or was skipped, in the order of names.
func (r *Report) Results() []Result {
	r.mu.Lock()
	defer r.mu.Unlock()
	res := slices.Clone(r.results)
	slices.SortFunc(res, func(a, b Result) int { return strings.Compare(a.Case, b.Case) })
	return res
}

// With returns the results that have the outcome o.
func (r *Report) With(o Outcome) []Result {
	return slices.DeleteFunc(r.Results(), func(res Result) bool { return res.Outcome != o })
}

// about returns a description of the store, to follow the backend's name.
func (r *Report) about() string {
	return strings.TrimPrefix(strings.TrimSuffix(r.Version+", "+r.Options, ", "), ", ")
}

// String returns a summary, the failures, and the skipped cases with their reasons.
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
