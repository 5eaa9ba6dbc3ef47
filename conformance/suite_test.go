package conformance_test

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tenure-go/tenure/conformance"
	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/proof/intercept"
	"github.com/tenure-go/tenure/internal/proof/suite"
)

// TestEveryRuleIsCovered: every rule has a case, and a mutant that this case finds.
func TestEveryRuleIsCovered(t *testing.T) {
	t.Parallel()
	covered, killed := map[suite.Rule]bool{}, map[suite.Rule]bool{}
	for _, c := range conformance.Cases() {
		for _, r := range c.Rules {
			covered[r] = true
			if !slices.Contains(suite.Rules(), r) {
				t.Errorf("case %s covers %s, which is no rule", c.Name, r)
			}
		}
	}
	for _, m := range mutants() {
		killed[m.rule] = true
	}
	for _, r := range suite.Rules() {
		if !covered[r] {
			t.Errorf("rule %s (%s) has no case", r, r.Title())
		}
		if !killed[r] {
			t.Errorf("rule %s (%s) has no mutant", r, r.Title())
		}
		if strings.HasPrefix(r.Title(), "unknown") {
			t.Errorf("rule %s has no explanation", r)
		}
	}
}

func TestCasesAreNamedOnce(t *testing.T) {
	t.Parallel()
	grammar := regexp.MustCompile(`^[A-Z][A-Za-z0-9]*/[A-Z][A-Za-z0-9]*$`)
	had := map[string]bool{}
	for _, c := range conformance.Cases() {
		if had[c.Name] || !grammar.MatchString(c.Name) || c.Shows == "" || len(c.Rules) == 0 {
			t.Errorf("case %q (rules %v, shows %q): want its own name like Area/Property, a rule, and a statement",
				c.Name, c.Rules, c.Shows)
		}
		had[c.Name] = true
	}
}

// TestOpenIsEnough: a harness without faults runs the cases that it can run, and lists the others.
func TestOpenIsEnough(t *testing.T) {
	t.Parallel()
	h := modelHarness(none)
	h.New = func(conformance.T) *conformance.Store {
		return &conformance.Store{Open: newModel(none).fixture().Open}
	}
	h.Skip = map[string]string{"Acquire/Exclusive": "for the test"}
	report, err := conformance.Check(t.Context(), h, "Acquire/Exclusive", "Chaos/WipeStore",
		"Commit/LateRequestRefused", "Release/ExactOnly")
	if err != nil {
		t.Fatal(err)
	}
	want := "model: 1 passed, 0 failed, 3 skipped\n" +
		"  skipped Acquire/Exclusive\n      for the test\n  skipped Chaos/WipeStore\n      the harness lacks Wipe\n" +
		"  skipped Commit/LateRequestRefused\n      the harness lacks Wire.Hold"
	if report.String() != want {
		t.Errorf("got\n%v\nwant\n%s", report, want)
	}
	if err := report.Err(); err != nil {
		t.Error(err)
	}
	report, err = conformance.Check(t.Context(), h, "Acquire/Exclusive", "Chaos/WipeStore")
	if err != nil {
		t.Fatal(err)
	}
	if err := report.Err(); err == nil || !strings.Contains(err.Error(), "no case passed") {
		t.Errorf("a run in which every case was skipped: %v", err)
	}
}

func TestBadHarnessIsRefused(t *testing.T) {
	t.Parallel()
	noName, noSuch, noReason := modelHarness(none), modelHarness(none), modelHarness(none)
	noName.Name = ""
	noSuch.Skip = map[string]string{"Acquire/None": "x"}
	noReason.Skip = map[string]string{"Acquire/Exclusive": ""}
	for _, h := range []conformance.Harness{noName, noSuch, noReason} {
		if _, err := conformance.Check(t.Context(), h, "Acquire/Exclusive"); err == nil {
			t.Errorf("%+v is accepted", h)
		}
	}
	if _, err := conformance.Check(t.Context(), modelHarness(none), "Acquire/None"); err == nil {
		t.Error("a case that does not exist is accepted")
	}
}

func TestFailingHarnessIsAFailure(t *testing.T) {
	t.Parallel()
	h := modelHarness(none)
	h.New = func(t conformance.T) *conformance.Store {
		t.Fatalf("no server")
		return nil
	}
	report, err := conformance.Check(t.Context(), h, "Acquire/Exclusive")
	if err != nil {
		t.Fatal(err)
	}
	if len(report.Of().With(suite.Failed)) != 1 {
		t.Errorf("a harness that fails gives %v; want 1 failed", report)
	}
}

// TestFailingOpenIsOneFailure: if opening fails, there is only one message, not one for each case.
func TestFailingOpenIsOneFailure(t *testing.T) {
	t.Parallel()
	noServer := errors.New("no server")
	for want, store := range map[string]*conformance.Store{
		"Store.Open failed: no server":               {Open: func(context.Context) (driver.Backend, error) { return nil, noServer }},
		"Store.Open returned neither a backend":      {Open: func(context.Context) (driver.Backend, error) { return nil, nil }},
		"Harness.New returned no Store with an Open": {},
		"still running after 300ms; all goroutines:": {Open: func(context.Context) (driver.Backend, error) { select {} }},
	} {
		h := modelHarness(none)
		h.Timeout = 300 * time.Millisecond
		h.New = func(conformance.T) *conformance.Store { return store }
		report, err := conformance.Check(t.Context(), h)
		if err != nil {
			t.Fatal(err)
		}
		if got := report.Of().Results; len(got) != 1 || got[0].Case != "Harness/Open" || got[0].Outcome != suite.Failed ||
			!strings.Contains(report.String(), want) {
			t.Errorf("%s: got %v", want, report)
		}
	}
}

// hangs never answers a heartbeat, even after its context ends.
func hangs(ctx context.Context, c *intercept.Call, proceed func(context.Context) error) error {
	if c.Op == intercept.Beat {
		<-make(chan struct{})
	}
	return proceed(ctx)
}

func TestHungDriverFailsWithStacks(t *testing.T) {
	t.Parallel()
	h := modelHarness(none)
	h.Timeout = 300 * time.Millisecond
	h.New = func(conformance.T) *conformance.Store {
		open := newModel(none).fixture().Open
		return &conformance.Store{Open: func(ctx context.Context) (driver.Backend, error) {
			b, err := open(ctx)
			if err != nil {
				return nil, err
			}
			return intercept.Wrap(b, hangs), nil
		}}
	}
	report, err := conformance.Check(t.Context(), h, "Membership/BeatChangesVersion")
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(report); !strings.Contains(got, "M1: hung") ||
		!strings.Contains(got, "conformance_test.hangs(") {
		t.Errorf("a driver that hangs gives\n%s\nwant a failure of M1 with the stack of hangs", got)
	}
}

type panicking struct{ driver.Backend }

func (panicking) Observe(context.Context, driver.ObserveQuery) (*driver.View, error) {
	panic("out of order")
}

func TestPanicIsAFailure(t *testing.T) {
	t.Parallel()
	h := modelHarness(none)
	h.New = func(conformance.T) *conformance.Store {
		open := newModel(none).fixture().Open
		return &conformance.Store{Open: func(ctx context.Context) (driver.Backend, error) {
			b, err := open(ctx)
			return panicking{b}, err
		}}
	}
	report, err := conformance.Check(t.Context(), h, "Acquire/Exclusive")
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(report); !strings.Contains(got, "panicked: out of order") {
		t.Errorf("a driver that panics gives\n%s", got)
	}
}
