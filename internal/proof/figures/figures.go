// Package figures has what the system suite counts and measures on a backend, as it is saved
// in a directory of reports and shown beside the report of package conformance.
package figures

import (
	"encoding/json"
	"os"
	"path/filepath"
	"time"
)

// Runs are runs on one backend.
type Runs struct {
	Control bool          `json:"control"` // without the fence: Failed runs did damage
	TTL     time.Duration `json:"ttl"`     // nanoseconds
	Runs    int           `json:"runs"`
	Failed  int           `json:"failed"`

	Processes  int `json:"processes"`
	Accepted   int `json:"accepted"`   // fenced writes
	Refused    int `json:"refused"`    // as core reported to the callers
	Fenced     int `json:"fenced"`     // requests, by the store
	Ambiguous  int `json:"ambiguous"`  // writes with an attempt of unknown outcome
	Resolved   int `json:"resolved"`   // of those
	Late       int `json:"late"`       // sent when another member had been granted the shard
	Damage     int `json:"damage"`     // entries accepted under a superseded token
	Overlap    int `json:"overlap_us"` // the longest of trust, in microseconds
	Takeovers  int `json:"takeovers"`
	ByForce    int `json:"by_force"`
	Unresolved int `json:"unresolved"` // reported as unknown

	// From a fault to the new grant, in TTLs.
	Median float64 `json:"takeover_p50"`
	P99    float64 `json:"takeover_p99"`
	Most   float64 `json:"takeover_max"`

	// The same by the former owner's fault: its process was killed; it was stopped; the
	// store was away as well, and then they count from its return.
	Crash  Times `json:"crash"`
	Stop   Times `json:"stop"`
	Outage Times `json:"outage"`

	// Without another fault beside: what is left without what has a reason.
	Alone Times `json:"alone"`
	// Long has those that took more than 1.5 TTL.
	Long Long `json:"long"`

	Evicted int `json:"evicted"` // sessions of killed processes that a member evicted
	Told    int `json:"told"`    // of those, with the event "evicted" of that member
}

// Long counts takeovers by what made them long.
type Long struct {
	Away   int `json:"away"`   // the store was away
	Struck int `json:"struck"` // another member was struck as well
	Still  int `json:"still"`  // the machine did not run the successor
	Slow   int `json:"slow"`   // the store answered late
	None   int `json:"none"`   // nothing that the run shows
}

// Times says how long N takeovers took, in TTLs.
type Times struct {
	N      int     `json:"n"`
	Median float64 `json:"p50"`
	P99    float64 `json:"p99"`
	Most   float64 `json:"max"`
}

// Suffix ends the names of the files with figures of this kind.
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
