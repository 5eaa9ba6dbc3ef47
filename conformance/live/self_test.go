package live_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tenure-go/tenure/backends/sql/sqlite"
	"github.com/tenure-go/tenure/internal/proof/servers"
)

func TestMain(m *testing.M) { os.Exit(pool.Run(m)) }

var pool servers.Pool

// live runs this test binary's TestLive as a user does, on a few cases.
func live(t *testing.T, args ...string) (string, error) {
	t.Helper()
	return liveAt(t, "", args...)
}

// liveAt has the data source name in the environment.
func liveAt(t *testing.T, dsn string, args ...string) (string, error) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	run := exec.CommandContext(ctx, self,
		append([]string{"-test.v", "-test.run",
			"^TestLive$/^(Acquire|Commit)$/^(Exclusive|AppliesWhenCurrent|LateRequestRefused)$"}, args...)...)
	run.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "TENURE_LIVE_DSN=") })
	if dsn != "" {
		run.Env = append(run.Env, "TENURE_LIVE_DSN="+dsn)
	}
	out, err := run.CombinedOutput()
	return string(out), err
}

func TestLiveOnSQLite(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path, report := filepath.Join(dir, "live.db"), filepath.Join(dir, "report.txt")
	out, err := live(t, "-backend", "sqlite", "-dsn", path, "-options", `{"table_prefix":"mine_","poll":5000000}`,
		"-report", report)
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	text, err := os.ReadFile(report)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"sqlite at " + path, "polled every 5ms", "left       the two files and their tables",
		"sqlite: 2 passed, 0 failed, 1 skipped", "skipped Commit/LateRequestRefused", "the harness lacks",
	} {
		if !strings.Contains(string(text), want) {
			t.Errorf("the summary lacks %q:\n%s", want, text)
		}
	}
	if !regexp.MustCompile(`removed    [1-9][0-9]* rows of [3-9] namespaces`).Match(text) {
		t.Errorf("the summary does not list the removed records:\n%s", text)
	}
	if !strings.Contains(out, string(text)) {
		t.Errorf("the output lacks the summary:\n%s", out)
	}
	for file, tables := range map[string][]string{path: dataTables(), path + "-members": memberTables()} {
		db, err := sqlite.OpenDB(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, table := range tables {
			rows := -1
			if err := db.QueryRow("SELECT count(*) FROM mine_" + table).Scan(&rows); err != nil || rows != 0 {
				t.Errorf("table %s has %d rows afterwards, %v; want none", table, rows, err)
			}
		}
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestLiveOnServers(t *testing.T) {
	t.Parallel()
	for backend, kind := range map[string]servers.Kind{"postgres": servers.Postgres, "mysql": servers.MariaDB} {
		t.Run(backend, func(t *testing.T) {
			t.Parallel()
			dsn := pool.Get(t, kind, nil).Database(t)
			out, err := liveAt(t, dsn.Reveal(), "-backend", backend, "-options",
				`{"migrate":true,"table_prefix":"mine_"}`)
			if err != nil || !strings.Contains(out, backend+": 2 passed, 0 failed, 1 skipped") {
				t.Fatalf("%v\n%s", err, out)
			}
			if !regexp.MustCompile(`removed    [1-9][0-9]* rows of [3-9] namespaces\n  left       the tables\n`).MatchString(out) {
				t.Errorf("the summary does not list the removed and the remaining records:\n%s", out)
			}
			if p := dsn.Password(); p != "" && strings.Contains(out, p) {
				t.Errorf("the output has the password:\n%s", out)
			}
		})
	}
}

func TestLiveOnNetworkStores(t *testing.T) {
	t.Parallel()
	for backend, kind := range map[string]servers.Kind{"etcd": servers.Etcd, "consul": servers.Consul,
		"zookeeper": servers.ZooKeeper, "redis": servers.Redis} {
		t.Run(backend, func(t *testing.T) {
			t.Parallel()
			out, err := live(t, "-backend", backend, "-dsn", pool.Get(t, kind, nil).Addr())
			if err != nil || !strings.Contains(out, backend+": 2 passed, 0 failed, 1 skipped") {
				t.Fatalf("%v\n%s", err, out)
			}
			if !regexp.MustCompile(`removed    [1-9][0-9]* records of [3-9] namespaces\n  left       (nothing|the root, and in it an empty node.*)\n`).MatchString(out) {
				t.Errorf("the summary does not list the removed and the remaining records:\n%s", out)
			}
		})
	}
}

func TestLiveOnMemory(t *testing.T) {
	t.Parallel()
	out, err := live(t, "-backend", "memory")
	if err != nil || !strings.Contains(out, "memory: 2 passed, 0 failed, 1 skipped") {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestSkippedWithoutBackend(t *testing.T) {
	t.Parallel()
	out, err := live(t)
	if err != nil || !strings.Contains(out, "--- SKIP: TestLive") || !strings.Contains(out, "no store was named") {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestRefused names stores that cannot be: it says so once, without the password.
func TestRefused(t *testing.T) {
	t.Parallel()
	const planted = "pl4nted-s3cret"
	passwords := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(passwords, []byte(planted+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"unknown backend": {[]string{"-backend", "paper"},
			"consul, etcd, memory, mysql, postgres, redis, sqlite, zookeeper"},
		"no dsn":              {[]string{"-backend", "sqlite"}, "-dsn names where the store is"},
		"options are no JSON": {[]string{"-backend", "memory", "-options", "poll"}, "no JSON object"},
		"unknown option": {[]string{"-backend", "sqlite", "-dsn", "x.db", "-options", `{"pool":1}`},
			`unknown field "pool"`},
		"chosen by the suite": {[]string{"-backend", "sqlite", "-dsn", "x.db", "-options", `{"create":false}`},
			"leave it out"},
		"no PostgreSQL there": {[]string{"-backend", "postgres", "-dsn", "postgres://me:" + planted +
			"@127.0.0.1:1/db"}, "cannot open postgres at db on 127.0.0.1:1 as me"},
		"no MySQL there": {[]string{"-backend", "mysql", "-dsn", "me:" + planted + "@tcp(127.0.0.1:1)/db"},
			"cannot open mysql at db on 127.0.0.1:1 as me"},
		"no DSN of PostgreSQL": {[]string{"-backend", "postgres", "-dsn", "postgres://me:" + planted + "@[::1/db"},
			"the DSN is not understood"},
		"no DSN of MySQL": {[]string{"-backend", "mysql", "-dsn", "me:" + planted + "@tcp[/db"},
			"the DSN is not understood"},
		"password in a file": {[]string{"-backend", "postgres", "-dsn", "postgres://me@127.0.0.1:1/" + planted,
			"-options", `{"password_file":"` + passwords + `"}`}, "at xxxxx on 127.0.0.1:1 as me"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out, err := live(t, c.args...)
			if err == nil || !strings.Contains(out, c.want) {
				t.Errorf("got %v and\n%s\nwant a failure with %q", err, out, c.want)
			}
			if strings.Contains(out, planted) {
				t.Errorf("the output has the password:\n%s", out)
			}
		})
	}
}
