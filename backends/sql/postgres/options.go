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
	// defaultPollPeriod is the time between polls while the namespace is active.
	defaultPollPeriod = 50 * time.Millisecond
	// defaultIdlePollPeriod is the longest time between polls while notifications arrive.
	defaultIdlePollPeriod = 4 * time.Second
	// polledIdlePeriod is the longest time between polls without notifications.
	polledIdlePeriod = 500 * time.Millisecond
	// defaultMaxConns limits the number of connections for writes.
	defaultMaxConns = 4
	// defaultSchema is the schema that contains the tables.
	defaultSchema = "public"
)

// Options configure Open and Migrate. The zero value and nil are valid.
type Options struct {
	// Schema is the schema that contains the tables. Default ("") "public". A schema name consists
	// of lower-case letters, digits and "_". Migrate creates it if it is missing.
	Schema string `json:"schema" yaml:"schema"`

	// TablePrefix is the prefix of every table's name. Default ("") "tenure_". A prefix consists of
	// at most 32 lower-case letters, digits and "_".
	TablePrefix string `json:"table_prefix" yaml:"table_prefix"`

	// Create lets Open write the namespace's identity if it does not exist. Without Create, a missing
	// identity is an error, because the store may have been wiped (rule I1).
	Create bool `json:"create" yaml:"create"`

	// Migrate lets Open update the tables, so that no separate step by another role is necessary.
	// Migrate requires permission to create tables.
	Migrate bool `json:"migrate" yaml:"migrate"`

	// NewRoster asserts that no member of this namespace is running. With NewRoster, Tenure accepts
	// that the roster is missing while data exists.
	NewRoster bool `json:"new_roster" yaml:"new_roster"`

	// PollPeriod limits how late another process's change may be reported if no notification
	// arrives, while the namespace is active. A namespace is active for 20 times PollPeriod after
	// this process sees a change, or makes a claim, a hand-over, a join or an eviction. It is also
	// active while a member has been silent for half its TTL. Default (0) 50 ms; 1 ms to 10 s.
	PollPeriod time.Duration `json:"poll" yaml:"poll"`

	// IdlePollPeriod limits how late a change may be reported if its notification was lost. Another
	// limit is two fifths of the members' shortest TTL. If a connection no longer receives
	// notifications, Tenure notices within the same time, and then polls for changes. While it
	// polls, IdlePollPeriod limits how late the first change after a quiet time may be reported.
	// The time between two polls is a twentieth of the time since the last change. This time never
	// exceeds IdlePollPeriod or a twentieth of the shortest TTL. Default (0) 4 s, and 500 ms with
	// Pooler or NoNotify; PollPeriod to 1 minute.
	IdlePollPeriod time.Duration `json:"idle_poll" yaml:"idle_poll"`

	// Pooler allows connections through a pooler in transaction mode. The backend then prepares no
	// statements and uses no notifications.
	Pooler bool `json:"pooler" yaml:"pooler"`

	// NoNotify turns off notifications (LISTEN and NOTIFY), so the backend polls for changes.
	NoNotify bool `json:"no_notify" yaml:"no_notify"`

	// MaxConns limits the connections that write. Default (0) 4; 1 to 1000.
	MaxConns int `json:"max_conns" yaml:"max_conns"`

	// NoIncarnation supports a server that refuses pg_control_system or pg_walfile_name, as some
	// hosted servers do. A promotion that lost grants then looks like a restart, so you must raise
	// the floor after each promotion (rule I2). All processes must use the same value.
	NoIncarnation bool `json:"no_incarnation" yaml:"no_incarnation"`

	// Insecure allows connections to other hosts without TLS, or without checks of the name in the
	// server's certificate. Default false: Open refuses such a DSN.
	Insecure bool `json:"insecure" yaml:"insecure"`

	// Password, if set, returns the password for each new connection, and replaces the DSN's
	// password. Use it for passwords that change. The function must be safe for concurrent use.
	Password func(ctx context.Context) (string, error) `json:"-" yaml:"-"`

	certificate *driver.Certificate // set by withDefaults
}

var identifier = regexp.MustCompile(`^[a-z_][a-z0-9_]{0,62}$`)

// withDefaults validates the options and returns a copy with the defaults filled in.
func (o *Options) withDefaults() (*Options, error) {
	c := Options{}
	if o != nil {
		c = *o
	}
	c.certificate = &driver.Certificate{}
	if c.PollPeriod == 0 {
		c.PollPeriod = defaultPollPeriod
	}
	if c.IdlePollPeriod == 0 {
		c.IdlePollPeriod = max(defaultIdlePollPeriod, c.PollPeriod)
		if c.Pooler || c.NoNotify {
			c.IdlePollPeriod = max(polledIdlePeriod, c.PollPeriod)
		}
	}
	if c.MaxConns == 0 {
		c.MaxConns = defaultMaxConns
	}
	if c.TablePrefix == "" {
		c.TablePrefix = "tenure_"
	}
	if c.Schema == "" {
		c.Schema = defaultSchema
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

// tables returns the qualified prefix of all table names.
func (o *Options) tables() string { return `"` + o.Schema + `".` + o.TablePrefix }
