package sqlite

import (
	"fmt"
	"time"

	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/sqlschema"
)

const (
	// defaultPollPeriod is the time between two looks of a blocked Observe or TailLog while
	// something is under way. They look for other processes' changes that the file system did
	// not report.
	defaultPollPeriod = 10 * time.Millisecond
	// defaultIdlePollPeriod is the longest such time while the file system reports
	// changes.
	defaultIdlePollPeriod = 4 * time.Second
)

// Options configure Open. The zero value and nil are valid.
type Options struct {
	// PollPeriod limits how late another process's change may be reported while something is
	// under way, if the file system does not report it (see the package's documentation).
	// Something is under way for 20 times PollPeriod after this process sees a change, or makes
	// a claim, a hand-over, a join or an eviction. The same is true while a member has been
	// silent for half its TTL. Default (0) 10 ms; 1 ms to 10 s. Changes made through the same
	// Backend are reported immediately.
	PollPeriod time.Duration `json:"poll" yaml:"poll"`

	// IdlePollPeriod limits how late a change may be reported if the file system missed its
	// notification. Two fifths of the members' shortest TTL is a further limit. On a file
	// system without notifications, it limits how late the first change after a quiet time may
	// be reported. The time between two looks is then a twentieth of the time since the last
	// change. It is at most this period, and at most a twentieth of the shortest TTL. Default
	// (0) 4 s; PollPeriod to 1 minute.
	IdlePollPeriod time.Duration `json:"idle_poll" yaml:"idle_poll"`

	// NoNotify turns off the file system's notifications, so that changes are polled. A bubble
	// of testing/synctest needs it, because its time stands still while a notification is
	// awaited.
	NoNotify bool `json:"no_notify" yaml:"no_notify"`

	// Create makes the files, the tables and the namespace's identity if they are missing.
	// Default (nil) true, unlike the backends of servers. With false, a missing one is an
	// error, because it may mean a wrong path or a lost disk (rule I1).
	Create *bool `json:"create" yaml:"create"`

	// NewRoster asserts that no member of this namespace is running. Then Tenure accepts an
	// empty members' file beside existing data, for example after a restore of the data file
	// alone.
	NewRoster bool `json:"new_roster" yaml:"new_roster"`

	// TablePrefix begins the name of every table. Default ("") "tenure_". It consists of
	// lower-case letters, digits and "_", at most 32 bytes.
	TablePrefix string `json:"table_prefix" yaml:"table_prefix"`
}

func (o *Options) create() bool { return o.Create == nil || *o.Create }

// withDefaults returns a copy with the defaults filled in, or an error.
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
