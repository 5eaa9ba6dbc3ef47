package postgres

import (
	"context"
	"fmt"
	"regexp"
	"time"

	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/sqlschema"
)

const (
	// DefaultPollPeriod is how often a blocked Observe or TailLog looks for changes
	// of which no notification came, while something is under way.
	DefaultPollPeriod = 50 * time.Millisecond
	// DefaultIdlePollPeriod is how often it looks, at least, although notifications
	// arrive.
	DefaultIdlePollPeriod = 4 * time.Second
	// polledIdlePeriod is the same where there are none.
	polledIdlePeriod = 500 * time.Millisecond
	// DefaultMaxConns is how many connections write, at most.
	DefaultMaxConns = 4
	// DefaultSchema is the schema that holds the tables.
	DefaultSchema = "public"
)

// Options for Open and Migrate. The zero value, and nil, work.
type Options struct {
	// Schema holds the tables. Default ("") "public"; lower-case letters, digits
	// and "_". Migrate creates it if it is missing.
	Schema string `json:"schema" yaml:"schema"`

	// TablePrefix begins the name of every table. Default ("") "tenure_";
	// lower-case letters, digits and "_", at most 32 bytes.
	TablePrefix string `json:"table_prefix" yaml:"table_prefix"`

	// Create writes the namespace's identity if it has none. Without it a missing
	// identity is an error, because it may mean a wiped store (rule I1).
	Create bool `json:"create" yaml:"create"`

	// Migrate brings the tables up to date when opening, instead of a
	// separate step run by another role. It needs the right to create tables.
	Migrate bool `json:"migrate" yaml:"migrate"`

	// NewRoster asserts that no member of this namespace is running:
	// a missing roster is accepted beside existing data.
	NewRoster bool `json:"new_roster" yaml:"new_roster"`

	// PollPeriod is how late a change made by another process may be reported where
	// no notification comes, while something is under way: a change was seen, or a
	// claim, a hand-over, a join or an eviction made here, in the last second, or a
	// member has been silent for half its TTL. Default (0) DefaultPollPeriod; 1 ms to
	// 10 s. Notifications make it earlier.
	PollPeriod time.Duration `json:"poll" yaml:"poll"`

	// IdlePollPeriod is how late a change may be reported whose notification was lost,
	// or two fifths of the shortest TTL of the members if that is less; and within
	// which a connection that no longer hears notifications is noticed, after which
	// changes are polled. Where they are, it is how late the first change after a quiet
	// time may be reported: a twentieth of the time since the last change lies between
	// two looks, never more than this period and a twentieth of the shortest TTL.
	// Default (0) DefaultIdlePollPeriod, and 500 ms with Pooler or NoNotify; PollPeriod
	// to 1 minute.
	IdlePollPeriod time.Duration `json:"idle_poll" yaml:"idle_poll"`

	// Pooler says that connections go through a pooler in transaction mode.
	// Statements are then not prepared, and there are no notifications.
	Pooler bool `json:"pooler" yaml:"pooler"`

	// NoNotify leaves out notifications (LISTEN and NOTIFY): changes are polled.
	NoNotify bool `json:"no_notify" yaml:"no_notify"`

	// MaxConns is how many connections write, at most. Default (0)
	// DefaultMaxConns; 1 to 1000.
	MaxConns int `json:"max_conns" yaml:"max_conns"`

	// NoIncarnation is for a server that refuses pg_control_system or
	// pg_walfile_name, as some hosted ones do: then nothing tells a promotion that lost
	// grants from a restart, and the floor has to be raised by hand after each (rule
	// I2). Every process must set it alike.
	NoIncarnation bool `json:"no_incarnation" yaml:"no_incarnation"`

	// Insecure allows a connection to another host without TLS, or without checking
	// the name in the server's certificate. Default false: such a DSN is refused.
	Insecure bool `json:"insecure" yaml:"insecure"`

	// Password, if set, is asked for the password of each new connection, instead of
	// the DSN's: for passwords that change. It must be safe for concurrent
	// use.
	Password func(ctx context.Context) (string, error) `json:"-" yaml:"-"`

	certificate *driver.Certificate // by withDefaults
}

var identifier = regexp.MustCompile(`^[a-z_][a-z0-9_]{0,62}$`)

// withDefaults returns a copy with the defaults filled in, or what to change.
func (o *Options) withDefaults() (*Options, error) {
	c := Options{}
	if o != nil {
		c = *o
	}
	c.certificate = &driver.Certificate{}
	if c.PollPeriod == 0 {
		c.PollPeriod = DefaultPollPeriod
	}
	if c.IdlePollPeriod == 0 {
		c.IdlePollPeriod = max(DefaultIdlePollPeriod, c.PollPeriod)
		if c.Pooler || c.NoNotify {
			c.IdlePollPeriod = max(polledIdlePeriod, c.PollPeriod)
		}
	}
	if c.MaxConns == 0 {
		c.MaxConns = DefaultMaxConns
	}
	if c.TablePrefix == "" {
		c.TablePrefix = "tenure_"
	}
	if c.Schema == "" {
		c.Schema = DefaultSchema
	}
	if !identifier.MatchString(c.Schema) {
		return nil, fmt.Errorf("tenure: %w: schema %.80q: use lower-case letters, digits and \"_\", at most 63 bytes, a letter first", driver.ErrInvalid, c.Schema)
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

// tables begins the name of every table in a statement.
func (o *Options) tables() string { return `"` + o.Schema + `".` + o.TablePrefix }
