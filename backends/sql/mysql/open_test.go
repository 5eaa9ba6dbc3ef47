package mysql

import (
	"context"
	"crypto/tls"
	stdsql "database/sql"
	"errors"
	"flag"
	"fmt"
	"os"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/goexit"
	"github.com/tenure-go/tenure/internal/proof/ample"
	"github.com/tenure-go/tenure/internal/proof/servers"
	"github.com/tenure-go/tenure/internal/proof/sqlfault"
)

func TestOpenRefuses(t *testing.T) {
	t.Parallel()
	server := pool.Get(t, servers.MariaDB, nil)
	dsn, newer, existing := server.Database(t), server.Database(t), server.Database(t)
	for _, d := range []servers.DSN{newer, existing} {
		if err := Migrate(t.Context(), d.Reveal(), nil); err != nil {
			t.Fatal(err)
		}
	}
	sqlfault.Exec(t, setup.DB(t, newer), "UPDATE tenure_schema SET version = 99")
	for _, c := range []struct {
		name, dsn, namespace string
		options              Options
		is                   error
		says                 string
	}{
		{"no tables", dsn.Reveal(), "app", Options{Create: true}, driver.ErrUnsupported, "run Migrate"},
		{"no identity", existing.Reveal(), "app", Options{}, nil, "Create"},
		{"newer tables", newer.Reveal(), "app", Options{Create: true}, driver.ErrUnsupported, "newer release"},
		{"newer tables to migrate", newer.Reveal(), "app", Options{Migrate: true}, driver.ErrUnsupported, "newer release"},
		{"wrong password", dsn.As(dsn.User(), "wrong").Reveal(), "app", Options{}, nil, "opening"},
		{"namespace", dsn.Reveal(), "a b", Options{}, driver.ErrInvalid, "namespace"},
		{"no database", dsn.Database("").Reveal(), "app", Options{}, driver.ErrInvalid, "database"},
		{"database", "u:planted-secret@tcp(127.0.0.1:1)/a%60b", "app", Options{}, driver.ErrInvalid, "database"},
		{"prefix", dsn.Reveal(), "app", Options{TablePrefix: "Tenure-"}, driver.ErrInvalid, "prefix"},
		{"poll period", dsn.Reveal(), "app", Options{PollPeriod: 1}, driver.ErrInvalid, "poll"},
		{"connections", dsn.Reveal(), "app", Options{MaxConns: -1}, driver.ErrInvalid, "connections"},
		{"DSN", "u:planted-secret@nowhere", "app", Options{}, driver.ErrInvalid, "DSN"},
		{"plaintext", "u:planted-secret@tcp(db.example:3306)/d", "app", Options{}, driver.ErrInvalid, "tls=true"},
		{"plaintext as a fallback", "u:planted-secret@tcp(db.example:3306)/d?tls=preferred", "app", Options{}, driver.ErrInvalid, "tls=true"},
		{"TLS to anybody", "u:planted-secret@tcp(db.example:3306)/d?tls=skip-verify", "app", Options{}, driver.ErrInvalid, "tls=true"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := Open(t.Context(), c.dsn, c.namespace, &c.options)
			if err == nil || !strings.Contains(err.Error(), c.says) || c.is != nil && !errors.Is(err, c.is) {
				t.Errorf("got %v, want %v that says %q", err, c.is, c.says)
			}
			if text := fmt.Sprintf("%v %+v %#v", err, err, err); strings.Contains(text, "planted-secret") || strings.Contains(text, dsn.Password()) {
				t.Errorf("the error gives a password away: %s", text)
			}
		})
	}
}

// TestServerSettings: settings that would break a rule are refused.
func TestServerSettings(t *testing.T) {
	t.Parallel()
	server := servers.New(t, servers.MariaDB, &servers.Options{Config: []string{"log-bin", "server-id = 1", "sync-binlog = 1"}})
	dsn := server.Database(t)
	admin := setup.DB(t, server.Admin())
	for setting, back := range map[string]string{
		"binlog_format = 'STATEMENT'":        "binlog_format = 'ROW'",
		"sync_binlog = 0":                    "sync_binlog = 1",
		"sync_binlog = 2":                    "sync_binlog = 1",
		"innodb_flush_log_at_trx_commit = 0": "innodb_flush_log_at_trx_commit = 1",
		"max_allowed_packet = 1048576":       "max_allowed_packet = 16777216",
	} {
		sqlfault.Exec(t, admin, "SET GLOBAL "+setting)
		name, _, _ := strings.Cut(setting, " ")
		if err := Migrate(t.Context(), dsn.Reveal(), nil); !errors.Is(err, driver.ErrUnsupported) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", setting, err)
		}
		sqlfault.Exec(t, admin, "SET GLOBAL "+back)
	}
	sqlfault.Acquire(t, sqlfault.Join(t, open(t, dsn, Options{}), "n1"), sqlfault.Claims(1))
}

func TestParseVersion(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][2]int{
		"10.11.6-MariaDB-0+deb12u1": {10, 11}, "5.5.5-10.6.1-MariaDB": {10, 6}, "8.4.0": {8, 4}, "": {0, 0}, "x.y": {0, 0},
	} {
		if major, minor := parseVersion(text); major != want[0] || minor != want[1] {
			t.Errorf("%q is %d.%d", text, major, minor)
		}
	}
}

func TestMigrateAtOnce(t *testing.T) {
	t.Parallel()
	migrateAtOnce(t, pool.Get(t, servers.MariaDB, nil).Database(t))
}

// migrateAtOnce migrates concurrently through all DSNs.
func migrateAtOnce(t *testing.T, doors ...servers.DSN) {
	t.Helper()
	const n = 6
	ids := make(chan string, n)
	for i := range n {
		dsn := doors[i%len(doors)]
		go func() {
			b, err := Open(t.Context(), dsn.Reveal(), "app", &Options{Create: true, Migrate: true, MaxConns: 1})
			if err != nil {
				t.Error(err)
				ids <- ""
				return
			}
			ids <- b.Info().StoreID
			b.Close()
		}()
	}
	first := <-ids
	for range n - 1 {
		if id := <-ids; id != first {
			t.Errorf("identities %s and %s", id, first)
		}
	}
}

// block returns the SQL that the documentation marks.
func block(t *testing.T, mark string) string {
	t.Helper()
	page := "../../../docs/backends/mysql.md"
	if mark == "possible" {
		page = "../../../docs/internals/backends/mysql.md"
	}
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile("(?s)<!-- " + mark + " -->\n```sql\n(.*?)```").FindSubmatch(text)
	if found == nil {
		t.Fatalf("the documentation has no block %q", mark)
	}
	return string(found[1])
}

// restricted migrates as the owner of the database and returns how the run-time
// user of the documentation's recipe reaches it.
func restricted(t *testing.T, server *servers.Server, dsn servers.DSN) servers.DSN {
	t.Helper()
	if err := Migrate(t.Context(), dsn.Reveal(), nil); err != nil {
		t.Fatal(err)
	}
	app := "app_" + dsn.Name()[len(dsn.Name())-8:]
	admin := setup.DB(t, server.Admin())
	recipe := strings.NewReplacer("tenure_app", app, "'...'", "'"+dsn.Password()+"'", " app.", " "+dsn.Name()+".").Replace(block(t, "recipe"))
	for statement := range strings.SplitSeq(strings.TrimSpace(recipe), ";\n") {
		sqlfault.Exec(t, admin, strings.TrimSuffix(statement, ";"))
	}
	t.Cleanup(func() { _, _ = admin.Exec("DROP USER " + app) })
	return dsn.As(app, dsn.Password())
}

func TestRunTimeUser(t *testing.T) {
	t.Parallel()
	server := pool.Get(t, servers.MariaDB, nil)
	dsn := server.Database(t)
	app := restricted(t, server, dsn)
	b, err := Open(t.Context(), app.Reveal(), "app", &Options{Create: true})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	another, err := Open(t.Context(), app.Reveal(), "another", &Options{Create: true})
	if err != nil {
		t.Fatal(err)
	}
	defer another.Close()
	for _, b := range []*Backend{b, another} {
		s := sqlfault.Join(t, b, "n1")
		sqlfault.Acquire(t, s, sqlfault.Claims(1))
		granted, _ := sqlfault.Acquire(t, s, sqlfault.Claims(2)[1:])
		sqlfault.Commit(t, s, sqlfault.AppendOf(granted[0].Fence, 1, []byte("a")))
		sqlfault.Update(t, s)
	}
	const noTable, noColumn = 1142, 1143
	db := setup.DB(t, app)
	for text, code := range map[string]uint16{
		"DELETE FROM tenure_namespaces":                                   noTable,
		"DELETE FROM tenure_tails":                                        noTable,
		"DELETE FROM tenure_rosters":                                      noTable,
		"TRUNCATE tenure_shards":                                          noTable,
		"TRUNCATE tenure_logs":                                            noTable,
		"DROP TABLE tenure_shards":                                        noTable,
		"ALTER TABLE tenure_shards DROP COLUMN token":                     noTable,
		"RENAME TABLE tenure_shards TO renamed":                           noTable,
		"REPLACE INTO tenure_namespaces VALUES ('app', 'x', 0, 0, 0, '')": noTable,
		"UPDATE tenure_schema SET version = 0":                            noTable,
		"UPDATE tenure_shards SET shard = 'renamed'":                      noColumn,
		"UPDATE tenure_shards SET namespace = 'renamed'":                  noColumn,
		"UPDATE tenure_namespaces SET namespace = 'renamed'":              noColumn,
		"UPDATE tenure_namespaces SET store_id = 'replaced'":              noColumn,
		"INSERT INTO tenure_namespaces (namespace, store_id) VALUES ('app', 'x') ON DUPLICATE KEY UPDATE store_id = 'x'": noColumn,
		"UPDATE tenure_rosters SET namespace = 'renamed'":                                                                noColumn,
		"UPDATE tenure_rosters SET store_id = 'replaced'":                                                                noColumn,
		"UPDATE tenure_tails SET bucket = bucket + 16":                                                                   noColumn,
		"UPDATE tenure_logs SET payloads = 'replaced'":                                                                   noTable,
		"UPDATE tenure_logs SET token = 1":                                                                               noTable,
		"UPDATE tenure_members SET session = 'renamed'":                                                                  noColumn,
		"UPDATE tenure_departures SET revision = 0":                                                                      noTable,
	} {
		if _, err := db.ExecContext(t.Context(), text); number(err) != code {
			t.Errorf("%s: %v, want a refusal with number %d", text, err, code)
		}
	}
	// The page lists what the user can do, even in other namespaces.
	for text := range strings.SplitSeq(strings.TrimSpace(block(t, "possible")), "\n") {
		possible, err := db.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if res, err := possible.ExecContext(t.Context(), text); err != nil {
			t.Errorf("%s: %v; the page says that it is possible", text, err)
		} else if n, err := res.RowsAffected(); err != nil || n == 0 {
			t.Errorf("%s: changed nothing, %v", text, err)
		}
		if err := possible.Rollback(); err != nil {
			t.Fatal(err)
		}
	}
	// If a user may not remove labels or locks, these stay, and nothing else changes.
	sqlfault.Exec(t, setup.DB(t, server.Admin()), "REVOKE DELETE ON "+dsn.Name()+".tenure_nodes FROM "+app.User(),
		"REVOKE DELETE ON "+dsn.Name()+".tenure_shards FROM "+app.User())
	sqlfault.Labels(t, b)
	sqlfault.Locks(t, sqlfault.Join(t, b, "locks"), "stay", 5, func() {})
}

func TestTLS(t *testing.T) {
	t.Parallel()
	server := servers.New(t, servers.MariaDB, &servers.Options{TLS: servers.TLSServer})
	cfg, err := server.TLSConfig()
	if err != nil {
		t.Fatal(err)
	}
	dsn := server.Admin() // creating a database needs TLS too
	name := "tenure_test_0123456789abcdef"
	with := func(c *tls.Config) *Options { return &Options{TLS: c, Create: true, Migrate: true} }
	created, err := server.CreateDatabase(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	b, err := Open(t.Context(), created.Reveal(), "app", with(cfg))
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	sqlfault.Acquire(t, sqlfault.Join(t, b, "n1"), sqlfault.Claims(1))
	wrongName := cfg.Clone()
	wrongName.ServerName = "other.example"
	for what, c := range map[string]*tls.Config{"plaintext": nil, "a CA of the system's": {}, "another name": wrongName} {
		if b, err := Open(t.Context(), dsn.Database(name).Reveal(), "app", with(c)); err == nil {
			b.Close()
			t.Errorf("%s is accepted", what)
		}
	}
}

// TestPasswordOfEachConnection: a changed password is read again.
func TestPasswordOfEachConnection(t *testing.T) {
	t.Parallel()
	dsn := pool.Get(t, servers.MariaDB, nil).Database(t)
	asked := make(chan struct{}, 100)
	b := open(t, dsn.As(dsn.User(), "outdated"), Options{Password: func(context.Context) (string, error) {
		asked <- struct{}{}
		return dsn.Password(), nil
	}})
	sqlfault.Acquire(t, sqlfault.Join(t, b, "n1"), sqlfault.Claims(1))
	if len(asked) < 3 {
		t.Errorf("asked %d times", len(asked))
	}
}

func TestNames(t *testing.T) {
	t.Parallel()
	dsn := pool.Get(t, servers.MariaDB, nil).Database(t)
	sqlfault.CheckNames(t, open(t, dsn, Options{}), setup.DB(t, dsn))
}

func TestChunks(t *testing.T) {
	t.Parallel()
	dsn := pool.Get(t, servers.MariaDB, nil).Database(t)
	sqlfault.CheckChunks(t, open(t, dsn, Options{}), setup.DB(t, dsn))
}

// TestOlderTables: a namespace from before incarnations were recorded continues, and an interrupted
// migration can be repeated.
func TestOlderTables(t *testing.T) {
	t.Parallel()
	dsn := pool.Get(t, servers.MariaDB, nil).Database(t)
	schema, err := files.ReadFile("schema/0001_tables.sql")
	if err != nil {
		t.Fatal(err)
	}
	db := setup.DB(t, dsn.With("multiStatements", "true"))
	sqlfault.CheckOlderTables(t, db, string(schema), "tenure_", func() sqlfault.Floored { return open(t, dsn, Options{}) })
	if _, err := db.ExecContext(t.Context(), "UPDATE tenure_schema SET version = 1"); err != nil {
		t.Fatal(err)
	}
	if err := Migrate(t.Context(), dsn.Reveal(), nil); err != nil {
		t.Error(err)
	}
}

// TestServerID: a server with a different server_id has a different history.
func TestServerID(t *testing.T) {
	t.Parallel()
	server := servers.New(t, servers.MariaDB, &servers.Options{NoSync: true})
	dsn := server.Database(t)
	b := open(t, dsn, Options{})
	s := sqlfault.Join(t, b, "n1")
	before, _ := sqlfault.Acquire(t, s, sqlfault.Claims(1))
	sqlfault.Exec(t, setup.DB(t, server.Admin()), "SET GLOBAL server_id = 77")
	again := []driver.Claim{{Shard: "another"}}
	if res, err := s.Acquire(t.Context(), again); !errors.Is(err, driver.ErrRetry) {
		t.Errorf("the first claim under another server_id: %+v, %v, want ErrRetry", res, err)
	}
	after, _ := sqlfault.Acquire(t, s, again)
	if after[0].Fence.Token < before[0].Fence.Token+1<<40 {
		t.Errorf("token %d after %d, want 2^40 more", after[0].Fence.Token, before[0].Fence.Token)
	}
}

var promotionsFlag = flag.Int("promotions", 2, "how often TestPromotions has two servers take over")

// TestPromotions simulates takeovers by servers with a different server_id and a replica's rows.
// The first server lacks a grant, and accepts no former fence (F1, I2). The second lacks everything
// that the first server has, and its tokens are above the first server's (I2).
func TestPromotions(t *testing.T) {
	t.Parallel()
	server := servers.New(t, servers.MariaDB, &servers.Options{NoSync: true})
	admin := setup.DB(t, server.Admin())
	for round := range *promotionsFlag {
		t.Run(fmt.Sprint(round), func(t *testing.T) {
			dsn := server.Database(t)
			db := setup.DB(t, dsn)
			holder, taker := open(t, dsn, Options{}), open(t, dsn, Options{})
			replica := &sqlfault.Database{DB: db, Namespace: holder.Info().Namespace}
			a, b := sqlfault.Join(t, holder, "a"), sqlfault.Join(t, taker, "b")
			r, _ := sqlfault.Acquire(t, a, []driver.Claim{{Shard: "s"}})
			old := r[0].Fence
			replicated, err := replica.Snapshot(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			r, _ = sqlfault.Acquire(t, b, []driver.Claim{{Shard: "s", Seen: driver.Owner{Session: old.Session, Token: old.Token}, Preempt: true}})
			lost := r[0].Fence
			takeOver := func(id int) {
				t.Helper()
				sqlfault.Exec(t, admin, fmt.Sprintf("SET GLOBAL server_id = %d", id))
				if err := replicated(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			takeOver(1000 + 3*round)
			refused := func(want error) {
				t.Helper()
				for _, by := range []*Backend{holder, taker} {
					for _, f := range []driver.Fence{old, lost} {
						tx := sqlfault.Tx(t, db, stdsql.LevelRepeatableRead)
						if err := errors.Join(by.FenceTx(t.Context(), tx, f), tx.Rollback()); !errors.Is(err, want) {
							t.Errorf("FenceTx under token %d, with %d lost: %v; want %v", f.Token, lost.Token, err, want)
						}
					}
				}
			}
			refused(driver.ErrRetry)
			ample.Wait(t, "no heartbeat is accepted", func() bool { return a.Beat(t.Context()) == nil })
			refused(driver.ErrFenced)

			newest := lost.Token
			for id := range 2 {
				takeOver(1001 + 3*round + id)
				fresh := sqlfault.Join(t, open(t, dsn, Options{}), "fresh")
				for n := range 10 {
					r, _ := sqlfault.Acquire(t, fresh, []driver.Claim{{Shard: driver.ShardID(fmt.Sprint("t", n))}})
					if got := r[0].Fence.Token; got <= newest {
						t.Fatalf("token %d was granted by the server of id %d; token %d had been granted before", got, 1001+3*round+id, newest)
					}
					newest = r[0].Fence.Token
				}
			}
		})
	}
}

// TestClockBehind: after a takeover by a server whose clock is behind the tokens, members halt
// until an operator raises the floor.
func TestClockBehind(t *testing.T) {
	t.Parallel()
	server := servers.New(t, servers.MariaDB, &servers.Options{NoSync: true})
	dsn := server.Database(t)
	b := open(t, dsn, Options{})
	former := sqlfault.Join(t, b, "n1")
	r, _ := sqlfault.Acquire(t, former, sqlfault.Claims(1))
	floor, err := b.Floor(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ahead := driver.Token(time.Now().Add(time.Hour).UnixMicro())
	if err := b.RaiseFloor(t.Context(), floor, ahead); err != nil {
		t.Fatal(err)
	}
	sqlfault.Exec(t, setup.DB(t, server.Admin()), "SET GLOBAL server_id = 77")
	opened := open(t, dsn, Options{})
	_, err = opened.Join(t.Context(), driver.Member{Session: "late", Node: "late", TTL: 5 * time.Second})
	for what, err := range map[string]error{"a heartbeat": former.Beat(t.Context()), "a join of a process that came later": err} {
		if !errors.Is(err, driver.ErrStoreChanged) || !strings.Contains(err.Error(), "clock") {
			t.Errorf("%s: %v; want ErrStoreChanged, and what the clock says", what, err)
		}
	}
	if floor, err = opened.Floor(t.Context()); err != nil || floor < ahead {
		t.Fatalf("the floor is %d, %v; want %d or more", floor, err, ahead)
	}
	if err := opened.RaiseFloor(t.Context(), floor, floor+1000); err != nil {
		t.Fatal(err)
	}
	if err := former.Beat(t.Context()); err != nil {
		t.Errorf("a heartbeat after the floor was raised: %v", err)
	}
	next, _ := sqlfault.Acquire(t, former, []driver.Claim{{Shard: "another"}})
	if next[0].Fence.Token <= floor+1000 {
		t.Errorf("token %d after the floor was raised above %d", next[0].Fence.Token, floor+1000)
	}
	res, err := former.Commit(t.Context(), []driver.Write{sqlfault.AppendOf(r[0].Fence, 1, []byte("late"))})
	if err == nil {
		err = res[0].Err
	}
	if !errors.Is(err, driver.ErrFenced) {
		t.Errorf("a commit under a lease of before: %v, want ErrFenced", err)
	}
}

// TestTooFewConnections: the error names the number of connections that a process needs.
func TestTooFewConnections(t *testing.T) {
	t.Parallel()
	server := pool.Get(t, servers.MariaDB, nil)
	dsn := server.Database(t)
	admin := setup.DB(t, server.Admin())
	user := "few_" + dsn.Name()[len(dsn.Name())-8:]
	sqlfault.Exec(t, admin, "CREATE USER "+user+" IDENTIFIED BY '"+dsn.Password()+"' WITH MAX_USER_CONNECTIONS 1",
		"GRANT ALL ON "+dsn.Name()+".* TO "+user)
	t.Cleanup(func() { _, _ = admin.Exec("DROP USER " + user) })
	b, err := Open(t.Context(), dsn.As(user, dsn.Password()).Reveal(), "orders", &Options{Create: true, Migrate: true})
	if err == nil {
		b.Close()
	}
	if err == nil || !strings.Contains(err.Error(), "MaxConns and 6 more") {
		t.Error(err)
	}
}

// TestServerDefaults: a server's defaults for its sessions change neither a migration nor a
// backend's behaviour.
func TestServerDefaults(t *testing.T) {
	t.Parallel()
	server := servers.New(t, servers.MariaDB, &servers.Options{NoSync: true, Config: []string{
		"sql-mode = ANSI", "innodb-default-row-format = compact", "innodb-strict-mode = OFF",
	}})
	dsn := server.Database(t)
	sqlfault.Exec(t, setup.DB(t, server.Admin()), "SET GLOBAL sql_safe_updates = 1")
	b := open(t, dsn, Options{})
	s, err := b.Join(t.Context(), driver.Member{Session: "0123456789abcdef0123456789abcdef", Node: "n", TTL: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	got, err := s.Acquire(t.Context(), []driver.Claim{{Shard: driver.LockPrefix + "a"}, {Shard: "b"}})
	if err != nil || got[0].Err != nil || got[1].Err != nil {
		t.Fatal(err, got)
	}
	written, err := s.Commit(t.Context(), []driver.Write{{Fence: got[1].Fence, Number: 1, Nonce: 1,
		Ops: []driver.Op{{Kind: driver.OpAppend, Value: []byte("x")}}}})
	if err != nil || written[0].Err != nil {
		t.Fatal(err, written)
	}
	floor, err := b.Floor(t.Context())
	if err == nil {
		err = b.RaiseFloor(t.Context(), floor, floor+1000)
	}
	if err := errors.Join(err, s.Release(t.Context(), []driver.Fence{got[0].Fence}), s.Close(t.Context())); err != nil {
		t.Fatal(err)
	}
	var compact int
	if err := setup.DB(t, dsn).QueryRowContext(t.Context(), `SELECT COUNT(*) FROM information_schema.tables
WHERE table_schema = database() AND table_type = 'BASE TABLE' AND row_format <> 'Dynamic'`).Scan(&compact); err != nil || compact > 0 {
		t.Errorf("%d tables have another row format, %v", compact, err)
	}
}

// TestPasswordGoexit: a function that ends its goroutine fails the connection, and no caller waits
// forever.
func TestPasswordGoexit(t *testing.T) {
	t.Parallel()
	b, err := Open(t.Context(), "u@tcp(127.0.0.1:1)/d", "app",
		&Options{Password: func(context.Context) (string, error) { runtime.Goexit(); return "", nil }})
	if !errors.Is(err, goexit.Err) {
		t.Errorf("%v, %v", b, err)
	}
}
