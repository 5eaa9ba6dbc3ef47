package postgres

import (
	"context"
	"crypto/tls"
	stdsql "database/sql"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/goexit"
	"github.com/tenure-go/tenure/internal/sqlschema"
)

// oldestVersion is the server_version_num of the oldest supported server.
const oldestVersion = 130000

// migrationLock keeps two processes from migrating at the same time.
const migrationLock = 0x74656e757265 // "tenure"

// parse reads the DSN, and refuses one that would send credentials or leases in the clear.
func parse(dsn string, o *Options) (*pgxpool.Config, error) {
	if err := checkEscapes(dsn); err != nil {
		return nil, err
	}
	cfg, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return nil, fmt.Errorf("tenure: %w: the DSN is not understood: write it as postgres://user:password@host:port/database", driver.ErrInvalid)
	}
	c := cfg.ConnConfig
	if !o.Insecure {
		if err := checkTransport(c); err != nil {
			return nil, err
		}
	}
	var several *hosts
	if severalHosts(c) {
		several = &hosts{patient: c.ConnectTimeout != 0}
	}
	o.certificate.Note(c.TLSConfig)
	cfg.BeforeConnect = func(ctx context.Context, c *pgx.ConnConfig) (err error) {
		if c.TLSConfig != nil { // its files may have been replaced; fallback: the previous files
			if now, err := pgconn.ParseConfig(dsn); err == nil {
				c.TLSConfig, c.Fallbacks = now.TLSConfig, now.Fallbacks
				o.certificate.Note(c.TLSConfig)
			}
		}
		if several != nil {
			several.connecting(c)
		}
		if o.Password != nil {
			err = goexit.Call(func() (err error) { c.Password, err = o.Password(ctx); return err })
		}
		return err
	}
	c.OnNotice = noticed
	c.RuntimeParams["client_encoding"], c.RuntimeParams["standard_conforming_strings"] = "UTF8", "on" // needed by the simple protocol
	if c.RuntimeParams["application_name"] == "" {
		c.RuntimeParams["application_name"] = "tenure"
	}
	if o.Pooler {
		if c.DefaultQueryExecMode == pgx.QueryExecModeCacheStatement {
			c.DefaultQueryExecMode = pgx.QueryExecModeExec
		}
	} else {
		maps.Copy(c.RuntimeParams, lockLimits)
		c.RuntimeParams["row_security"] = "off"            // makes a policy that hides rows an error
		c.RuntimeParams["client_min_messages"] = "warning" // noticed needs warnings
	}
	return cfg, nil
}

// severalHosts reports whether the DSN lists more than one host. A DSN may list the same host
// twice, with and without TLS.
func severalHosts(c *pgx.ConnConfig) bool {
	return slices.ContainsFunc(c.Fallbacks, func(f *pgconn.FallbackConfig) bool { return f.Host != c.Host || f.Port != c.Port })
}

// checkEscapes refuses a URL whose user or password has an unescaped "@" or "/". The driver would
// mistake the text after that character for the host or the database, and errors would show it.
func checkEscapes(dsn string) error {
	scheme, rest, isURL := strings.Cut(dsn, "://")
	if !isURL || scheme != "postgres" && scheme != "postgresql" {
		return nil
	}
	user, rest, _ := strings.Cut(rest, "@")
	if strings.Contains(rest, "@") || rest != "" && strings.Contains(user, "/") {
		return fmt.Errorf("tenure: %w: the DSN has \"@\" where it separates nothing: write %%40 for \"@\" and %%2F for \"/\" in user, password and parameters",
			driver.ErrInvalid)
	}
	return nil
}

// The lockLimits make the server end the transaction of a suspended or unreachable process, which
// frees its locks. This takes at most 4 s, even in the middle of a batch, when the session is not
// idle.
var lockLimits = map[string]string{
	"idle_in_transaction_session_timeout": strconv.FormatInt(idleLimit.Milliseconds(), 10),
	"tcp_keepalives_idle":                 "1",
	"tcp_keepalives_interval":             "1",
	"tcp_keepalives_count":                "3",
	"tcp_user_timeout":                    "4000",
}

// checkTransport refuses a connection to another host unless TLS proves the host's name.
func checkTransport(c *pgx.ConnConfig) error {
	hosts := []struct {
		host string
		ok   bool
	}{{c.Host, provesName(c.TLSConfig)}}
	for _, f := range c.Fallbacks {
		hosts = append(hosts, struct {
			host string
			ok   bool
		}{f.Host, provesName(f.TLSConfig)})
	}
	for _, h := range hosts {
		if !h.ok && !loopback(h.host) {
			return fmt.Errorf("tenure: %w: the connection to %.80q would not be protected: set sslmode=verify-full (and sslrootcert), or Options.Insecure", driver.ErrInvalid, h.host)
		}
	}
	return nil
}

// provesName reports whether only a server with the requested name is accepted. With
// sslmode=verify-ca, InsecureSkipVerify is set, and every server with a certificate from the CA is
// accepted.
func provesName(c *tls.Config) bool { return c != nil && !c.InsecureSkipVerify }

func loopback(host string) bool {
	if strings.HasPrefix(host, "/") || host == "localhost" {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}

// Migrate creates or updates the tables as the role specified in dsn, which then owns the tables.
// Migrate changes nothing if the tables are up to date, and refuses tables that are newer than this
// program. After Migrate, grant permissions to the run-time role.
func Migrate(ctx context.Context, dsn string, o *Options) error {
	opts, err := o.withDefaults()
	if err != nil {
		return err
	}
	cfg, err := parse(dsn, opts)
	if err != nil {
		return err
	}
	with := *opts
	with.Migrate = true
	_, err = prepareDatabase(ctx, cfg, &with)
	return err
}

// prepareDatabase checks that the server and the tables are usable, and migrates the tables if
// Options.Migrate is set. It returns the server's server_version_num.
func prepareDatabase(ctx context.Context, cfg *pgxpool.Config, o *Options) (server int, err error) {
	c := cfg.ConnConfig.Copy()
	c.DefaultQueryExecMode = pgx.QueryExecModeSimpleProtocol // migrations have many statements
	db := stdlib.OpenDB(*c, stdlib.OptionBeforeConnect(cfg.BeforeConnect))
	defer db.Close()
	db.SetMaxOpenConns(1)
	server, err = checkServer(ctx, db)
	for tries := 1; tries < patiences && severalHosts(c) && c.ConnectTimeout == 0 && tooSlow(err) && ctx.Err() == nil; tries++ {
		server, err = checkServer(ctx, db)
	}
	if err == nil && !o.Pooler {
		err = checkDirect(ctx, db)
	}
	if err != nil {
		return 0, opening(err)
	}
	if !o.NoIncarnation {
		if err := checkIncarnation(ctx, db); err != nil {
			return 0, opening(err)
		}
	}
	sub, err := fs.Sub(files, "schema")
	if err != nil {
		return 0, err
	}
	m := sqlschema.Migrations{Files: sub, Prefix: o.tables()}
	version, err := schemaVersion(ctx, db, m)
	if err != nil {
		return 0, opening(err)
	}
	if err := m.Check(version, o.Migrate); err != nil {
		if version == 0 && !o.Migrate {
			err = &driver.MissingError{
				What: fmt.Sprintf("there are no tables %s*", m.Prefix),
				Make: "run Migrate with the role that is to own them", Err: driver.ErrUnsupported,
			}
		}
		return 0, err
	}
	if o.Migrate {
		err = opening(migrate(ctx, db, m, o.Schema))
	}
	if err == nil {
		err = checkPolicies(ctx, db, m.Prefix)
	}
	return server, err
}

func opening(err error) error {
	if err == nil || driver.NotApplied(err) {
		return err
	}
	if text := explain(err); text != "" {
		return fmt.Errorf("tenure: opening the database: %s: %w", text, err)
	}
	return fmt.Errorf("tenure: opening the database: %w", err)
}

func checkServer(ctx context.Context, db *stdsql.DB) (version int, err error) {
	var standby bool
	var readOnly, synchronous, encoding, messages string
	err = db.QueryRowContext(ctx, `SELECT current_setting('server_version_num')::integer, pg_is_in_recovery(),
  current_setting('default_transaction_read_only'), current_setting('synchronous_commit'), current_setting('server_encoding'),
  current_setting('client_min_messages')`).
		Scan(&version, &standby, &readOnly, &synchronous, &encoding, &messages)
	refuse := func(format string, args ...any) (int, error) {
		return 0, fmt.Errorf("tenure: %w: %s", driver.ErrUnsupported, fmt.Sprintf(format, args...))
	}
	switch {
	case err != nil:
		return 0, err
	case version < oldestVersion:
		return refuse("the server has version %d: use PostgreSQL %d or later", version/10000, oldestVersion/10000)
	case standby:
		return refuse("the server is a standby: connect to the primary (target_session_attrs=read-write)")
	case readOnly == "on":
		return refuse("default_transaction_read_only is on: connect to a server, as a role, that may write")
	case synchronous == "off":
		return refuse("synchronous_commit is off, so that a crash could lose acknowledged grants: ALTER ROLE ... SET synchronous_commit = on")
	case messages == "error":
		return refuse("client_min_messages is error, which hides that a commit was not replicated: ALTER ROLE ... SET client_min_messages = warning")
	case encoding != "UTF8" && encoding != "SQL_ASCII":
		return refuse("the database has encoding %s: create it with UTF8", encoding)
	}
	return version, nil
}

// checkDirect refuses a pooler that drops a connection's settings.
func checkDirect(ctx context.Context, db *stdsql.DB) error {
	const name = "idle_in_transaction_session_timeout"
	var limit string
	err := db.QueryRowContext(ctx, "SELECT setting FROM pg_settings WHERE name = '"+name+"'").Scan(&limit)
	if err == nil && limit != lockLimits[name] {
		err = fmt.Errorf("tenure: %w: the connection does not have its setting %s, as behind a pooler: set Options.Pooler (pooler)",
			driver.ErrUnsupported, name)
	}
	return err
}

// checkIncarnation refuses a server that does not report its history (I2).
func checkIncarnation(ctx context.Context, db *stdsql.DB) error {
	err := db.QueryRowContext(ctx, "SELECT "+incarnation).Scan(new(string))
	var e *pgconn.PgError
	if errors.As(err, &e) {
		return fmt.Errorf("tenure: %w: the server does not say its system identifier and timeline: grant the role EXECUTE on pg_control_system and pg_walfile_name, or read about NoIncarnation: %w", driver.ErrUnsupported, err)
	}
	return err
}

// policies is SQL that lists the tables in which row-level security may hide rows from the role.
// The parameter $1 is the prefix of the table names.
const policies = `array_to_string(ARRAY(SELECT name FROM unnest(ARRAY['schema', 'namespaces', 'shards', 'items', 'logs', 'tails', 'probes',
  'rosters', 'nodes', 'members', 'beats', 'departures']) AS name WHERE row_security_active(to_regclass($1 || name)::oid)), ', ')`

const policyRemedy = "row level security hides rows from this role, and what is hidden looks like what never was: " +
	"ALTER TABLE ... DISABLE ROW LEVEL SECURITY"

func checkPolicies(ctx context.Context, db *stdsql.DB, prefix string) error {
	var tables string
	err := db.QueryRowContext(ctx, "SELECT "+policies, prefix).Scan(&tables)
	if err == nil && tables != "" {
		return fmt.Errorf("tenure: %w: tables %s%s: %s", driver.ErrUnsupported, prefix, tables, policyRemedy)
	}
	return opening(err)
}

func schemaVersion(ctx context.Context, on sqlschema.Execer, m sqlschema.Migrations) (int, error) {
	var found bool
	err := on.QueryRowContext(ctx, "SELECT to_regclass('"+m.Prefix+"schema') IS NOT NULL").Scan(&found)
	if err != nil || !found {
		return 0, err
	}
	return m.Version(ctx, on)
}

// migrate rereads the version under a lock, because another process may have just migrated.
func migrate(ctx context.Context, db *stdsql.DB, m sqlschema.Migrations, schema string) (err error) {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, tx.Rollback())
		}
	}()
	if _, err := tx.ExecContext(ctx, "SELECT pg_advisory_xact_lock($1)", migrationLock); err != nil {
		return err
	}
	var exists bool
	if err := tx.QueryRowContext(ctx, "SELECT to_regnamespace($1) IS NOT NULL", `"`+schema+`"`).Scan(&exists); err != nil {
		return err
	}
	if !exists {
		if _, err := tx.ExecContext(ctx, `CREATE SCHEMA "`+schema+`"`); err != nil {
			return err
		}
	}
	version, err := schemaVersion(ctx, tx, m)
	if err != nil {
		return err
	}
	if err := m.Check(version, true); err != nil {
		return err
	}
	if err := m.Migrate(ctx, tx, version); err != nil {
		return err
	}
	return tx.Commit()
}
