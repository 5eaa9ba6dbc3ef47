package conformance

import (
	"fmt"
	"io"

	"github.com/tenure-go/tenure/internal/proof/suite"
)

// Report contains the outcomes of a run.
type Report struct{ of *suite.Report }

// Err returns an error with the failures, or nil if a case passed and no case failed. A run in
// which all cases were skipped proves nothing, so Err returns an error with the reasons.
func (r *Report) Err() error {
	switch {
	case len(r.of.With(suite.Failed)) > 0:
		return fmt.Errorf("tenure: conformance: %v", r)
	case len(r.of.With(suite.Passed)) == 0:
		return fmt.Errorf("tenure: conformance: no case passed, so this shows nothing: %v", r)
	}
	return nil
}

// String returns a summary, the failures, and the skipped cases with their reasons.
func (r *Report) String() string { return r.of.String() }

// WriteJSON writes the report as JSON, with the outcome of each case.
func (r *Report) WriteJSON(w io.Writer) error { return r.of.WriteJSON(w) }
