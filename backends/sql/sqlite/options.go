package sqlite

import (
	"fmt"
	"time"

	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/sqlschema"
)

const (
	// defaultPollPeriod is the time between polls while the namespace is active.
	defaultPollPeriod = 10 * time.Millisecond
	// defaultIdlePollPeriod is the longest time between polls while the file system reports
	// changes.
	defaultIdlePollPeriod = 4 * time.Second
)

// Options configure Open. The zero value and nil are valid.
type Options struct {
	// PollPeriod limits how late another process's change may be reported while the namespace is
	// active, if the file system does not report it (see the package's documentation). A namespace
	// is active for 20 times PollPeriod after this process sees a change, or makes a claim, a
	// hand-over, a join or an eviction. A namespace is also active while a member has been silent
	// for half its TTL. Default (0) 10 ms; 1 ms to 10 s. Changes made through the same Backend are
	// reported immediately.
	PollPeriod time.Duration `json:"poll" yaml:"poll"`

	// IdlePollPeriod limits how late a change may be reported if the file system sent no
	// notification. Another limit is two fifths of the members' shortest TTL. On a file system
	// without notifications, IdlePollPeriod limits how late the first change after a quiet time may
	// be reported. The time between two polls is then a twentieth of the time since the last
	// change. This time never exceeds IdlePollPeriod or a twentieth of the shortest TTL. Default
	// (0) 4 s; PollPeriod to 1 minute.
	IdlePollPeriod time.Duration `json:"idle_poll" yaml:"idle_poll"`

	// NoNotify turns off the file system's notifications, so the backend polls for changes. Set it
	// in a testing/synctest bubble, where time does not advance during a wait for a notification.
	NoNotify bool `json:"no_notify" yaml:"no_notify"`

	// Create creates the files, the tables and the namespace's identity if they are missing.
	// Default (nil) true, unlike in the backends for servers. If Create is false, a missing part is
	// an error, because the path may be wrong or the disk may be lost (rule I1).
	Create *bool `json:"create" yaml:"create"`

	// NewRoster asserts that no member of this namespace is running. With NewRoster, Tenure accepts
	// an empty members' file when data exists, for example after a restore of the data file alone.
	NewRoster bool `json:"new_roster" yaml:"new_roster"`

	// TablePrefix is the prefix of every table's name. Default ("") "tenure_". A prefix consists of
	// at most 32 lower-case letters, digits and "_".
	TablePrefix string `json:"table_prefix" yaml:"table_prefix"`
}

func (o *Options) create() bool { return o.Create == nil || *o.Create }

// withDefaults validates the options and returns a copy with the defaults filled in.
func (o *Options) withDefaults() (*Options, error) {
	c := Options{}
	if o != nil {
		c = *o
	}
	if c.PollPeriod == 0 {
		c.PollPeriod = defaultPollPeriod
	}
	if c.IdlePollPeriod == 0 {
		c.IdlePollPeriod = max(defaultIdlePollPeriod, c.PollPeriod)
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
