package conformance

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// FaultRuns has the figures of package system's runs on a backend: real processes
// under real faults. With ReportDir in the environment that package saves them;
// WriteMarkdown shows them beside the report of the suite.
type FaultRuns struct {
	Control bool          `json:"control"` // without the fence: Failed runs did damage
	TTL     time.Duration `json:"ttl"`     // nanoseconds
	Runs    int           `json:"runs"`
	Failed  int           `json:"failed"`

	Processes  int `json:"processes"`
	Accepted   int `json:"accepted"`   // fenced writes
	Refused    int `json:"refused"`    // as core reported to the callers
	Fenced     int `json:"fenced"`     // requests, by the store
	Ambiguous  int `json:"ambiguous"`  // writes with an attempt of unknown outcome
	Resolved   int `json:"resolved"`   // of those
	Late       int `json:"late"`       // sent when another member had been granted the shard
	Damage     int `json:"damage"`     // entries accepted under a superseded token
	Overlap    int `json:"overlap_us"` // the longest of trust, in microseconds
	Takeovers  int `json:"takeovers"`
	ByForce    int `json:"by_force"`
	Unresolved int `json:"unresolved"` // reported as unknown

	// From a fault to the new grant, in TTLs.
	Median float64 `json:"takeover_p50"`
	P99    float64 `json:"takeover_p99"`
	Most   float64 `json:"takeover_max"`

	// The same by the former owner's fault: its process was killed; it was stopped; the
	// store was away as well, and then they count from its return.
	Crash  TakeoverTimes `json:"crash"`
	Stop   TakeoverTimes `json:"stop"`
	Outage TakeoverTimes `json:"outage"`
}

// TakeoverTimes says how long N takeovers took, in TTLs.
type TakeoverTimes struct {
	N      int     `json:"n"`
	Median float64 `json:"p50"`
	P99    float64 `json:"p99"`
	Most   float64 `json:"max"`
}

func (f *FaultRuns) suffix() string {
	if f.Control {
		return ".control.json"
	}
	return ".system.json"
}

// Save writes the figures of a backend into a directory of reports.
func (f *FaultRuns) Save(dir, backend string) error {
	b, err := json.MarshalIndent(f, "", "\t")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, backend+f.suffix()), append(b, '\n'), 0o644)
}

// ReadReports reads every report in a directory, with the figures of runs under
// faults saved beside it. Those named come first, in that order.
func ReadReports(dir string, first ...string) ([]*Report, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil {
		return nil, err
	}
	var out []*Report
	for _, path := range paths {
		name := strings.TrimSuffix(filepath.Base(path), ".json")
		if strings.Contains(name, ".") {
			continue
		}
		r, err := readReport(path)
		if err != nil {
			return nil, err
		}
		if r.Backend != name {
			return nil, fmt.Errorf("tenure: %s is the report of %q: name it after its backend", path, r.Backend)
		}
		for _, part := range []struct {
			control bool
			to      **FaultRuns
		}{{false, &r.Faults}, {true, &r.Control}} {
			f := &FaultRuns{Control: part.control}
			b, err := os.ReadFile(filepath.Join(dir, name+f.suffix()))
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err == nil {
				err = json.Unmarshal(b, f)
			}
			if err != nil {
				return nil, fmt.Errorf("tenure: reading the runs under faults of %s: %w", name, err)
			}
			*part.to = f
		}
		out = append(out, r)
	}
	slices.SortStableFunc(out, func(a, b *Report) int { return rank(first, a.Backend) - rank(first, b.Backend) })
	return out, nil
}

func rank(first []string, name string) int {
	if i := slices.Index(first, name); i >= 0 {
		return i
	}
	return len(first)
}

func readReport(path string) (*Report, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return ReadReport(f)
}
