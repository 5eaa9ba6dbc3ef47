package sqlite

import (
	"fmt"
	"time"

	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/sqlschema"
)

// DefaultPollPeriod is how often a blocked Observe or TailLog looks for changes
// made by other processes.
const DefaultPollPeriod = 10 * time.Millisecond

// Options for Open. The zero value, and nil, work.
type Options struct {
	// PollPeriod is how late a change made by another process may be reported.
	// Default (0) DefaultPollPeriod; 1 ms to 10 s. Changes made through the same
	// Backend are reported at once.
	PollPeriod time.Duration `json:"poll" yaml:"poll"`

	// Create makes the files, the tables and the namespace's identity if they are
	// missing. Default (nil) true, unlike the backends of servers. With new(false) a
	// missing one is an error: for where it means a wrong path or a lost disk (rule I1).
	Create *bool `json:"create" yaml:"create"`

	// NewRoster asserts that no member of this namespace is running:
	// an empty members' file is accepted beside existing data, as after a
	// restore of the data file alone.
	NewRoster bool `json:"new_roster" yaml:"new_roster"`

	// TablePrefix begins the name of every table. Default ("") "tenure_";
	// lower-case letters, digits and "_", at most 32 bytes.
	TablePrefix string `json:"table_prefix" yaml:"table_prefix"`
}

func (o *Options) create() bool { return o.Create == nil || *o.Create }

// withDefaults returns a copy with the defaults filled in, or what to change.
func (o *Options) withDefaults() (*Options, error) {
	c := Options{}
	if o != nil {
		c = *o
	}
	if c.PollPeriod == 0 {
		c.PollPeriod = DefaultPollPeriod
	}
	if c.TablePrefix == "" {
		c.TablePrefix = "tenure_"
	}
	if c.PollPeriod < time.Millisecond || c.PollPeriod > 10*time.Second {
		return nil, fmt.Errorf("tenure: %w: poll period %v is outside 1ms to 10s", driver.ErrInvalid, c.PollPeriod)
	}
	return &c, sqlschema.CheckPrefix(c.TablePrefix)
}
