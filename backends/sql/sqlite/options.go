package sqlite

import (
	"fmt"
	"time"

	"github.com/tenure-go/tenure/backends/sql"
	"github.com/tenure-go/tenure/core/driver"
)

// DefaultPollPeriod is how often a blocked Observe or TailLog looks for changes
// made by other processes.
const DefaultPollPeriod = 10 * time.Millisecond

// Options for Open. The zero value, and nil, work.
type Options struct {
	// PollPeriod is how late a change made by another process may be reported.
	// Default (0) DefaultPollPeriod; 1 ms to 10 s. Changes made through the same
	// Backend are reported at once.
	PollPeriod time.Duration

	// MustExist refuses to create anything: the files, the tables and the
	// namespace's identity must be there. Set it where a missing database means a
	// wrong path or a lost disk (rule I1).
	MustExist bool

	// NewRoster is an operator's word that no member of this namespace runs any
	// more: an empty members' file is accepted beside existing data, as after a
	// restore of the data file alone.
	NewRoster bool

	// TablePrefix begins the name of every table. Default ("") "tenure_";
	// lower-case letters, digits and "_", at most 32 bytes.
	TablePrefix string
}

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
	return &c, sql.CheckPrefix(c.TablePrefix)
}
