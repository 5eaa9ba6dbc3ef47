package suite

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Read reads the output of WriteJSON. Read sets the current rules of each case, and omits results
// for cases that are not in cases.
func Read(r io.Reader, cases []Case) (*Report, error) {
	report := new(Report)
	if err := json.NewDecoder(r).Decode(report); err != nil {
		return nil, fmt.Errorf("tenure: reading a conformance report: %w", err)
	}
	saved := report.Results
	report.Results = nil
	for _, res := range saved {
		if i := slices.IndexFunc(cases, func(c Case) bool { return c.Name == res.Case }); i >= 0 {
			res.Rules = cases[i].Rules
			report.Add(res)
		}
	}
	return report, nil
}

// ReadFile reads a backend's report from a report directory.
func ReadFile(dir, backend string, cases []Case) (*Report, error) {
	f, err := os.Open(filepath.Join(dir, backend+".json"))
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // it was only read
	return Read(f, cases)
}

// ReadDir reads every report in a directory, with the saved figures of runs under faults. The
// reports named in first come first, in that order.
func ReadDir(dir string, cases []Case, first ...string) ([]*Report, error) {
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
		r, err := ReadFile(dir, name, cases)
		if err != nil {
			return nil, err
		}
		if r.Backend != name {
			return nil, fmt.Errorf("tenure: %s is the report of %q: name it after its backend", path, r.Backend)
		}
		for _, part := range []struct {
			control bool
			to      **Figures
		}{{false, &r.Faults}, {true, &r.Control}} {
			f := &Figures{Control: part.control}
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
