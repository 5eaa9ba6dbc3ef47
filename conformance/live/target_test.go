package live_test

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	mysqldriver "github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/tenure-go/tenure/backends/memory"
	"github.com/tenure-go/tenure/backends/sql/mysql"
	"github.com/tenure-go/tenure/backends/sql/postgres"
	"github.com/tenure-go/tenure/backends/sql/sqlite"
	"github.com/tenure-go/tenure/core/driver"
)

// target is a store to run the suite on.
type target struct {
	backend string
	where   string   // it is, without secrets
	secrets []string // that no output may have
	open    func(ctx context.Context, namespace string, create bool) (driver.Backend, error)
	remove  func(ctx context.Context, namespaces []string) (string, error) // describes the removed records
	left    string                                                         // describes the remaining records
}

// settings are the options of a backend by their names in configuration.
type settings map[string]any

func backends() map[string]func(dsn string, s settings) (*target, error) {
	return map[string]func(string, settings) (*target, error){
		"memory": onMemory, "sqlite": onSQLite, "postgres": onPostgres, "mysql": onMySQL,
		"etcd": onEtcd, "consul": onConsul, "zookeeper": onZooKeeper, "redis": onRedis,
	}
}

// newTarget finds the backend. Its errors have no part of dsn.
func newTarget(backend, dsn, options string) (*target, error) {
	find, ok := backends()[backend]
	if !ok {
		return nil, fmt.Errorf("there is no backend %q: name one of %s", backend,
			strings.Join(slices.Sorted(maps.Keys(backends())), ", "))
	}
	s := settings{}
	if options != "" {
		if err := json.Unmarshal([]byte(options), &s); err != nil {
			return nil, fmt.Errorf("-options is no JSON object: %w", err)
		}
	}
	for _, name := range []string{"namespace", "create", "dsn", "path", "endpoints", "address", "servers", "addrs"} {
		if _, ok := s[name]; ok {
			return nil, fmt.Errorf("-options has %q, which the suite or -dsn decides: leave it out", name)
		}
	}
	if (dsn == "") != (backend == "memory") {
		return nil, fmt.Errorf("backend %s: -dsn names where the store is, for all backends but memory", backend)
	}
	t, err := find(dsn, s)
	if err != nil {
		return nil, err
	}
	t.backend = backend
	t.secrets = slices.DeleteFunc(append(t.secrets, s.passwordIn(), s.text("password", ""), s.text("token", ""),
		s.fileIn("token_file")), func(s string) bool { return s == "" })
	return t, nil
}

func onMemory(string, settings) (*target, error) {
	store := memory.New()
	return &target{
		where: "this process",
		open: func(ctx context.Context, namespace string, create bool) (driver.Backend, error) {
			b, err := memory.Open(ctx, store, namespace, &memory.Options{NoCreate: !create})
			if err != nil {
				return nil, err
			}
			return b, nil
		},
		remove: func(context.Context, []string) (string, error) { return "everything, with the process", nil },
		left:   "nothing",
	}, nil
}

func onSQLite(path string, s settings) (*target, error) {
	return &target{
		where: path,
		open:  s.opens(sqlite.Opener(), "path", path),
		remove: func(ctx context.Context, namespaces []string) (string, error) {
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
			rows, err := deleteRows(ctx, data, prefix, dataTables(), "?1", namespaces)
			more, err2 := deleteRows(ctx, members, prefix, memberTables(), "?1", namespaces)
			return removed(rows+more, namespaces), errors.Join(err, err2)
		},
		left: "the two files and their tables",
	}, nil
}

func onPostgres(dsn string, s settings) (*target, error) {
	cfg, err := pgx.ParseConfig(dsn)
	if err != nil {
		return nil, errors.New("the DSN is not understood: write it as postgres://user:password@host:port/database")
	}
	return &target{
		where:   fmt.Sprintf("%s on %s:%d as %s", cfg.Database, cfg.Host, cfg.Port, cfg.User),
		secrets: []string{dsn, cfg.Password},
		open:    s.opens(postgres.Opener(), "dsn", dsn),
		remove: func(ctx context.Context, namespaces []string) (string, error) {
			if p := s.passwordIn(); p != "" {
				cfg.Password = p
			}
			db := stdlib.OpenDB(*cfg)
			defer db.Close()
			prefix := `"` + s.text("schema", postgres.DefaultSchema) + `".` + s.text("table_prefix", "tenure_")
			rows, err := deleteRows(ctx, db, prefix, slices.Concat(dataTables(), memberTables()), "$1", namespaces)
			return removed(rows, namespaces), err
		},
		left: "the tables",
	}, nil
}

func onMySQL(dsn string, s settings) (*target, error) {
	cfg, err := mysqldriver.ParseDSN(dsn)
	if err != nil {
		return nil, errors.New("the DSN is not understood: write it as user:password@tcp(host:port)/database")
	}
	return &target{
		where:   fmt.Sprintf("%s on %s as %s", cfg.DBName, cfg.Addr, cfg.User),
		secrets: []string{dsn, cfg.Passwd},
		open:    s.opens(mysql.Opener(), "dsn", dsn),
		remove: func(ctx context.Context, namespaces []string) (string, error) {
			if p := s.passwordIn(); p != "" {
				cfg.Passwd = p
			}
			connector, err := mysqldriver.NewConnector(cfg)
			if err != nil {
				return "", err
			}
			db := sql.OpenDB(connector)
			defer db.Close()
			rows, err := deleteRows(ctx, db, s.text("table_prefix", "tenure_"),
				slices.Concat(dataTables(), memberTables()), "?", namespaces)
			return removed(rows, namespaces), err
		},
		left: "the tables",
	}, nil
}

func dataTables() []string {
	return []string{"logs", "items", "tails", "shards", "namespaces"}
}

func memberTables() []string {
	return []string{"beats", "departures", "members", "nodes", "rosters"}
}

// deleteRows deletes by exact namespace, which the tables' keys begin with, in each
// table that the user may delete from. The prefix was checked by the backend that
// opened with it.
func deleteRows(
	ctx context.Context, db *sql.DB, prefix string, tables []string, placeholder string, namespaces []string,
) (int64, error) {
	sum := int64(0)
	var errs []error
	for _, table := range tables {
		for _, ns := range namespaces {
			result, err := db.ExecContext(ctx, "DELETE FROM "+prefix+table+" WHERE namespace = "+placeholder, ns)
			if err != nil {
				errs = append(errs, fmt.Errorf("table %s: %w", table, err))
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

func (s settings) text(name, otherwise string) string {
	if v, ok := s[name].(string); ok && v != "" {
		return v
	}
	return otherwise
}

// passwordIn is the password in the option password_file.
func (s settings) passwordIn() string { return s.fileIn("password_file") }

// fileIn is the secret in the file that an option names; opening the backend
// reports a file that cannot be read.
func (s settings) fileIn(option string) string {
	path := s.text(option, "")
	if path == "" {
		return ""
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	return strings.TrimRight(string(text), "\r\n")
}

// opens opens by configuration, as an application does.
func (s settings) opens(
	o driver.Opener, key string, dsn any,
) func(context.Context, string, bool) (driver.Backend, error) {
	return func(ctx context.Context, namespace string, create bool) (driver.Backend, error) {
		all := maps.Clone(s)
		all["namespace"], all["create"], all[key] = namespace, create, dsn
		return o.Open(ctx, func(into any) error {
			text, err := json.Marshal(all)
			if err != nil {
				return err
			}
			d := json.NewDecoder(bytes.NewReader(text))
			d.DisallowUnknownFields()
			return d.Decode(into)
		})
	}
}
