package system

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tenure-go/tenure/internal/proof/history"
	"github.com/tenure-go/tenure/internal/proof/suite"
)

// Report contains the figures of one or several runs. A Report is a plain value.
type Report struct {
	suite.Figures
	Backend  string
	Faults   map[string]int    // faults, by name
	Steps    int64             // steps of the members' machines, in their traces
	Compared int64             // steps that were compared with the rules
	Findings []history.Finding // of failed runs; none for a control

	// took contains the times of takeovers by force, from the fault to the new grant. Each time is
	// stored under its cause and under anyCause. Some times are also stored under alone.
	took map[cause][]time.Duration
}

// measure returns the figures of one run.
func (e *evidence) measure(found []history.Finding) *Report {
	r := &Report{Backend: e.config.Opener.Name, Faults: map[string]int{}, took: map[cause][]time.Duration{},
		Figures: suite.Figures{TTL: e.config.TTL, Control: e.config.Control, Runs: 1, Processes: len(e.journals)}}
	settled := map[string]bool{} // by digest: writes whose outcome core reported
	for _, notes := range e.journals {
		for _, n := range notes {
			switch n.Out {
			case wasAccepted:
				r.Accepted++
			case wasRefused:
				r.Refused++
			case wasUnknown:
				r.Unresolved++
			}
			if n.Out == wasAccepted || n.Out == wasRefused {
				settled[n.Digest] = true
			}
		}
	}
	r.requests(e.history, settled)
	for _, f := range found {
		r.Overlap = max(r.Overlap, int((f.Overlap + time.Microsecond - 1).Microseconds())) // rounded up
		if f.Check == checkBelief && f.Rule == "S3" {
			r.Damage++
		}
	}
	long := map[reason]*int{reasonAway: &r.Long.Away, reasonStruck: &r.Long.Struck, reasonStill: &r.Long.Still,
		reasonSlow: &r.Long.Slow, reasonNone: &r.Long.None}
	for _, t := range e.takeovers() {
		r.Takeovers++
		if t.forced {
			r.took[anyCause] = append(r.took[anyCause], t.took)
			r.took[t.cause] = append(r.took[t.cause], t.took)
			if t.alone {
				r.took[alone] = append(r.took[alone], t.unexplained())
			}
			if t.took > longLimit(r.TTL) {
				*long[t.reason(r.TTL)]++
			}
		}
	}
	r.Evicted, r.Told = e.crashEvictions()
	r.summarize()
	for _, k := range e.injections {
		r.Faults[string(k.step.Fault)]++
		if k.late {
			r.Late++
		}
	}
	return r
}

func (r *Report) requests(h *history.History, settled map[string]bool) {
	ambiguous := map[string]bool{}
	for i := range h.Operations {
		op := &h.Operations[i]
		switch {
		case op.Kind != history.Commit || op.Outcome == history.OK:
		case op.Outcome == history.Refused:
			if op.Reason == history.ReasonFenced {
				r.Fenced++
			}
		default:
			for _, entry := range op.Entries {
				ambiguous[entry.Digest] = true
			}
		}
	}
	r.Ambiguous = len(ambiguous)
	for d := range ambiguous {
		if settled[d] {
			r.Resolved++
		}
	}
}

func (r *Report) add(o *Report) {
	if r.Faults == nil {
		r.Faults, r.took = map[string]int{}, map[cause][]time.Duration{}
	}
	r.Backend, r.TTL, r.Control = o.Backend, o.TTL, o.Control
	r.Add(&o.Figures)
	r.Steps += o.Steps
	r.Compared += o.Compared
	r.Findings = append(r.Findings, o.Findings...)
	for c, took := range o.took {
		r.took[c] = append(r.took[c], took...)
	}
	for f, n := range o.Faults {
		r.Faults[f] += n
	}
	r.summarize()
}

// These keys of Report.took are not causes.
const (
	anyCause cause = ""
	alone    cause = "alone" // the unexplained times of takeovers without another fault
)

// summarize computes the figures on takeover times.
func (r *Report) summarize() {
	all := r.times(anyCause)
	r.ByForce, r.Median, r.P99, r.Most = all.N, all.Median, all.P99, all.Most
	r.Crash, r.Stop, r.Outage, r.Alone = r.times(causeCrash), r.times(causeStop), r.times(causeOutage), r.times(alone)
}

// times returns the quantiles of the takeover times stored under c.
func (r *Report) times(c cause) suite.Times {
	return suite.Times{N: len(r.took[c]), Median: r.quantile(c, 0.5), P99: r.quantile(c, 0.99), Most: r.quantile(c, 1)}
}

// quantile returns a quantile, in TTLs, of the takeover times stored under c, or 0 if there are no
// such times.
func (r *Report) quantile(c cause, q float64) float64 {
	took := slices.Sorted(slices.Values(r.took[c]))
	if len(took) == 0 {
		return 0
	}
	return float64(took[min(int(q*float64(len(took))), len(took)-1)]) / float64(r.TTL)
}

// String returns the report in readable form, with each figure on a line.
func (r *Report) String() string {
	var b strings.Builder
	b.WriteString(r.Backend)
	if r.Control {
		b.WriteString(" without the fence, where violations are expected")
	}
	fmt.Fprintf(&b, "\n%v", &r.Figures)
	fmt.Fprintf(&b, "  processes: %d\n  writes reported as unknown: %d\n", r.Processes, r.Unresolved)
	fmt.Fprintf(&b, "  fault to new grant, in TTLs: least, 90 %%: %.2f, %.2f\n", r.quantile(anyCause, 0), r.quantile(anyCause, 0.9))
	fmt.Fprintf(&b, "  steps in the members' traces, compared with the rules: %d, %d\n  faults:", r.Steps, r.Compared)
	for _, f := range slices.SortedFunc(maps.Keys(r.Faults), func(a, b string) int {
		return cmp.Or(cmp.Compare(r.Faults[b], r.Faults[a]), cmp.Compare(a, b))
	}) {
		fmt.Fprintf(&b, " %d x %s;", r.Faults[f], f)
	}
	return strings.TrimSuffix(b.String(), ";")
}
