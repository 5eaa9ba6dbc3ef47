package suite

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tenure-go/tenure/core/driver"
)

// ReportDir is the name of an environment variable that contains the absolute path of a directory.
// If the variable is set, the conformance suite also measures the backend, and both suites save
// their reports in that directory as JSON, under the backend's name.
const ReportDir = "TENURE_CONFORMANCE_REPORT"

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
	Case     string   `json:"case"` // "Area/Property"
	Rules    []Rule   `json:"-"`    // rules that the case covers
	Outcome  Outcome  `json:"outcome"`
	Messages []string `json:"messages,omitempty"` // failures, each beginning with its rule; or the reason for the skip
}

// Measure is one measurement of a backend on a store from the harness. During a measurement, the
// suite runs nothing else.
type Measure struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
	Unit  string  `json:"unit"`
}

// Platform describes where and when a report was made.
type Platform struct {
	Made time.Time `json:"made"`
	Go   string    `json:"go"`
	OS   string    `json:"os"`
	Arch string    `json:"arch"`
	CPUs int       `json:"cpus"`
}

// Here returns this process's Platform, with the current time.
func Here() Platform {
	return Platform{Made: time.Now().UTC().Truncate(time.Second), Go: runtime.Version(), OS: runtime.GOOS,
		Arch: runtime.GOARCH, CPUs: runtime.NumCPU()}
}

// At describes the platform in readable form, with the time in the given layout.
func (p Platform) At(layout string) string {
	return fmt.Sprintf("%s, %s on %s/%s with %d CPUs", p.Made.Format(layout), p.Go, p.OS, p.Arch, p.CPUs)
}

// Report holds the outcomes of a run of the conformance suite.
type Report struct {
	Backend string `json:"backend"`
	Version string `json:"version,omitempty"` // of the store, from the harness
	Options string `json:"options,omitempty"` // of the backend and the store, if they are not the defaults

	// Platform, Limits and Measures are empty if nothing was measured.
	Platform Platform      `json:"platform"`
	Limits   driver.Limits `json:"limits"` // durations in nanoseconds
	Measures []Measure     `json:"measures"`

	// Results contains every case that ran or was skipped, sorted by name. Add adds results.
	Results []Result `json:"results"`

	// Doors is the reason why the cases used only one door of the store, or "" if they used two.
	Doors string `json:"-"`

	// If the directory contains figures of runs under faults, ReadDir sets Faults and Control.
	Faults  *Figures `json:"-"`
	Control *Figures `json:"-"`

	mu sync.Mutex
}

// Add adds the outcome of a case, or replaces an earlier one. This method is safe for concurrent
// use.
func (r *Report) Add(res Result) {
	r.mu.Lock()
	defer r.mu.Unlock()
	i, found := slices.BinarySearchFunc(r.Results, res.Case, func(old Result, name string) int {
		return strings.Compare(old.Case, name)
	})
	if found {
		r.Results[i] = res
	} else {
		r.Results = slices.Insert(r.Results, i, res)
	}
}

// OneDoor records that a store has only one door. This method is safe for concurrent use.
func (r *Report) OneDoor() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.Doors = "through one door of the store: the harness lacks OpenOther"
}

// With returns the results that have the given outcome.
func (r *Report) With(o Outcome) []Result {
	return slices.DeleteFunc(slices.Clone(r.Results), func(res Result) bool { return res.Outcome != o })
}

// Counts contains the number of cases with each outcome.
type Counts struct {
	Passed  int `json:"passed"`
	Failed  int `json:"failed"`
	Skipped int `json:"skipped"`
}

func (c Counts) String() string {
	return fmt.Sprintf("%d passed, %d failed, %d skipped", c.Passed, c.Failed, c.Skipped)
}

// Count counts the cases of a rule. If rule is empty, Count counts all cases.
func (r *Report) Count(rule Rule) Counts {
	var c Counts
	for _, res := range r.Results {
		if rule != "" && !slices.Contains(res.Rules, rule) {
			continue
		}
		switch res.Outcome {
		case Passed:
			c.Passed++
		case Failed:
			c.Failed++
		case Skipped:
			c.Skipped++
		}
	}
	return c
}

// The result is a description of the store, for use after the backend's name.
func (r *Report) about() string {
	return strings.TrimPrefix(strings.TrimSuffix(r.Version+", "+r.Options, ", "), ", ")
}

// String returns a summary, the failures, and the skipped cases with their reasons.
func (r *Report) String() string {
	var b strings.Builder
	b.WriteString(r.Backend)
	if about := r.about(); about != "" {
		fmt.Fprintf(&b, " (%s)", about)
	}
	fmt.Fprintf(&b, ": %v", r.Count(""))
	for _, res := range slices.Concat(r.With(Failed), r.With(Skipped)) {
		fmt.Fprintf(&b, "\n  %s %s", res.Outcome, res.Case)
		for _, m := range res.Messages {
			fmt.Fprintf(&b, "\n      %s", m)
		}
	}
	return b.String()
}

// WriteJSON writes the report in Read's format.
func (r *Report) WriteJSON(w io.Writer) error { return WriteJSON(w, r) }

// Save writes the report into a report directory.
func (r *Report) Save(dir string) error { return save(dir, r.Backend+".json", r) }

// WriteJSON writes a report as JSON.
func WriteJSON(w io.Writer, report any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "\t")
	return e.Encode(report)
}

func save(dir, name string, report any) error {
	f, err := os.Create(filepath.Join(dir, name))
	if err != nil {
		return err
	}
	return errors.Join(WriteJSON(f, report), f.Close())
}
