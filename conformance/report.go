package conformance

import (
	"fmt"
	"io"

	"github.com/tenure-go/tenure/internal/proof/suite"
)

// Report holds the outcomes of a run.
type Report struct{ of *suite.Report }

// Err returns an error that shows the failures, or nil if no case failed.
func (r *Report) Err() error {
	if len(r.of.With(suite.Failed)) == 0 {
		return nil
	}
	return fmt.Errorf("tenure: conformance: %v", r)
}

// String returns a summary, the failures, and the skipped cases with their reasons.
func (r *Report) String() string { return r.of.String() }

// WriteJSON writes the report as JSON, with the outcome of each case.
func (r *Report) WriteJSON(w io.Writer) error { return r.of.WriteJSON(w) }
