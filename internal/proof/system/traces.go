package system

import (
	"context"
	"time"

	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/proof/history"
	"github.com/tenure-go/tenure/internal/trace"
)

// checkTraced is the check of the members' traces.
const checkTraced = "traces-are-accepted"

// traceClocks is how far the members' wall clocks may be apart: they have one, but for what passes
// between two readings.
const traceClocks = 5 * time.Millisecond

// traced has the traces of all members checked, each step and what they did together.
func (s *supervisor) traced(ctx context.Context) (*trace.Report, []history.Finding) {
	files, err := trace.FilesIn(s.dir)
	if err == nil {
		var r *trace.Report
		if r, err = trace.Check(ctx, files, traceClocks); err == nil {
			var out []history.Finding
			for _, b := range r.Breaches {
				out = append(out, newFinding(b.Rule, checkTraced, driver.ShardID(b.Shard), "%s", b.Text))
			}
			return r, out
		}
	}
	return &trace.Report{}, []history.Finding{newFinding("traffic", checkTraced, "", "%v", err)}
}
