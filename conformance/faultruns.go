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

	"github.com/tenure-go/tenure/internal/proof/figures"
)

// FaultRuns holds the figures of the system suite's runs on a backend, with real processes under
// real faults. If ReportDir is set in the environment, conformance/system saves the figures.
// WriteMarkdown shows them next to the suite's report.
type FaultRuns = figures.Runs

// ReadReports reads every report in a directory, and the saved figures of runs under faults. The
// reports named in first come first, in that order.
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
			b, err := os.ReadFile(filepath.Join(dir, name+f.Suffix()))
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
	defer f.Close() //nolint:errcheck // it was only read
	return ReadReport(f)
}
