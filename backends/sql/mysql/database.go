package mysql

import (
	"context"
	"crypto/tls"
	stdsql "database/sql"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"regexp"
	"strconv"
	"strings"

	"github.com/go-sql-driver/mysql"

	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/goexit"
	"github.com/tenure-go/tenure/internal/sqlschema"
)

// smallestPacket is the smallest max_allowed_packet that the backend accepts. It leaves ample room
// beyond a write's keys and values (1 MiB).
const smallestPacket = 4 << 20

// If a DSN lacks "@" or "/", the driver mistakes part of the password for the network or the
// database name. Therefore, errors quote neither name.
var (
	database = regexp.MustCompile(`^[A-Za-z0-9_$-]{1,64}$`)
	network  = regexp.MustCompile(`^[A-Za-z0-9_+-]+$`)
)

// parse reads the DSN and adds the settings that the backend relies on. It refuses a DSN that would
// send credentials or leases in the clear.
func parse(dsn string, o *Options) (*mysql.Config, error) {
	cfg, err := mysql.ParseDSN(dsn)
	if err != nil || !network.MatchString(cfg.Net) {
		return nil, fmt.Errorf("tenure: %w: the DSN is not understood: write it as user:password@tcp(host:port)/database?tls=true", driver.ErrInvalid)
	}
	if !database.MatchString(cfg.DBName) {
		return nil, fmt.Errorf("tenure: %w: the DSN names no database of letters, digits, \"_\", \"$\" and \"-\": write it as user:password@tcp(host:port)/database?tls=true", driver.ErrInvalid)
	}
	if o.TLS != nil {
		cfg.TLS, cfg.TLSConfig = withName(o.TLS, cfg.Addr), ""
	}
	if !o.Insecure && !loopback(cfg) && (cfg.TLS == nil || cfg.AllowFallbackToPlaintext || cfg.TLS.InsecureSkipVerify && cfg.TLS.VerifyConnection == nil && cfg.TLS.VerifyPeerCertificate == nil) {
		return nil, fmt.Errorf("tenure: %w: the connection to %.80q would not be protected: set tls=true, Options.TLS, or Options.Insecure", driver.ErrInvalid, cfg.Addr)
	}
	cfg.ClientFoundRows = true // count rows matched, not rows changed (P1)
	cfg.Logger = &mysql.NopLogger{}
	cfg.InterpolateParams, cfg.MultiStatements, cfg.RejectReadOnly = false, false, false
	if o.Password != nil {
		err = cfg.Apply(mysql.BeforeConnect(func(ctx context.Context, c *mysql.Config) error {
			return goexit.Call(func() (err error) { c.Passwd, err = o.Password(ctx); return err })
		}))
	}
	return cfg, err
}

// withName returns a copy of the configuration that makes TLS check the server's name.
func withName(c *tls.Config, addr string) *tls.Config {
	c = c.Clone()
	if host, _, err := net.SplitHostPort(addr); err == nil && c.ServerName == "" {
		c.ServerName = host
	}
	return c
}

func loopback(cfg *mysql.Config) bool {
	if cfg.Net == "unix" {
		return true
	}
	host, _, err := net.SplitHostPort(cfg.Addr)
	if err != nil {
		return false
	}
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// tables returns the qualified prefix of all table names.
func tables(cfg *mysql.Config, o *Options) string { return "`" + cfg.DBName + "`." + o.TablePrefix }

// Migrate creates or updates the tables as the user specified in dsn. Migrate changes nothing if
// the tables are up to date, and refuses tables that are newer than this program. An interrupted
// Migrate can be repeated. After Migrate, grant permissions to the run-time user.
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

type server struct{ mariadb, certifies bool }

// Each connection first runs these statements, which override the server's defaults.
func (s server) settings() []string {
	list := []string{"SET SESSION sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION', sql_safe_updates = 0"}
	if s.certifies { // a node waits until it has the commits that another node acknowledged
		list = append(list, "SET SESSION wsrep_sync_wait = 7")
	}
	return list
}

// prepareDatabase checks that the server and the tables are usable, and migrates the tables if
// Options.Migrate is set.
func prepareDatabase(ctx context.Context, cfg *mysql.Config, o *Options) (on server, err error) {
	c := cfg.Clone()
	c.MultiStatements = true // migrations have many statements
	connector, err := mysql.NewConnector(c)
	if err != nil {
		return on, opening(err)
	}
	db := stdsql.OpenDB(connector)
	defer db.Close()
	conn, err := db.Conn(ctx)
	if err != nil {
		return on, opening(err)
	}
	defer conn.Close()
	if on, err = checkServer(ctx, conn); err != nil {
		return on, opening(err)
	}
	for _, text := range on.settings() {
		if _, err = conn.ExecContext(ctx, text); err != nil {
			return on, opening(err)
		}
	}
	sub, err := fs.Sub(files, "schema")
	if err != nil {
		return on, err
	}
	m := sqlschema.Migrations{Files: sub, Prefix: tables(cfg, o)}
	version, err := schemaVersion(ctx, conn, m)
	if err != nil {
		return on, opening(err)
	}
	if err := m.Check(version, o.Migrate); err != nil {
		if version == 0 && !o.Migrate {
			err = &driver.MissingError{
				What: fmt.Sprintf("there are no tables %s*", m.Prefix),
				Make: "run Migrate with the user who is to create them", Err: driver.ErrUnsupported,
			}
		}
		return on, err
	}
	if o.Migrate && on.certifies && m.Check(version, false) != nil {
		if err = opening(claimMigration(ctx, conn, m.Prefix, o.TablePrefix)); err != nil {
			return on, err
		}
		defer func() {
			_, ending := conn.ExecContext(ctx, "DROP TABLE IF EXISTS "+m.Prefix+"migration")
			err = errors.Join(err, ending)
		}()
	}
	if o.Migrate {
		err = opening(migrate(ctx, conn, m))
	}
	return on, err
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

func checkServer(ctx context.Context, conn *stdsql.Conn) (on server, err error) {
	var version, format string
	var readOnly, binlog bool
	var flush, sync, packet int
	err = conn.QueryRowContext(ctx, "SELECT version(), @@global.read_only, @@global.innodb_flush_log_at_trx_commit, @@global.log_bin, @@global.sync_binlog, @@global.binlog_format, @@max_allowed_packet").
		Scan(&version, &readOnly, &flush, &binlog, &sync, &format, &packet)
	if err == nil {
		on.certifies, err = certifies(ctx, conn)
	}
	if err != nil {
		return on, err
	}
	refuse := func(format string, args ...any) (server, error) {
		return on, fmt.Errorf("tenure: %w: %s", driver.ErrUnsupported, fmt.Sprintf(format, args...))
	}
	on.mariadb = strings.Contains(version, "MariaDB")
	major, minor := parseVersion(version)
	switch {
	case on.mariadb && (major < 10 || major == 10 && minor < 6):
		return refuse("the server has version %s: use MariaDB 10.6 or later", version)
	case !on.mariadb && major < 8:
		return refuse("the server has version %s: use MySQL 8 or later", version)
	case on.certifies && !on.mariadb:
		return refuse("the server is a node of Galera, and is not MariaDB: use MariaDB, or a server without Galera")
	case readOnly:
		return refuse("the server is read-only: connect to the primary")
	case flush == 0:
		return refuse("innodb_flush_log_at_trx_commit is 0, so that a crash could lose acknowledged grants: set it to 1")
	case binlog && sync != 1: // recovery removes commits that the binary log lacks
		return refuse("sync_binlog is %d, so that a crash of the machine could lose acknowledged grants: set it to 1", sync)
	case binlog && format == "STATEMENT":
		return refuse("binlog_format is STATEMENT, which does not allow READ COMMITTED: set it to ROW or MIXED")
	case packet < smallestPacket:
		return refuse("max_allowed_packet is %d: set it to %d or more", packet, smallestPacket)
	}
	return on, nil
}

// certifies reports whether the server is a Galera node. At commit, Galera certifies the rows that
// a transaction changed. A lock on one node has no effect on another.
func certifies(ctx context.Context, conn *stdsql.Conn) (bool, error) {
	rows, err := conn.QueryContext(ctx,
		"SHOW GLOBAL VARIABLES WHERE Variable_name IN ('wsrep_on', 'wsrep_provider', 'group_replication_single_primary_mode')")
	if err != nil {
		return false, err
	}
	defer rows.Close()
	is := map[string]string{}
	for rows.Next() {
		var name, value string
		if err := rows.Scan(&name, &value); err != nil {
			return false, err
		}
		is[name] = value
	}
	if is["group_replication_single_primary_mode"] == "OFF" {
		return false, fmt.Errorf("tenure: %w: group replication has several primaries, where a lock of one is nothing to another: "+
			"set group_replication_single_primary_mode", driver.ErrUnsupported)
	}
	return is["wsrep_on"] == "ON" && is["wsrep_provider"] != "none" && is["wsrep_provider"] != "", rows.Err()
}

// parseVersion reads "10.11.6-MariaDB". Old replicas prepend "5.5.5-".
func parseVersion(s string) (major, minor int) {
	parts := strings.SplitN(strings.TrimPrefix(s, "5.5.5-"), ".", 3)
	if len(parts) < 2 {
		return 0, 0
	}
	major, err := strconv.Atoi(parts[0])
	if err != nil {
		return 0, 0
	}
	minor, err = strconv.Atoi(parts[1])
	if err != nil {
		return 0, 0
	}
	return major, minor
}

func schemaVersion(ctx context.Context, on sqlschema.Execer, m sqlschema.Migrations) (int, error) {
	version, err := m.Version(ctx, on)
	if number(err) == errNoTable || errors.Is(err, stdsql.ErrNoRows) {
		return 0, nil
	}
	return version, err
}

// claimMigration ensures that only one process in a cluster migrates. It uses a table, because the
// lock in migrate covers only one node. If two MariaDB nodes create a view concurrently, one of
// them hangs. A claim older than a minute belongs to a dead process.
func claimMigration(ctx context.Context, conn *stdsql.Conn, prefix, tables string) error {
	for {
		_, err := conn.ExecContext(ctx, "CREATE TABLE "+prefix+"migration (id INT PRIMARY KEY) ENGINE = InnoDB")
		if number(err) != errTableExists {
			return err
		}
		var left bool
		err = conn.QueryRowContext(ctx, "SELECT COALESCE(MAX(create_time) < NOW() - INTERVAL 1 MINUTE, FALSE) "+
			"FROM information_schema.tables WHERE table_schema = database() AND table_name = ?", tables+"migration").Scan(&left)
		if err == nil && left {
			_, err = conn.ExecContext(ctx, "DROP TABLE IF EXISTS "+prefix+"migration")
		} else if err == nil {
			_, err = conn.ExecContext(ctx, "DO SLEEP(0.1)")
		}
		if err != nil {
			return err
		}
	}
}

// migrate rereads the version under a lock, because another process may have just migrated. The
// lock ends with the connection.
func migrate(ctx context.Context, conn *stdsql.Conn, m sqlschema.Migrations) error {
	const lock = "tenure migration"
	for {
		var got stdsql.NullBool
		if err := conn.QueryRowContext(ctx, "SELECT GET_LOCK(?, 1)", lock).Scan(&got); err != nil {
			return err
		}
		if got.Bool {
			break
		}
	}
	version, err := schemaVersion(ctx, conn, m)
	if err != nil {
		return err
	}
	if err := m.Check(version, true); err != nil {
		return err
	}
	return m.Migrate(ctx, conn, version)
}
