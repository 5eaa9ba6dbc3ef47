package conformance_test

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/tenure-go/tenure/backends/memory"
	"github.com/tenure-go/tenure/conformance"
	"github.com/tenure-go/tenure/core/driver"
)

// TestGuarantees compares docs/guarantees.md with the reports in docs/reports.
// After a change: go test ./conformance -run Guarantees -update
func TestGuarantees(t *testing.T) {
	t.Parallel()
	const path = "../docs/guarantees.md"
	var reports []*conformance.Report
	for _, name := range []string{"memory", "sqlite"} {
		f, err := os.Open(filepath.Join("../docs/reports", name+".json"))
		if err != nil {
			t.Fatal(err)
		}
		r, err := conformance.ReadReport(f)
		if err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		if r.Backend != name || len(r.Measures) == 0 || len(r.With(conformance.Failed)) > 0 {
			t.Errorf("%s.json is of %q, with %d measures and %d failures: make it again", name, r.Backend, len(r.Measures), len(r.With(conformance.Failed)))
		}
		reports = append(reports, r)
	}
	var sheet bytes.Buffer
	if err := conformance.WriteMarkdown(&sheet, reports...); err != nil {
		t.Fatal(err)
	}
	old, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	const begin, end = "<!-- begin sheet -->\n", "<!-- end sheet -->"
	head, rest, found := strings.Cut(string(old), begin)
	_, tail, closed := strings.Cut(rest, end)
	if !found || !closed {
		t.Fatalf("%s lacks the lines %q and %q", path, begin, end)
	}
	text := head + begin + sheet.String() + end + tail
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

// TestReportFile runs a passed and a skipped case, and reads back what was
// written.
func TestReportFile(t *testing.T) {
	t.Parallel()
	h := conformance.Harness{Name: "memory", New: func(conformance.T) *conformance.Store {
		store := memory.New()
		return &conformance.Store{Open: func(ctx context.Context) (driver.Backend, error) { return memory.Open(ctx, store, "report", nil) }}
	}}
	report, err := conformance.Check(t.Context(), h, "Acquire/Exclusive", "Chaos/WipeStore")
	if err != nil {
		t.Fatal(err)
	}
	report.Limits = driver.Limits{BatchItems: 7, WriteOps: 8, WriteBytes: 9, PollPeriod: 10, MinTTL: 11}
	report.Measures = []conformance.Measure{{Name: "steps", Value: 12345.6, Unit: "/s"}}
	var file bytes.Buffer
	if err := report.WriteJSON(&file); err != nil {
		t.Fatal(err)
	}
	again, err := conformance.ReadReport(&file)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range report.Results() {
		r.Elapsed = 0
		found := false
		for _, got := range again.Results() {
			found = found || reflect.DeepEqual(got, r)
		}
		if !found {
			t.Errorf("%+v was not read back: %+v", r, again.Results())
		}
	}
	if again.Backend != "memory" || again.Limits != report.Limits || !reflect.DeepEqual(again.Measures, report.Measures) {
		t.Errorf("got back %+v, want %+v", again, report)
	}
	var sheet bytes.Buffer
	if err := conformance.WriteMarkdown(&sheet, again); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"| **A1** mutual exclusion | 1 |", "| **I1** identity | 0 of 1 |", "| a change is told | within 10ns |",
		"| steps | 12300/s |", "* `Chaos/WipeStore` skipped: the harness lacks Wipe",
	} {
		if !strings.Contains(sheet.String(), want) {
			t.Errorf("the sheet lacks %q:\n%s", want, sheet.String())
		}
	}
	if _, err := conformance.ReadReport(strings.NewReader("{")); err == nil {
		t.Error("half a report was read without an error")
	}
}
