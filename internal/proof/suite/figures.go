package suite

import (
	"fmt"
	"strings"
	"time"
)

// Figures contains the counts and measurements from the system suite's runs on one backend.
type Figures struct {
	Control bool          `json:"control"` // without the fence; the Failed runs did damage
	TTL     time.Duration `json:"ttl"`     // nanoseconds
	Runs    int           `json:"runs"`
	Failed  int           `json:"failed"`

	Processes  int `json:"processes"`
	Accepted   int `json:"accepted"`   // fenced writes
	Refused    int `json:"refused"`    // as core reported to the callers
	Fenced     int `json:"fenced"`     // refused requests, counted by the store
	Ambiguous  int `json:"ambiguous"`  // writes with an attempt of unknown outcome
	Resolved   int `json:"resolved"`   // ambiguous writes whose outcome became known
	Late       int `json:"late"`       // sent after another member had been granted the shard
	Damage     int `json:"damage"`     // entries accepted under a superseded token
	Overlap    int `json:"overlap_us"` // longest overlap of trust, in microseconds
	Takeovers  int `json:"takeovers"`
	ByForce    int `json:"by_force"`
	Unresolved int `json:"unresolved"` // reported as unknown

	// Median, P99 and Most are the times from a fault to the new grant, in TTLs.
	Median float64 `json:"takeover_p50"`
	P99    float64 `json:"takeover_p99"`
	Most   float64 `json:"takeover_max"`

	// Crash, Stop and Outage group the times by what happened to the former owner: its process was
	// killed, its process was stopped, or the store was also away. If the store was away, the time
	// begins when it returns.
	Crash  Times `json:"crash"`
	Stop   Times `json:"stop"`
	Outage Times `json:"outage"`

	// Alone contains the times of takeovers without another fault, minus the explained delays.
	Alone Times `json:"alone"`
	// Long contains the takeovers that took more than 1.5 TTL.
	Long Long `json:"long"`

	Evicted int `json:"evicted"` // sessions of killed processes that a member evicted
	Told    int `json:"told"`    // evictions for which the evicting member had the event "evicted"
}

// Long counts takeovers by their cause of delay.
type Long struct {
	Away   int `json:"away"`   // the store was away
	Struck int `json:"struck"` // another member had a fault too
	Still  int `json:"still"`  // the machine did not run the successor
	Slow   int `json:"slow"`   // the store answered late
	None   int `json:"none"`   // the run shows no reason
}

// Times contains the times of N takeovers, in TTLs.
type Times struct {
	N      int     `json:"n"`
	Median float64 `json:"p50"`
	P99    float64 `json:"p99"`
	Most   float64 `json:"max"`
}

// Add adds the counts of other runs. Takeover times are not sums, so Add leaves them unchanged.
func (f *Figures) Add(o *Figures) {
	from := o.counts()
	for i, n := range f.counts() {
		*n += *from[i]
	}
	f.Overlap = max(f.Overlap, o.Overlap)
}

// counts returns the figures that are sums over the runs.
func (f *Figures) counts() []*int {
	return []*int{&f.Runs, &f.Failed, &f.Processes, &f.Accepted, &f.Refused, &f.Fenced, &f.Ambiguous, &f.Resolved, &f.Late,
		&f.Damage, &f.Takeovers, &f.ByForce, &f.Unresolved, &f.Long.Away, &f.Long.Struck, &f.Long.Still, &f.Long.Slow,
		&f.Long.None, &f.Evicted, &f.Told}
}

// Suffices reports whether a control did damage in at least 19 of 20 runs.
func (f *Figures) Suffices() bool { return f.Failed*20 >= f.Runs*19 }

// rows returns the figures as table rows, for display.
func (f *Figures) rows() []row {
	long, evicted := notMeasured, notMeasured
	if l := f.Long; f.Alone.N > 0 || l != (Long{}) {
		long = fmt.Sprintf("%d, %d, %d, %d; %d", l.Struck, l.Away, l.Still, l.Slow, l.None)
	}
	if f.Evicted > 0 {
		evicted = fmt.Sprintf("%d, %d", f.Evicted, f.Told)
	}
	return []row{
		{"TTL", f.TTL.String()},
		{"runs with violations", fmt.Sprintf("%d of %d", f.Failed, f.Runs)},
		{"writes accepted", fmt.Sprint(f.Accepted)},
		{"writes refused, requests refused by the fence", fmt.Sprintf("%d, %d", f.Refused, f.Fenced)},
		{"ambiguous writes, resolved ones", fmt.Sprintf("%d, %d", f.Ambiguous, f.Resolved)},
		{"writes sent after a takeover", fmt.Sprint(f.Late)},
		{"entries under a superseded token", fmt.Sprint(f.Damage)},
		{"longest overlap of trust, µs", fmt.Sprint(f.Overlap)},
		{"takeovers, by force", fmt.Sprintf("%d, %d", f.Takeovers, f.ByForce)},
		{"fault to new grant, in TTLs: median, 99 %, most", fmt.Sprintf("%.2f, %.2f, %.2f", f.Median, f.P99, f.Most)},
		{"the same, process killed", f.Crash.String()},
		{"the same, process stopped", f.Stop.String()},
		{"the same, store away too, from its return", f.Outage.String()},
		{"the same, no other fault beside, less what has a reason", f.Alone.String()},
		{"above 1.5 TTL: another member struck, store away, machine stood still, store slow; no reason", long},
		{"sessions evicted after a kill, reported by the member that did it", evicted},
	}
}

const notMeasured = "not measured"

func (t Times) String() string {
	if t.N == 0 {
		return notMeasured
	}
	return fmt.Sprintf("%.2f, %.2f, %.2f of %d", t.Median, t.P99, t.Most, t.N)
}

// String returns the figures in readable form, one per line.
func (f *Figures) String() string {
	var b strings.Builder
	for _, x := range f.rows() {
		fmt.Fprintf(&b, "  %s: %s\n", x.name, x.value)
	}
	return b.String()
}

// suffix returns the file-name suffix for figures of this kind.
func (f *Figures) suffix() string {
	if f.Control {
		return ".control.json"
	}
	return ".system.json"
}

// Save writes a backend's figures into a report directory.
func (f *Figures) Save(dir, backend string) error { return save(dir, backend+f.suffix(), f) }
