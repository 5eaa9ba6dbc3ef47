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
	// defaultPollPeriod is the time between two looks of a blocked Observe or TailLog for
	// changes without a notification, while something is under way.
	defaultPollPeriod = 50 * time.Millisecond
	// defaultIdlePollPeriod is the longest such time while notifications arrive.
	defaultIdlePollPeriod = 4 * time.Second
	// polledIdlePeriod is the same without notifications.
	polledIdlePeriod = 500 * time.Millisecond
	// defaultMaxConns limits the connections that write.
	defaultMaxConns = 4
	// defaultSchema is the schema that holds the tables.
	defaultSchema = "public"
)

// Options configure Open and Migrate. The zero value and nil are valid.
type Options struct {
	// Schema is the schema that holds the tables. Default ("") "public". It consists of
	// lower-case letters, digits and "_". Migrate creates it if it is missing.
	Schema string `json:"schema" yaml:"schema"`

	// TablePrefix begins the name of every table. Default ("") "tenure_". It consists of
	// lower-case letters, digits and "_", at most 32 bytes.
	TablePrefix string `json:"table_prefix" yaml:"table_prefix"`

	// Create writes the namespace's identity if it has none. Without it, a missing identity is
	// an error, because it may mean a wiped store (rule I1).
	Create bool `json:"create" yaml:"create"`

	// Migrate brings the tables up to date when opening, instead of a
	// separate step run by another role. It needs the right to create tables.
	Migrate bool `json:"migrate" yaml:"migrate"`

	// NewRoster asserts that no member of this namespace is running. Then Tenure
	// accepts a missing roster beside existing data.
	NewRoster bool `json:"new_roster" yaml:"new_roster"`

	// PollPeriod limits how late another process's change may be reported if no notification
	// comes, while something is under way. Something is under way for 20 times PollPeriod after
	// this process sees a change, or makes a claim, a hand-over, a join or an eviction. The
	// same is true while a member has been silent for half its TTL. Default (0) 50 ms; 1 ms to
	// 10 s.
	PollPeriod time.Duration `json:"poll" yaml:"poll"`

	// IdlePollPeriod limits how late a change may be reported if its notification was lost. Two
	// fifths of the members' shortest TTL is a further limit. Within the same time, a
	// connection that no longer hears notifications is noticed, and changes are then polled.
	// While they are polled, it limits how late the first change after a quiet time may be
	// reported. The time between two looks is then a twentieth of the time since the last
	// change. It is at most this period, and at most a twentieth of the shortest TTL. Default
	// (0) 4 s, and 500 ms with Pooler or NoNotify; PollPeriod to 1 minute.
	IdlePollPeriod time.Duration `json:"idle_poll" yaml:"idle_poll"`

	// Pooler is for connections through a pooler in transaction mode. Statements are
	// then not prepared, and there are no notifications.
	Pooler bool `json:"pooler" yaml:"pooler"`

	// NoNotify turns off notifications (LISTEN and NOTIFY), so that changes are polled.
	NoNotify bool `json:"no_notify" yaml:"no_notify"`

	// MaxConns limits the connections that write. Default (0) 4; 1 to 1000.
	MaxConns int `json:"max_conns" yaml:"max_conns"`

	// NoIncarnation is for a server that refuses pg_control_system or pg_walfile_name, as some
	// hosted servers do. A promotion that lost grants then looks like a restart, and the floor
	// must be raised by hand after each promotion (rule I2). All processes must use the same
	// value.
	NoIncarnation bool `json:"no_incarnation" yaml:"no_incarnation"`

	// Insecure allows a connection to another host without TLS, or without checking
	// the name in the server's certificate. Default false: such a DSN is refused.
	Insecure bool `json:"insecure" yaml:"insecure"`

	// Password, if set, returns the password of each new connection, instead of the
	// DSN's. Use it for passwords that change. It must be safe for concurrent use.
	Password func(ctx context.Context) (string, error) `json:"-" yaml:"-"`

	certificate *driver.Certificate // set by withDefaults
}

var identifier = regexp.MustCompile(`^[a-z_][a-z0-9_]{0,62}$`)

// withDefaults returns a copy with the defaults filled in, or an error.
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

// tables returns the beginning of every table's name in a statement.
func (o *Options) tables() string { return `"` + o.Schema + `".` + o.TablePrefix }
