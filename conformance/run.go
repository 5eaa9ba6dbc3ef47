package conformance

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime/debug"
	"runtime/pprof"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/proof/suite"
	"github.com/tenure-go/tenure/internal/seam"
)

// Test runs the suite as subtests of t, named "Area/Property", and logs the report. If
// TENURE_CONFORMANCE_REPORT is set to a directory, Test also measures the backend, and writes the
// report to that directory.
func Test(t *testing.T, h Harness) {
	t.Helper()
	h.Long = h.Long || os.Getenv(longRun) != ""
	report := run(suite.Wrap(t), h, allCases())
	if dir := os.Getenv(suite.ReportDir); dir != "" {
		measure(suite.Wrap(t), h, report)
		report.Platform = suite.Here()
		if err := report.Save(dir); err != nil {
			t.Fatal(err)
		}
	}
}

// TestCases is like Test, but runs only the named cases. Use TestCases for faults that need a
// separate store. TestCases fails if a case is skipped, unless the machine was too slow for that
// case. If TENURE_CONFORMANCE_REPORT is set, the outcomes replace those in Test's report.
func TestCases(t *testing.T, h Harness, names ...string) {
	t.Helper()
	cases, err := named(names)
	if err != nil {
		t.Fatal(err)
	}
	report := run(suite.Wrap(t), h, cases)
	for _, res := range report.With(suite.Skipped) {
		if why := strings.Join(res.Messages, "; "); !strings.HasPrefix(why, "machine too slow to tell") {
			t.Errorf("%s was named, and is skipped: %s", res.Case, why)
		}
	}
	if dir := os.Getenv(suite.ReportDir); dir != "" {
		if err := amend(dir, report); err != nil {
			t.Fatal(err)
		}
	}
}

// amend replaces outcomes in an existing report. A missing report is not an error, because Test may
// not have run.
func amend(dir string, by *suite.Report) error {
	whole, err := suite.ReadFile(dir, by.Backend, listCases())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, res := range by.Results {
		whole.Add(res)
	}
	return whole.Save(dir)
}

// TestDoors runs the cases about claims, commits and fences through two doors of a clustered store.
// The harness provides one door, and open provides the other. If the harness has [Store.OpenOther],
// open is nil. With -short, TestDoors runs only the cases about claims and fences.
func TestDoors(t *testing.T, h Harness, open func(ctx context.Context, namespace string) (driver.Backend, error)) {
	t.Helper()
	cases := doorCases()
	if testing.Short() {
		cases = slices.DeleteFunc(cases, func(c testCase) bool { return c.Area != "Acquire" && c.Area != "Fence" })
	}
	if create := h.New; open != nil {
		h.New = func(t T) *Store {
			s := create(t)
			s.OpenOther = func(ctx context.Context) (driver.Backend, error) {
				b, err := s.Open(ctx) // the first Open creates the namespace
				if err != nil {
					return nil, err
				}
				if err := b.Close(); err != nil {
					return nil, err
				}
				return open(ctx, b.Info().Namespace)
			}
			return s
		}
	}
	report := run(suite.Wrap(t), h, cases)
	if report.Doors != "" || len(report.With(suite.Passed)) == 0 {
		t.Errorf("no case passed, or they ran %s", report.Doors)
	}
}

func doorCases() []testCase {
	cases := slices.Concat(acquireCases(), tokenCases(), releaseCases(), lockCases(), commitCases(), fenceCases())
	return slices.DeleteFunc(cases, func(c testCase) bool { return c.alone })
}

// Internal gives other packages of this module access to the harness.
func (h Harness) Internal(seam.Key) suite.Harness { return internal{h} }

type internal struct{ Harness }

func (internal) Cases() []suite.Case { return listCases() }

func (i internal) Run(t T, measured bool) *suite.Report {
	t.Helper()
	report := run(t, i.Harness, allCases())
	if measured && len(report.With(suite.Passed)) > 0 {
		measure(t, i.Harness, report)
	}
	return report
}

// Check runs the named cases, or all cases if there are no names, in sequence and outside go test.
// Check returns an error if the harness or a name is invalid, or if ctx ends before all cases have
// run. The report contains the findings of the cases.
func Check(ctx context.Context, h Harness, names ...string) (*Report, error) {
	cases, err := named(names)
	if err != nil {
		return nil, err
	}
	if problem := h.check(); problem != "" {
		return nil, fmt.Errorf("tenure: conformance: %s", problem)
	}
	report := new(Report)
	runner := suite.NewRunner(1, func(string) {}, func(message string) string { return message })
	runner.Do(ctx, h.Name, func(t T) { report.of = run(t, h, cases) })
	return report, ctx.Err()
}

// named returns the cases with these names, or all cases if there are no names.
func named(names []string) ([]testCase, error) {
	cases := allCases()
	for _, name := range names {
		if !slices.ContainsFunc(cases, func(c testCase) bool { return c.Name() == name }) {
			return nil, fmt.Errorf("tenure: conformance has no case %q: docs/internals/conformance.md lists them", name)
		}
	}
	if len(names) > 0 {
		cases = slices.DeleteFunc(cases, func(c testCase) bool { return !slices.Contains(names, c.Name()) })
	}
	return cases, nil
}

// check returns a description of a mistake in the harness, or "" if the harness is valid.
func (h *Harness) check() string {
	if h.Name == "" || h.New == nil {
		return "Harness.Name and Harness.New are required"
	}
	cases := allCases()
	for name, reason := range h.Skip {
		if !slices.ContainsFunc(cases, func(c testCase) bool { return c.Name() == name }) {
			return fmt.Sprintf("Harness.Skip names %q, which is no case", name)
		}
		if reason == "" {
			return fmt.Sprintf("Harness.Skip gives no reason for %q", name)
		}
	}
	return ""
}

func (h *Harness) timeout() time.Duration {
	switch {
	case h.Timeout > 0:
		return h.Timeout
	case h.Long:
		return 10 * time.Minute
	}
	return 2 * time.Minute
}

func run(t T, h Harness, cases []testCase) *suite.Report {
	t.Helper()
	if problem := h.check(); problem != "" {
		t.Fatalf("conformance: %s", problem)
	}
	report := &suite.Report{Backend: h.Name, Version: h.Version, Options: h.Options}
	// If no backend can be opened, this check replaces the failures of all cases with a single
	// message.
	if len(cases) > 1 && !opens(t, &h, report) {
		return report
	}
	for start := 0; start < len(cases); {
		end := start
		for end < len(cases) && cases[end].Area == cases[start].Area {
			end++
		}
		group := cases[start:end]
		t.Run(group[0].Area, func(t T) {
			for _, c := range group {
				t.Run(c.Property, func(t T) {
					if !h.Serial && !c.alone {
						t.Parallel()
					}
					runCase(t, &h, c, report)
				})
			}
		})
		start = end
	}
	t.Logf("%v\n%s", report, report.Doors)
	return report
}

// opens reports whether a backend can be opened at all. If no backend can be opened, that failure
// is the run's only result.
func opens(t T, h *Harness, report *suite.Report) bool {
	t.Helper()
	probe, tried := openProbe(), new(suite.Report)
	ok := t.Run(probe.Property, func(t T) { runCase(t, h, probe, tried) })
	if !ok {
		for _, res := range tried.Results {
			report.Add(res)
		}
		t.Logf("%v", report)
	}
	return ok
}

func openProbe() testCase {
	return testCase{Area: "Harness", Property: "Open", Rules: []rule{ruleX1}, Shows: "The harness opens a backend.", run: func(f *fixture) {
		if f.store == nil || f.store.Open == nil {
			f.Errorf("no case was run: Harness.New returned no Store with an Open")
			return
		}
		switch b, err := f.store.Open(f.ctx); {
		case err != nil:
			f.Errorf("no case was run: Store.Open failed: %v", err)
		case b == nil:
			f.Errorf("no case was run: Store.Open returned neither a backend nor an error")
		default:
			f.keep(b)
		}
	}}
}

// runCase runs a case in a separate goroutine. If the driver hangs, only the case fails, not the
// whole run.
func runCase(t T, h *Harness, c testCase, report *suite.Report) {
	t.Helper()
	res := suite.Result{Case: c.Name(), Rules: c.Rules, Outcome: suite.Failed, Messages: []string{"the harness's New failed"}}
	defer func() { report.Add(res) }()
	skip := func(reason string) {
		res.Outcome, res.Messages = suite.Skipped, []string{reason}
		t.Skipf("%s", reason)
	}
	if reason := h.Skip[c.Name()]; reason != "" {
		skip(reason)
	}
	store := h.New(t)
	if store != nil && store.OpenOther == nil {
		report.OneDoor()
	}
	if missing := c.missing(store); len(missing) > 0 {
		skip("the harness lacks " + strings.Join(missing, ", "))
	}

	f := newFixture(t, h, c, store)
	done := make(chan struct{})
	go pprof.Do(f.ctx, f.labels(), func(context.Context) {
		defer close(done)
		defer f.finish()
		defer func() {
			if p := recover(); p != nil {
				f.Errorf("the driver or the case panicked: %v\n%s", p, debug.Stack())
			}
		}()
		c.run(f)
	})
	limit := time.NewTimer(h.timeout())
	defer limit.Stop()
	select {
	case <-done:
	case <-limit.C:
		f.abandon("%s: hung: %s\nstill running after %v; all goroutines:\n%s", c.Rules[0], c.Shows, h.timeout(),
			stacks())
	}
	failures, reason := f.result()
	switch {
	case len(failures) > 0:
		res.Outcome, res.Messages = suite.Failed, failures
	case reason != "":
		skip(reason)
	default:
		res.Outcome, res.Messages = suite.Passed, nil
	}
}

func stacks() string {
	var b bytes.Buffer
	if err := pprof.Lookup("goroutine").WriteTo(&b, 2); err != nil {
		return err.Error()
	}
	return b.String()
}
