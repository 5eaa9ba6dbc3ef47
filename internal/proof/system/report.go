package system

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tenure-go/tenure/internal/proof/figures"
	"github.com/tenure-go/tenure/internal/proof/history"
)

// Report has the figures of one run, or of several. It is a plain value.
type Report struct {
	Backend string
	TTL     time.Duration
	Control bool
	Runs    int // number of seeds
	Failed  int // runs with findings; for a control, runs with damage

	Members    int // started processes
	Accepted   int // fenced writes that core acknowledged
	Refused    int // writes that core reported as certainly not applied
	Fenced     int // requests that the store refused because of their fence
	Ambiguous  int // writes with an attempt of unknown outcome, or in flight when their process was killed
	Resolved   int // ambiguous writes that core settled as accepted or refused
	Unresolved int // writes that core reported as unknown
	Late       int // writes that were held, and sent after another member had been granted the shard
	Damage     int // entries accepted under a superseded token

	Overlap   time.Duration             // longest overlap of trust
	Takeovers int                       // changes of a shard's owner between processes
	Took      []time.Duration           // takeovers by force: from the fault to the new grant, sorted
	Apart     map[cause][]time.Duration // the same by cause
	Alone     []time.Duration           // takeovers without another fault: their time without a reason
	Long      map[reason]int            // takeovers above 1.5 TTL, by reason
	Evicted   int                       // sessions of killed processes that a member evicted
	Told      int                       // evictions of those that the evicting member reported
	Faults    map[string]int            // faults, by name
	Steps     int64                     // steps of the members' machines, in their traces
	Compared  int64                     // steps that were compared with the rules
	Findings  []history.Finding         // of failed runs; none for a control
}

// Suffices reports whether a control did enough damage: in 19 of 20 runs.
func (r *Report) Suffices() bool { return r.Failed*20 >= r.Runs*19 }

// measure returns the figures of one run.
func (e *evidence) measure(found []history.Finding) *Report {
	r := &Report{Backend: e.config.Opener.Name, TTL: e.config.TTL, Control: e.config.Control, Runs: 1,
		Members: len(e.journals), Faults: map[string]int{}, Apart: map[cause][]time.Duration{}, Long: map[reason]int{}}
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
		r.Overlap = max(r.Overlap, f.Overlap)
		if f.Check == checkBelief && f.Rule == "S3" {
			r.Damage++
		}
	}
	for _, t := range e.takeovers() {
		r.Takeovers++
		if t.forced {
			r.Took = append(r.Took, t.took)
			r.Apart[t.cause] = append(r.Apart[t.cause], t.took)
			if t.alone {
				r.Alone = append(r.Alone, t.unexplained())
			}
			if t.took > longLimit(r.TTL) {
				r.Long[t.reason(r.TTL)]++
			}
		}
	}
	r.Evicted, r.Told = e.crashEvictions()
	slices.Sort(r.Took)
	for _, k := range e.injections {
		r.Faults[string(k.step.Fault)]++
		if k.late {
			r.Late++
		}
	}
	return r
}

// requests counts the calls to the store.
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
	r.Backend, r.TTL, r.Control = o.Backend, o.TTL, o.Control
	r.Runs += o.Runs
	r.Failed += o.Failed
	r.Members += o.Members
	r.Steps += o.Steps
	r.Compared += o.Compared
	r.Accepted += o.Accepted
	r.Refused += o.Refused
	r.Fenced += o.Fenced
	r.Ambiguous += o.Ambiguous
	r.Resolved += o.Resolved
	r.Unresolved += o.Unresolved
	r.Late += o.Late
	r.Damage += o.Damage
	r.Overlap = max(r.Overlap, o.Overlap)
	r.Takeovers += o.Takeovers
	r.Took = append(r.Took, o.Took...)
	slices.Sort(r.Took)
	r.Alone = append(r.Alone, o.Alone...)
	r.Evicted += o.Evicted
	r.Told += o.Told
	if r.Faults == nil {
		r.Faults, r.Apart, r.Long = map[string]int{}, map[cause][]time.Duration{}, map[reason]int{}
	}
	r.Findings = append(r.Findings, o.Findings...)
	for why, n := range o.Long {
		r.Long[why] += n
	}
	for c, took := range o.Apart {
		r.Apart[c] = append(r.Apart[c], took...)
	}
	for f, n := range o.Faults {
		r.Faults[f] += n
	}
}

// quantile returns a quantile of the takeovers by force, in TTLs; 0 without any.
func (r *Report) quantile(q float64) float64 { return r.quantileOf(r.Took, q) }

func (r *Report) quantileOf(took []time.Duration, q float64) float64 {
	if len(took) == 0 {
		return 0
	}
	i := min(int(q*float64(len(took))), len(took)-1)
	return float64(took[i]) / float64(r.TTL)
}

// apart returns the quantiles of some takeovers.
func (r *Report) apart(some []time.Duration) figures.Times {
	took := slices.Sorted(slices.Values(some))
	return figures.Times{N: len(took), Median: r.quantileOf(took, 0.5), P99: r.quantileOf(took, 0.99),
		Most: r.quantileOf(took, 1)}
}

// Figures returns the report in its saved form.
func (r *Report) Figures() *figures.Runs {
	return &figures.Runs{
		Control: r.Control, TTL: r.TTL, Runs: r.Runs, Failed: r.Failed, Processes: r.Members,
		Accepted: r.Accepted, Refused: r.Refused, Fenced: r.Fenced,
		Ambiguous: r.Ambiguous, Resolved: r.Resolved, Unresolved: r.Unresolved, Late: r.Late, Damage: r.Damage,
		Overlap: r.overlap(), Takeovers: r.Takeovers, ByForce: len(r.Took),
		Median: r.quantile(0.5), P99: r.quantile(0.99), Most: r.quantile(1),
		Crash: r.apart(r.Apart[causeCrash]), Stop: r.apart(r.Apart[causeStop]), Outage: r.apart(r.Apart[causeOutage]),
		Alone: r.apart(r.Alone), Long: r.long(), Evicted: r.Evicted, Told: r.Told,
	}
}

// long counts the takeovers above 1.5 TTL by their reasons.
func (r *Report) long() figures.Long {
	return figures.Long{Away: r.Long[reasonAway], Struck: r.Long[reasonStruck], Still: r.Long[reasonStill],
		Slow: r.Long[reasonSlow], None: r.Long[reasonNone]}
}

// overlap returns the longest overlap of trust in microseconds, rounded up.
func (r *Report) overlap() int { return int((r.Overlap + time.Microsecond - 1).Microseconds()) }

// String returns the report for people, in a few lines.
func (r *Report) String() string {
	var b strings.Builder
	name, failed := r.Backend, "violations"
	if r.Control {
		name, failed = name+" without the fence", "damage"
	}
	fmt.Fprintf(&b, "%s, TTL %v: %d of %d runs with %s, %d processes\n", name, r.TTL, r.Failed, r.Runs, failed,
		r.Members)
	fmt.Fprintf(&b, "writes: %d accepted, %d refused (%d requests by the fence), %d ambiguous of which %d resolved, "+
		"%d reported as unknown, %d held until after a takeover, %d accepted under a superseded token\n",
		r.Accepted, r.Refused, r.Fenced, r.Ambiguous, r.Resolved, r.Unresolved, r.Late, r.Damage)
	fmt.Fprintf(&b, "overlap of trust: %d microseconds at most\n", r.overlap())
	fmt.Fprintf(&b, "takeovers: %d, of which %d by force after %.2f / %.2f / %.2f / %.2f TTL (least, median, 90 %%, "+
		"most)\n",
		r.Takeovers, len(r.Took), r.quantile(0), r.quantile(0.5), r.quantile(0.9), r.quantile(1))
	for _, c := range []cause{causeCrash, causeStop, causeOutage} {
		t := r.apart(r.Apart[c])
		fmt.Fprintf(&b, "  by %s: %d, %.2f / %.2f / %.2f TTL (median, 99 %%, most)\n", c, t.N, t.Median, t.P99, t.Most)
	}
	t := r.apart(r.Alone)
	fmt.Fprintf(&b, "  without another fault beside, less what has a reason: %d, %.2f / %.2f / %.2f TTL\n", t.N, t.Median, t.P99, t.Most)
	fmt.Fprintf(&b, "  above 1.5 TTL: %+v\n", r.long())
	fmt.Fprintf(&b, "evicted after a kill: %d, of which the member that did it says %d\n", r.Evicted, r.Told)
	fmt.Fprintf(&b, "steps in the members' traces: %d, of which %d were compared with the rules\n", r.Steps, r.Compared)
	var faults []string
	for f := range r.Faults {
		faults = append(faults, f)
	}
	slices.SortFunc(faults, func(a, b string) int {
		return cmp.Or(-cmp.Compare(r.Faults[a], r.Faults[b]), cmp.Compare(a, b))
	})
	b.WriteString("faults:")
	for _, f := range faults {
		fmt.Fprintf(&b, " %d x %s;", r.Faults[f], f)
	}
	return strings.TrimSuffix(b.String(), ";")
}
