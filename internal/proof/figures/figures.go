// Package figures has the counts and measures of the system suite on a backend. They are saved in a
// directory of reports and shown beside the report of package conformance.
package figures

import (
	"encoding/json"
	"os"
	"path/filepath"
	"time"
)

// Runs are runs on one backend.
type Runs struct {
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

	// Median, P99 and Most are from a fault to the new grant, in TTLs.
	Median float64 `json:"takeover_p50"`
	P99    float64 `json:"takeover_p99"`
	Most   float64 `json:"takeover_max"`

	// The same by the former owner's fault: its process was killed, or it was stopped, or the store
	// was away too. In the third case they count from its return.
	Crash  Times `json:"crash"`
	Stop   Times `json:"stop"`
	Outage Times `json:"outage"`

	// Alone has takeovers without another fault, minus the times with a reason.
	Alone Times `json:"alone"`
	// Long has the takeovers that took more than 1.5 TTL.
	Long Long `json:"long"`

	Evicted int `json:"evicted"` // sessions of killed processes that a member evicted
	Told    int `json:"told"`    // evictions with the event "evicted" of the evicting member
}

// Long counts takeovers by their cause of delay.
type Long struct {
	Away   int `json:"away"`   // the store was away
	Struck int `json:"struck"` // another member had a fault too
	Still  int `json:"still"`  // the machine did not run the successor
	Slow   int `json:"slow"`   // the store answered late
	None   int `json:"none"`   // no reason in the run
}

// Times has the times of N takeovers, in TTLs.
type Times struct {
	N      int     `json:"n"`
	Median float64 `json:"p50"`
	P99    float64 `json:"p99"`
	Most   float64 `json:"max"`
}

// Suffix returns the end of the file names of figures of this kind.
func (f *Runs) Suffix() string {
	if f.Control {
		return ".control.json"
	}
	return ".system.json"
}

// Save writes the figures of a backend into a directory of reports.
func (f *Runs) Save(dir, backend string) error {
	b, err := json.MarshalIndent(f, "", "\t")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, backend+f.Suffix()), append(b, '\n'), 0o644)
}
