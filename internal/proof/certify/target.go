package certify

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"

	mysqldriver "github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/tenure-go/tenure/backends/sql/sqlite"
	"github.com/tenure-go/tenure/core/driver"
)

// target is a store on which the suite runs.
type target struct {
	where   string                                                                      // where the store is, without secrets
	secrets []string                                                                    // further secrets, which no output may contain
	remove  func(ctx context.Context, root string, namespaces []string) (string, error) // describes the removed records
	left    string                                                                      // describes the remaining records
	version func(ctx context.Context) (string, error)                                   // returns the store's version

	// These are the servers that the members can reach through a proxy, and the settings for the
	// proxy's addresses. If there are no such servers, uncut contains the reason.
	addrs   []string
	through func(addrs []string) settings
	uncut   string
}

// newTarget returns what this package needs to know about a backend, apart from its opener. Errors
// contain no part of a data source name.
func newTarget(backend string, s settings) (*target, error) {
	find, ok := map[string]func(settings) (*target, error){
		"sqlite": onSQLite, "postgres": onPostgres, "mysql": onMySQL,
		"etcd": onEtcd, "consul": onConsul, "zookeeper": onZooKeeper, "redis": onRedis,
	}[backend]
	if !ok {
		find = onOther
	}
	t, err := find(s)
	if err != nil {
		return nil, fmt.Errorf("tenure: %w: %s: %w", driver.ErrInvalid, backend, err)
	}
	return t, nil
}

// Remove removes a namespace's records, and describes them. Remove needs the settings for the
// backend's opener. On etcd, Consul and Redis, Remove deletes all records in one step. On SQL
// stores and ZooKeeper, a transaction for a large namespace would take too long. There, Remove
// first deletes or overwrites a record that members need to open the namespace. It last deletes the
// record that prevents members from creating the namespace. If Remove fails earlier, another call
// removes the rest.
func Remove(ctx context.Context, backend string, of any, namespace string) (what string, err error) {
	t, err := newTarget(backend, settingsOf(of))
	if err == nil {
		what, err = t.remove(ctx, namespace, []string{namespace})
	}
	return what, err
}

// onOther returns the target for an unknown backend.
func onOther(settings) (*target, error) {
	return &target{
		where: "as its settings say",
		remove: func(context.Context, string, []string) (string, error) {
			return "nothing", errors.New("certify cannot remove records of this backend")
		},
		version: func(context.Context) (string, error) { return "", errors.New("certify cannot ask this backend") },
		uncut:   "certify does not know the addresses of this backend",
	}, nil
}

func onSQLite(s settings) (*target, error) {
	path := s.text("path", "")
	return &target{
		where: path,
		uncut: "SQLite has no connections, and a lock on its files would hold up all that use them",
		version: func(ctx context.Context) (string, error) {
			db, err := sqlite.OpenDB(path)
			if err != nil {
				return "", err
			}
			defer db.Close()
			return asked(ctx, db, "SQLite", "SELECT sqlite_version()")
		},
		remove: func(ctx context.Context, root string, namespaces []string) (string, error) {
			prefix := s.text("table_prefix", "tenure_")
			data, err := sqlite.OpenDB(path)
			if err != nil {
				return "", err
			}
			defer data.Close()
			members, err := sqlite.OpenDB(path + "-members")
			if err != nil {
				return "", err
			}
			defer members.Close()
			more, err2 := deleteRows(ctx, members, prefix, memberTables(), "?1", root, namespaces)
			if err2 != nil && root == namespaces[0] {
				return removed(more, namespaces), err2
			}
			rows, err := deleteRows(ctx, data, prefix, dataTables(), "?1", root, namespaces)
			return removed(rows+more, namespaces), errors.Join(err, err2)
		},
		left: "the two files and their tables",
	}, nil
}

func onPostgres(s settings) (*target, error) {
	dsn := s.text("dsn", "")
	cfg, err := pgx.ParseConfig(dsn)
	if err != nil {
		return nil, errors.New("the DSN is not understood: write it as postgres://user:password@host:port/database")
	}
	db := func() *sql.DB {
		with := cfg.Copy()
		if p := s.passwordIn(); p != "" {
			with.Password = p
		}
		return stdlib.OpenDB(*with)
	}
	t := &target{
		where:   fmt.Sprintf("%s on %s:%d as %s", cfg.Database, cfg.Host, cfg.Port, cfg.User),
		secrets: []string{cfg.Password},
		version: func(ctx context.Context) (string, error) {
			db := db()
			defer db.Close()
			return asked(ctx, db, "PostgreSQL", "SHOW server_version")
		},
		remove: func(ctx context.Context, root string, namespaces []string) (string, error) {
			db := db()
			defer db.Close()
			prefix := `"` + s.text("schema", "public") + `".` + s.text("table_prefix", "tenure_")
			rows, err := deleteRows(ctx, db, prefix, slices.Concat(memberTables(), dataTables()), "$1", root, namespaces)
			return removed(rows, namespaces), err
		},
		left: "the tables",
	}
	throughPostgres(t, s, cfg)
	return t, nil
}

// throughPostgres sets how the members reach the server through a proxy.
func throughPostgres(t *target, s settings, cfg *pgx.ConnConfig) {
	dsn := s.text("dsn", "")
	parsed, err := url.Parse(dsn)
	isURL := strings.HasPrefix(dsn, "postgres://") || strings.HasPrefix(dsn, "postgresql://")
	others := slices.ContainsFunc(cfg.Fallbacks, func(f *pgconn.FallbackConfig) bool { return f.Host != cfg.Host || f.Port != cfg.Port })
	switch {
	case strings.HasPrefix(cfg.Host, "/"):
		t.uncut = "the connection is a Unix socket"
	case others:
		t.uncut = "the data source name has several hosts"
	case cfg.TLSConfig != nil:
		t.uncut = overTLS
	case isURL && (err != nil || parsed.Query().Has("host") || parsed.Query().Has("port")):
		t.uncut = "the data source name has its host among its parameters"
	default:
		t.addrs = []string{net.JoinHostPort(cfg.Host, strconv.Itoa(int(cfg.Port)))}
		t.through = func(addrs []string) settings {
			to := maps.Clone(s)
			if host, port, _ := net.SplitHostPort(addrs[0]); !isURL {
				to["dsn"] = fmt.Sprintf("%s host=%s port=%s", dsn, host, port)
				return to
			}
			at := *parsed
			at.Host = addrs[0]
			to["dsn"] = at.String()
			return to
		}
	}
}

const overTLS = "the connection may use TLS, and a proxy has another name than the server"

// The result is the version that the server reports in answer to a query.
func asked(ctx context.Context, db *sql.DB, name, query string) (string, error) {
	var version string
	err := db.QueryRowContext(ctx, query).Scan(&version)
	return name + " " + version, err
}

func onMySQL(s settings) (*target, error) {
	cfg, err := mysqldriver.ParseDSN(s.text("dsn", ""))
	if err != nil {
		return nil, errors.New("the DSN is not understood: write it as user:password@tcp(host:port)/database")
	}
	db := func() (*sql.DB, error) {
		with := cfg.Clone()
		if p := s.passwordIn(); p != "" {
			with.Passwd = p
		}
		connector, err := mysqldriver.NewConnector(with)
		if err != nil {
			return nil, err
		}
		return sql.OpenDB(connector), nil
	}
	t := &target{
		where:   fmt.Sprintf("%s on %s as %s", cfg.DBName, cfg.Addr, cfg.User),
		secrets: []string{cfg.Passwd},
		version: func(ctx context.Context) (string, error) {
			db, err := db()
			if err != nil {
				return "", err
			}
			defer db.Close()
			return asked(ctx, db, "MariaDB or MySQL", "SELECT VERSION()")
		},
		remove: func(ctx context.Context, root string, namespaces []string) (string, error) {
			db, err := db()
			if err != nil {
				return "", err
			}
			defer db.Close()
			rows, err := deleteRows(ctx, db, s.text("table_prefix", "tenure_"),
				slices.Concat(memberTables(), dataTables()), "?", root, namespaces)
			return removed(rows, namespaces), err
		},
		left: "the tables",
	}
	switch {
	case cfg.Net != "tcp":
		t.uncut = "the connection is no TCP connection"
	case cfg.TLSConfig != "" && cfg.TLSConfig != "false":
		t.uncut = overTLS
	default:
		t.addrs = []string{cfg.Addr}
		t.through = func(addrs []string) settings {
			to, at := maps.Clone(s), cfg.Clone()
			at.Addr = addrs[0]
			to["dsn"] = at.FormatDSN()
			return to
		}
	}
	return t, nil
}

func dataTables() []string {
	return []string{"logs", "items", "tails", "shards", "namespaces"} // last, because it keeps members from creating a roster
}

func memberTables() []string {
	return []string{"rosters", "beats", "departures", "members", "nodes"} // first, because opening needs it
}

// deleteRows deletes only this namespace's rows in each table from which the user may delete. The
// tables' keys begin with the namespace. An error for the namespace root ends the deletion. The
// prefix is valid, because the backend has opened the namespace with this prefix.
func deleteRows(
	ctx context.Context, db *sql.DB, prefix string, tables []string, placeholder, root string, namespaces []string,
) (int64, error) {
	sum := int64(0)
	var errs []error
	for _, table := range tables {
		for _, ns := range namespaces {
			result, err := db.ExecContext(ctx, "DELETE FROM "+prefix+table+" WHERE namespace = "+placeholder, ns)
			if err != nil {
				errs = append(errs, fmt.Errorf("table %s: %w", table, err))
				if ns == root {
					return sum, errors.Join(errs...)
				}
				break
			}
			rows, err := result.RowsAffected()
			if err != nil {
				return sum, err
			}
			sum += rows
		}
	}
	return sum, errors.Join(errs...)
}

func removed(rows int64, namespaces []string) string {
	return fmt.Sprintf("%d rows of %d namespaces", rows, len(namespaces))
}
