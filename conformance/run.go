package conformance

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"runtime/debug"
	"runtime/pprof"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tenure-go/tenure/core/driver"
)

// Test runs the suite as subtests of t, named "Area/Property", and logs the report. If
// [ReportDir] is set in the environment, Test also writes the report there.
func Test(t *testing.T, h Harness) {
	t.Helper()
	h.Long = h.Long || os.Getenv(longRun) != ""
	report := Run(Wrap(t), h)
	if dir := os.Getenv(ReportDir); dir != "" {
		report.save(t, h, dir)
	}
}

// TestCases runs only the named cases, as Test does. It is for faults that need a separate
// store. It fails if a case is skipped, unless the machine was too slow to judge that case. If
// [ReportDir] is set in the environment, their outcomes replace those in Test's report.
func TestCases(t *testing.T, h Harness, names ...string) {
	t.Helper()
	cases, err := named(names)
	if err != nil {
		t.Fatal(err)
	}
	report := run(Wrap(t), h, cases)
	for _, res := range report.With(Skipped) {
		if why := strings.Join(res.Messages, "; "); !strings.HasPrefix(why, "machine too slow to tell") {
			t.Errorf("%s was named, and is skipped: %s", res.Case, why)
		}
	}
	if dir := os.Getenv(ReportDir); dir != "" {
		report.amend(t, h, dir)
	}
}

// TestDoors runs the cases about claims, commits and fences through two doors of a clustered store:
// those of h, and the one that open opens. open is nil if h has [Store.OpenOther]. With -short, it
// runs the cases about claims and fences.
func TestDoors(t *testing.T, h Harness, open func(ctx context.Context, namespace string) (driver.Backend, error)) {
	t.Helper()
	cases := doorCases()
	if testing.Short() {
		cases = slices.DeleteFunc(cases, func(c Case) bool { return c.Area != "Acquire" && c.Area != "Fence" })
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
	report := run(Wrap(t), h, cases)
	if report.Doors != "" || len(report.With(Passed)) == 0 {
		t.Errorf("no case passed, or they ran %s", report.Doors)
	}
}

func doorCases() []Case {
	cases := slices.Concat(acquireCases(), tokenCases(), releaseCases(), lockCases(), commitCases(), fenceCases())
	return slices.DeleteFunc(cases, func(c Case) bool { return c.alone })
}

// Run runs the suite under t, with one group per area. It logs the report, and returns it. Every
// failure names the broken rule.
func Run(t T, h Harness) *Report {
	t.Helper()
	return run(t, h, Cases())
}

// Check runs the named cases, or all cases if there are no names. It runs them in sequence,
// outside go test. An error concerns the harness or the names. The report holds the findings of
// the cases.
func Check(ctx context.Context, h Harness, names ...string) (*Report, error) {
	cases, err := named(names)
	if err != nil {
		return nil, err
	}
	if problem := h.check(); problem != "" {
		return nil, fmt.Errorf("tenure: conformance: %s", problem)
	}
	var report *Report
	root := &recorder{ctx: ctx}
	root.do(func(t T) { report = run(t, h, cases) })
	return report, nil
}

// named returns the cases with these names, or all cases if there are no names.
func named(names []string) ([]Case, error) {
	cases := Cases()
	for _, name := range names {
		if !slices.ContainsFunc(cases, func(c Case) bool { return c.Name() == name }) {
			return nil, fmt.Errorf("tenure: conformance has no case %q: Cases lists them", name)
		}
	}
	if len(names) > 0 {
		cases = slices.DeleteFunc(cases, func(c Case) bool { return !slices.Contains(names, c.Name()) })
	}
	return cases, nil
}

// check returns what is wrong with the harness, or "".
func (h *Harness) check() string {
	if h.Name == "" || h.New == nil {
		return "Harness.Name and Harness.New are required"
	}
	cases := Cases()
	for name, reason := range h.Skip {
		if !slices.ContainsFunc(cases, func(c Case) bool { return c.Name() == name }) {
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

func run(t T, h Harness, cases []Case) *Report {
	t.Helper()
	if problem := h.check(); problem != "" {
		t.Fatalf("conformance: %s", problem)
	}
	report := &Report{Backend: h.Name, Version: h.Version, Options: h.Options}
	// This gives one message instead of one for each case.
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

// opens reports whether a backend can be opened at all. If not, that is the only result.
func opens(t T, h *Harness, report *Report) bool {
	t.Helper()
	probe, tried := openProbe(), new(Report)
	ok := t.Run(probe.Property, func(t T) { runCase(t, h, probe, tried) })
	if !ok {
		for _, res := range tried.Results() {
			report.add(res)
		}
		t.Logf("%v", report)
	}
	return ok
}

func openProbe() Case {
	return Case{Area: "Harness", Property: "Open", Rules: []Rule{ruleX1}, Shows: "The harness opens a backend.", run: func(f *fixture) {
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

// runCase runs a case in its own goroutine, so that a driver that hangs fails only the case, not
// the run.
func runCase(t T, h *Harness, c Case, report *Report) {
	t.Helper()
	res := Result{Case: c.Name(), Rules: c.Rules, Outcome: Failed, Messages: []string{"the harness's New failed"}}
	defer func() { report.add(res) }()
	skip := func(reason string) {
		res.Outcome, res.Messages = Skipped, []string{reason}
		t.Skipf("%s", reason)
	}
	if reason := h.Skip[c.Name()]; reason != "" {
		skip(reason)
	}
	store := h.New(t)
	if store != nil && store.OpenOther == nil {
		report.oneDoor()
	}
	if missing := c.missing(store); len(missing) > 0 {
		skip("the harness lacks " + strings.Join(missing, ", "))
	}

	start := time.Now()
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
	res.Elapsed = time.Since(start)
	failures, reason := f.result()
	switch {
	case len(failures) > 0:
		res.Outcome, res.Messages = Failed, failures
	case reason != "":
		skip(reason)
	default:
		res.Outcome, res.Messages = Passed, nil
	}
}

func stacks() string {
	var b bytes.Buffer
	if err := pprof.Lookup("goroutine").WriteTo(&b, 2); err != nil {
		return err.Error()
	}
	return b.String()
}
