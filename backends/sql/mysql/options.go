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
	// DefaultPollPeriod is how often a blocked Observe or TailLog looks for changes
	// made by other processes while something is under way.
	DefaultPollPeriod = 50 * time.Millisecond
	// DefaultIdlePollPeriod is how often it looks, at least, after a quiet time.
	DefaultIdlePollPeriod = 500 * time.Millisecond
	// DefaultMaxConns is how many connections write, at most.
	DefaultMaxConns = 4
)

// Options for Open and Migrate. The zero value, and nil, work.
type Options struct {
	// TablePrefix begins the name of every table. Default ("") "tenure_";
	// lower-case letters, digits and "_", at most 32 bytes.
	TablePrefix string `json:"table_prefix" yaml:"table_prefix"`

	// Create writes the namespace's identity if it has none. Without it a missing
	// identity is an error, because it may mean a wiped store (rule I1).
	Create bool `json:"create" yaml:"create"`

	// Migrate brings the tables up to date when opening, instead of a
	// separate step run by another user. It needs the right to create tables.
	Migrate bool `json:"migrate" yaml:"migrate"`

	// NewRoster asserts that no member of this namespace is running:
	// a missing roster is accepted beside existing data.
	NewRoster bool `json:"new_roster" yaml:"new_roster"`

	// PollPeriod is how late a change made by another process may be reported while
	// something is under way: a change was seen, or a claim, a hand-over, a join or an
	// eviction made here, in the last second, or a member has been silent for half its
	// TTL. Default (0) DefaultPollPeriod; 1 ms to 10 s. Failover takes this much longer
	// at most.
	PollPeriod time.Duration `json:"poll" yaml:"poll"`

	// IdlePollPeriod is how late the first change after a quiet time may be reported.
	// Looks become rarer with the time since the last change: a twentieth of that lies
	// between them, never more than this period and a twentieth of the shortest TTL of
	// the members, which is by how much a failover is later. Default (0)
	// DefaultIdlePollPeriod; PollPeriod to 1 minute.
	IdlePollPeriod time.Duration `json:"idle_poll" yaml:"idle_poll"`

	// MaxConns is how many connections write, at most. Default (0)
	// DefaultMaxConns; 1 to 1000.
	MaxConns int `json:"max_conns" yaml:"max_conns"`

	// TLS, if set, replaces what the DSN says about TLS. It is not changed.
	TLS *tls.Config `json:"-" yaml:"-"`

	// Insecure allows a connection to another host without TLS, or without checking
	// the server's certificate. Default false: such a DSN is refused.
	Insecure bool `json:"insecure" yaml:"insecure"`

	// Password, if set, is asked for the password of each new connection, instead of
	// the DSN's: for passwords that change. It must be safe for concurrent
	// use.
	Password func(ctx context.Context) (string, error) `json:"-" yaml:"-"`
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
	if c.IdlePollPeriod == 0 {
		c.IdlePollPeriod = max(DefaultIdlePollPeriod, c.PollPeriod)
	}
	if c.MaxConns == 0 {
		c.MaxConns = DefaultMaxConns
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
