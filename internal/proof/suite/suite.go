// Package suite contains code that the conformance suite, the system suite and this module's tools
// share: T, cases, rules and reports.
//
// Package conformance shows its users only a summary of each report. Package suite also reads saved
// reports, and compares backends in Markdown.
package suite

import (
	"context"
	"testing"
)

// T is the part of *testing.T that the suites use.
type T interface {
	Name() string
	Context() context.Context
	Helper()
	Parallel()
	Logf(format string, args ...any)
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
	Skipf(format string, args ...any)
	Cleanup(f func())
	Run(name string, f func(T)) bool
}

// Wrap adapts a *testing.T.
func Wrap(t *testing.T) T { return wrapped{t} }

type wrapped struct{ *testing.T }

func (w wrapped) Run(name string, f func(T)) bool {
	return w.T.Run(name, func(t *testing.T) { f(wrapped{t}) })
}

// Case describes one property that the conformance suite checks.
type Case struct {
	Name  string   // "Area/Property"
	Rules []Rule   // rules that a failure may name
	Needs []string // fields of Store and Wire that it needs; without them, it is skipped
	Shows string   // its statement, in one line
}

// Harness is a conformance.Harness.
type Harness interface {
	// Cases returns every case of the suite, grouped by area.
	Cases() []Case
	// Run runs the suite under t, with one group per area. Run logs and returns the report. If
	// measure is set and a case passed, Run then determines the report's limits and measures.
	Run(t T, measure bool) *Report
}
