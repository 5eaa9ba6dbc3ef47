package conformance_test

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/tenure-go/tenure/backends/memory"
	"github.com/tenure-go/tenure/conformance"
	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/proof/suite"
)

// TestGuarantees compares docs/internals/guarantees.md with the reports in docs/reports.
// After a change: go test ./conformance -run Guarantees -update
func TestGuarantees(t *testing.T) {
	t.Parallel()
	const path = "../docs/internals/guarantees.md"
	reports, err := suite.ReadDir("../docs/reports", conformance.Cases(), "memory", "sqlite", "postgres", "mysql", "etcd",
		"consul", "zookeeper", "redis")
	if err != nil {
		t.Fatal(err)
	}
	for i, name := range []string{"memory", "sqlite"} {
		if len(reports) <= i || reports[i].Backend != name {
			t.Fatalf("docs/reports lacks %s.json", name)
		}
	}
	for _, r := range reports {
		if len(r.Measures) == 0 || len(r.With(suite.Failed)) > 0 {
			t.Errorf("the report of %s has %d measures and %d failures: make it again", r.Backend, len(r.Measures),
				len(r.With(suite.Failed)))
		}
		if f := r.Faults; f != nil && (f.Failed > 0 || f.Damage > 0 || f.Overlap > 0 || f.Long.None > 0 || f.Told < f.Evicted) {
			t.Errorf("the system suite on %s found %+v", r.Backend, f)
		}
	}
	var tables bytes.Buffer
	if err := suite.WriteMarkdown(&tables, conformance.Cases(), reports...); err != nil {
		t.Fatal(err)
	}
	old, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	const begin, end = "<!-- begin tables -->\n", "<!-- end tables -->"
	head, rest, found := strings.Cut(string(old), begin)
	_, tail, closed := strings.Cut(rest, end)
	if !found || !closed {
		t.Fatalf("%s lacks the lines %q and %q", path, begin, end)
	}
	text := head + begin + tables.String() + end + tail
	if text == string(old) {
		return
	}
	if !*update {
		t.Fatalf("%s is out of date: go test ./conformance -run Guarantees -update", path)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestFaultRuns saves runs and reads them back beside a report.
func TestFaultRuns(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, backend := range map[string]string{"a.json": "a", "b.json": "b"} {
		if err := os.WriteFile(filepath.Join(dir, name),
			[]byte(`{"backend":"`+backend+`","version":"Store 7","options":"fast"}`), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	runs := &suite.Figures{TTL: 500 * time.Millisecond, Runs: 20, Accepted: 23456, Ambiguous: 70, Resolved: 60,
		Median: 0.876, Alone: suite.Times{N: 7, Median: 0.9, P99: 1, Most: 1.04},
		Long: suite.Long{Struck: 4, Away: 3, Still: 2, Slow: 1}, Evicted: 9, Told: 9}
	control := &suite.Figures{Control: true, Runs: 20, Failed: 19, Damage: 123}
	for _, f := range []*suite.Figures{runs, control} {
		if err := f.Save(dir, "b"); err != nil {
			t.Fatal(err)
		}
	}
	reports, err := suite.ReadDir(dir, conformance.Cases(), "b", "c")
	if err != nil {
		t.Fatal(err)
	}
	if len(reports) != 2 || reports[0].Backend != "b" || !reflect.DeepEqual(reports[0].Faults, runs) ||
		!reflect.DeepEqual(reports[0].Control, control) ||
		reports[1].Faults != nil {
		t.Fatalf("got %+v", reports)
	}
	var tables bytes.Buffer
	if err := suite.WriteMarkdown(&tables, conformance.Cases(), reports...); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"| real processes, killed, stopped and cut off | b |\n", "| runs with violations | 0 of 20 |",
		"| writes accepted | 23456 |",
		"| ambiguous writes, resolved ones | 70, 60 |", "median, 99 %, most | 0.88,",
		"has a reason | 0.90, 1.00, 1.04 of 7 |", "no reason | 4, 3, 2, 1; 0 |", "reported by the member that did it | 9, 9 |",
		"damaged entries | 19 of 20, 123 |", "| store | Store 7, fast | Store 7, fast |",
	} {
		if !strings.Contains(tables.String(), want) {
			t.Errorf("the tables lacks %q:\n%s", want, tables.String())
		}
	}
	if err := os.Rename(filepath.Join(dir, "a.json"), filepath.Join(dir, "c.json")); err != nil {
		t.Fatal(err)
	}
	if _, err := suite.ReadDir(dir, conformance.Cases()); err == nil {
		t.Error("a report under another backend's name was read without an error")
	}
}

// TestCasesTakeTheirPlace runs cases separately, and finds their outcomes in one report.
func TestCasesTakeTheirPlace(t *testing.T) {
	dir := t.TempDir()
	t.Setenv(suite.ReportDir, dir)
	const name = "Chaos/WipeStore"
	path := filepath.Join(dir, "model.json")
	if err := os.WriteFile(path, []byte(`{"backend":"model","results":[{"case":"`+name+
		`","outcome":"skipped"},{"case":"Acquire/Exclusive","outcome":"passed"}]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Run("run", func(t *testing.T) { conformance.TestCases(t, modelHarness(none), name) })
	reports, err := suite.ReadDir(dir, conformance.Cases())
	if err != nil {
		t.Fatal(err)
	}
	if got := reports[0].With(suite.Passed); len(got) != 2 || len(reports[0].Results) != 2 {
		t.Errorf("got %+v, want both cases passed", reports[0].Results)
	}
}

// TestReportFile runs a passed and a skipped case, and reads the report back.
func TestReportFile(t *testing.T) {
	t.Parallel()
	h := conformance.Harness{Name: "memory", New: func(conformance.T) *conformance.Store {
		store := memory.New()
		return &conformance.Store{Open: func(ctx context.Context) (driver.Backend, error) {
			return memory.Open(ctx, store, "report", nil)
		}}
	}}
	short, err := conformance.Check(t.Context(), h, "Acquire/Exclusive", "Chaos/WipeStore")
	if err != nil {
		t.Fatal(err)
	}
	report := short.Of()
	report.Limits = driver.Limits{BatchItems: 7, WriteOps: 8, WriteBytes: 9, PollPeriod: 10, MinTTL: 11}
	report.Measures = []suite.Measure{{Name: "steps", Value: 12345.6, Unit: "/s"}}
	var file bytes.Buffer
	if err := short.WriteJSON(&file); err != nil {
		t.Fatal(err)
	}
	again, err := suite.Read(&file, conformance.Cases())
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(again.Results, report.Results) {
		t.Errorf("%+v was read back as %+v", report.Results, again.Results)
	}
	if again.Backend != "memory" || again.Limits != report.Limits ||
		!reflect.DeepEqual(again.Measures, report.Measures) {
		t.Errorf("got back %+v, want %+v", again, report)
	}
	var tables bytes.Buffer
	if err := suite.WriteMarkdown(&tables, conformance.Cases(), again); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"| **A1** mutual exclusion | 1 |", "| **I1** identity | 0/1 |", "| a change is visible, at most after | 10ns |",
		"| steps, per s | 12300 |", "* skipped on memory: the harness lacks Wipe: `Chaos/WipeStore`\n",
	} {
		if !strings.Contains(tables.String(), want) {
			t.Errorf("the tables lacks %q:\n%s", want, tables.String())
		}
	}
	if _, err := suite.Read(strings.NewReader("{"), nil); err == nil {
		t.Error("half a report was read without an error")
	}
}
