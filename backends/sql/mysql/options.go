package mysql

import (
	"context"
	"crypto/tls"
	"fmt"
	"time"

	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/sqlschema"
)

const (
	// defaultPollPeriod is the time between two looks of a blocked Observe or TailLog
	// for other processes' changes, while something is under way.
	defaultPollPeriod = 50 * time.Millisecond
	// defaultIdlePollPeriod is the longest such time, after a quiet time.
	defaultIdlePollPeriod = 500 * time.Millisecond
	// defaultMaxConns limits the connections that write.
	defaultMaxConns = 4
)

// Options configure Open and Migrate. The zero value and nil are valid.
type Options struct {
	// TablePrefix begins the name of every table. Default ("") "tenure_". It consists of
	// lower-case letters, digits and "_", at most 32 bytes.
	TablePrefix string `json:"table_prefix" yaml:"table_prefix"`

	// Create writes the namespace's identity if it has none. Without it, a missing identity is
	// an error, because it may mean a wiped store (rule I1).
	Create bool `json:"create" yaml:"create"`

	// Migrate brings the tables up to date when opening, instead of a
	// separate step run by another user. It needs the right to create tables.
	Migrate bool `json:"migrate" yaml:"migrate"`

	// NewRoster asserts that no member of this namespace is running. Then Tenure
	// accepts a missing roster beside existing data.
	NewRoster bool `json:"new_roster" yaml:"new_roster"`

	// PollPeriod limits how late another process's change may be reported while something is
	// under way. Something is under way for 20 times PollPeriod after this process sees a
	// change, or makes a claim, a hand-over, a join or an eviction. The same is true while a
	// member has been silent for half its TTL. Default (0) 50 ms; 1 ms to 10 s. A failover
	// takes at most this much longer.
	PollPeriod time.Duration `json:"poll" yaml:"poll"`

	// IdlePollPeriod limits how late the first change after a quiet time may be reported. The
	// time between two looks is a twentieth of the time since the last change. It is at most
	// this period, and at most a twentieth of the members' shortest TTL. It delays a failover
	// by at most that time. Default (0) 500 ms; PollPeriod to 1 minute.
	IdlePollPeriod time.Duration `json:"idle_poll" yaml:"idle_poll"`

	// MaxConns limits the connections that write. Default (0) 4; 1 to 1000.
	MaxConns int `json:"max_conns" yaml:"max_conns"`

	// TLS, if set, replaces the DSN's TLS settings. It is not changed.
	TLS *tls.Config `json:"-" yaml:"-"`

	// Insecure allows a connection to another host without TLS, or without checking
	// the server's certificate. Default false: such a DSN is refused.
	Insecure bool `json:"insecure" yaml:"insecure"`

	// Password, if set, returns the password of each new connection, instead of the
	// DSN's. Use it for passwords that change. It must be safe for concurrent use.
	Password func(ctx context.Context) (string, error) `json:"-" yaml:"-"`
}

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
	if c.MaxConns == 0 {
		c.MaxConns = defaultMaxConns
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
	if c.MaxConns < 1 || c.MaxConns > 1000 {
		return nil, fmt.Errorf("tenure: %w: %d connections: use 1 to 1000", driver.ErrInvalid, c.MaxConns)
	}
	return &c, sqlschema.CheckPrefix(c.TablePrefix)
}
