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
	// defaultPollPeriod is the time between polls while the namespace is active.
	defaultPollPeriod = 50 * time.Millisecond
	// defaultIdlePollPeriod is the longest time between polls after a quiet time.
	defaultIdlePollPeriod = 500 * time.Millisecond
	// defaultMaxConns limits the number of connections for writes.
	defaultMaxConns = 4
)

// Options configure Open and Migrate. The zero value and nil are valid.
type Options struct {
	// TablePrefix is the prefix of every table's name. Default ("") "tenure_". A prefix consists of
	// at most 32 lower-case letters, digits and "_".
	TablePrefix string `json:"table_prefix" yaml:"table_prefix"`

	// Create lets Open write the namespace's identity if it does not exist. Without Create, a missing
	// identity is an error, because the store may have been wiped (rule I1).
	Create bool `json:"create" yaml:"create"`

	// Migrate lets Open update the tables, so that no separate step by another user is necessary.
	// Migrate requires permission to create tables.
	Migrate bool `json:"migrate" yaml:"migrate"`

	// NewRoster asserts that no member of this namespace is running. With NewRoster, Tenure accepts
	// that the roster is missing while data exists.
	NewRoster bool `json:"new_roster" yaml:"new_roster"`

	// PollPeriod limits how late another process's change may be reported while the namespace is
	// active. A namespace is active for 20 times PollPeriod after this process sees a change, or
	// makes a claim, a hand-over, a join or an eviction. A namespace is also active while a member
	// has been silent for half its TTL. Default (0) 50 ms; 1 ms to 10 s. A failover takes at most
	// PollPeriod longer.
	PollPeriod time.Duration `json:"poll" yaml:"poll"`

	// IdlePollPeriod limits how late the first change after a quiet time may be reported. The time
	// between two polls is a twentieth of the time since the last change. This time never exceeds
	// IdlePollPeriod or a twentieth of the members' shortest TTL, and delays a failover by at most
	// that time. Default (0) 500 ms; PollPeriod to 1 minute.
	IdlePollPeriod time.Duration `json:"idle_poll" yaml:"idle_poll"`

	// MaxConns limits the connections that write. Default (0) 4; 1 to 1000.
	MaxConns int `json:"max_conns" yaml:"max_conns"`

	// TLS, if set, replaces the DSN's TLS settings. The backend does not modify this configuration.
	TLS *tls.Config `json:"-" yaml:"-"`

	// Insecure allows connections to other hosts without TLS, or without checks of the server's
	// certificate. Default false: Open refuses such a DSN.
	Insecure bool `json:"insecure" yaml:"insecure"`

	// Password, if set, returns the password for each new connection, and replaces the DSN's
	// password. Use it for passwords that change. The function must be safe for concurrent use.
	Password func(ctx context.Context) (string, error) `json:"-" yaml:"-"`
}

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
