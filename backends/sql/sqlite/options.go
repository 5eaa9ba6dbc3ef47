package sqlite

import (
	"fmt"
	"time"

	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/sqlschema"
)

const (
	// DefaultPollPeriod is how often a blocked Observe or TailLog looks for changes
	// made by other processes of which the file system did not tell, while something is
	// under way.
	DefaultPollPeriod = 10 * time.Millisecond
	// DefaultIdlePollPeriod is how often it looks, at least, although the file system
	// tells of changes.
	DefaultIdlePollPeriod = 4 * time.Second
)

// Options for Open. The zero value, and nil, work.
type Options struct {
	// PollPeriod is how late a change made by another process may be reported where
	// the file system does not tell of it (see the package's documentation), while
	// something is under way: a change was seen, or a claim, a hand-over, a join or an
	// eviction made here, in the last fifth of a second, or a member has been silent for
	// half its TTL. Default (0) DefaultPollPeriod; 1 ms to 10 s. Changes made through
	// the same Backend are reported at once.
	PollPeriod time.Duration `json:"poll" yaml:"poll"`

	// IdlePollPeriod is how late a change may be reported that the file system should
	// have notified of and did not, or two fifths of the shortest TTL of the members if
	// that is less. On a file system without notifications it is how late the first
	// change after a quiet time may be reported: a twentieth of the time since the last
	// change lies between two looks, never more than this period and a twentieth of the
	// shortest TTL. Default (0) DefaultIdlePollPeriod; PollPeriod to 1 minute.
	IdlePollPeriod time.Duration `json:"idle_poll" yaml:"idle_poll"`

	// NoNotify leaves out the file system's notifications: changes are polled. Needed in a
	// bubble of testing/synctest, whose time stands still while a notification is awaited.
	NoNotify bool `json:"no_notify" yaml:"no_notify"`

	// Create makes the files, the tables and the namespace's identity if they are
	// missing. Default (nil) true, unlike the backends of servers. With false a
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
	if c.IdlePollPeriod == 0 {
		c.IdlePollPeriod = max(DefaultIdlePollPeriod, c.PollPeriod)
	}
	if c.TablePrefix == "" {
		c.TablePrefix = "tenure_"
	}
	if c.PollPeriod < time.Millisecond || c.PollPeriod > 10*time.Second {
		return nil, fmt.Errorf("tenure: %w: poll period %v is outside 1ms to 10s", driver.ErrInvalid, c.PollPeriod)
	}
	if c.IdlePollPeriod < c.PollPeriod || c.IdlePollPeriod > time.Minute {
		return nil, fmt.Errorf("tenure: %w: idle poll period %v is outside the poll period %v to 1m", driver.ErrInvalid,
			c.IdlePollPeriod, c.PollPeriod)
	}
	return &c, sqlschema.CheckPrefix(c.TablePrefix)
}
