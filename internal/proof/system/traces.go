package system

import (
	"context"
	"time"

	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/proof/history"
	"github.com/tenure-go/tenure/internal/trace"
)

// checkTraced is the name of the check on the members' traces.
const checkTraced = "traces-are-accepted"

// traceClocks is the maximum allowed difference between the members' wall clocks. The members share
// one clock, but time passes between two readings.
const traceClocks = 5 * time.Millisecond

// traced checks the traces of all members: each step, and the behavior of the members together.
func (s *supervisor) traced(ctx context.Context) (*trace.Report, []history.Finding) {
	files, err := trace.FilesIn(s.dir)
	if err == nil {
		var r *trace.Report
		if r, err = trace.Check(ctx, files, traceClocks); err == nil {
			var out []history.Finding
			for _, file := range r.Unread {
				out = append(out, newFinding("traffic", checkTraced, "", "%s", file))
			}
			for _, b := range r.Breaches {
				out = append(out, newFinding(b.Rule, checkTraced, driver.ShardID(b.Shard), "%s", b.Text))
			}
			return r, out
		}
	}
	return &trace.Report{}, []history.Finding{newFinding("traffic", checkTraced, "", "%v", err)}
}
