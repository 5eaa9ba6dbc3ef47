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

// ReportDir is the name of an environment variable that holds the absolute path of a directory.
// If it is set, the conformance suite measures the backend afterwards, and both suites save their
// reports there as JSON, under the backend's name.
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

// Measure is one number about a backend, taken on a store of the harness while the suite runs
// nothing else.
type Measure struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
	Unit  string  `json:"unit"`
}

// Platform describes where a report was made.
type Platform struct {
	Made time.Time `json:"made"`
	Go   string    `json:"go"`
	OS   string    `json:"os"`
	Arch string    `json:"arch"`
	CPUs int       `json:"cpus"`
}

// Here returns the platform of this process, and the time.
func Here() Platform {
	return Platform{Made: time.Now().UTC().Truncate(time.Second), Go: runtime.Version(), OS: runtime.GOOS,
		Arch: runtime.GOARCH, CPUs: runtime.NumCPU()}
}

// Report holds the outcomes of a run of the conformance suite.
type Report struct {
	Backend string `json:"backend"`
	Version string `json:"version,omitempty"` // of the store, from the harness
	Options string `json:"options,omitempty"` // of the backend and the store, as far as they are not the defaults

	// Platform, Limits and Measures are empty if nothing was measured.
	Platform Platform      `json:"platform"`
	Limits   driver.Limits `json:"limits"` // durations in nanoseconds
	Measures []Measure     `json:"measures"`

	// Results has every case that ran or was skipped, in the order of names. Add adds them.
	Results []Result `json:"results"`

	// Doors is the reason why the cases used only one door of the store, or "" if they used two.
	Doors string `json:"-"`

	// ReadDir sets Faults and Control if they were saved.
	Faults  *Runs `json:"-"`
	Control *Runs `json:"-"`

	mu sync.Mutex
}

// Add adds the outcome of a case, or replaces an earlier one. It is safe for concurrent use.
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

// OneDoor records that a store has only one door. It is safe for concurrent use.
func (r *Report) OneDoor() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.Doors = "through one door of the store: the harness lacks OpenOther"
}

// With returns the results that have the outcome o.
func (r *Report) With(o Outcome) []Result {
	return slices.DeleteFunc(slices.Clone(r.Results), func(res Result) bool { return res.Outcome != o })
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

// WriteJSON writes the report for Read.
func (r *Report) WriteJSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "\t")
	return e.Encode(r)
}

// Save writes the report into a directory of reports.
func (r *Report) Save(dir string) error {
	f, err := os.Create(filepath.Join(dir, r.Backend+".json"))
	if err != nil {
		return err
	}
	return errors.Join(r.WriteJSON(f), f.Close())
}
