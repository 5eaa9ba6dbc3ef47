//go:build unix

package main

import (
	"database/sql"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"

	"github.com/tenure-go/tenure/internal/proof/servers"
)

// TestServers uses a running server of each kind by its DSN. It then plays a short run on a
// separate server, which is killed and restarted during the run. It is not parallel, because it
// looks for child processes.
func TestServers(t *testing.T) {
	for _, c := range []struct {
		backend  string
		driver   string // of database/sql
		variable string // names a server, which is then not killed
		refused  string // the error of a wrong password
	}{
		{"postgres", "pgx", "TENURE_POSTGRES_DSN", "refused the credentials"},
		{"mysql", "mysql", "TENURE_MYSQL_DSN", "Access denied"},
	} {
		t.Run(c.backend, func(t *testing.T) {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			s, _ := storeNamed(stores(), c.backend)
			own, err := s.server.start(t.Context())
			servers.Unavailable(t, s.server.kind, err)
			t.Run("named", func(t *testing.T) { useNamed(t, c.backend, c.driver, own.database, c.refused) })
			if err := own.close(); err != nil {
				t.Fatal(err)
			}
			r := playShort(t, exitOK, "-backend", c.backend)
			if len(r.ServerAway) != 1 && os.Getenv(c.variable) == "" {
				t.Errorf("server killed %d times, want 1", len(r.ServerAway))
			}
		})
	}
}

// TestClusters plays a short run on a separate cluster. One member of the cluster is killed and
// restarted during the run.
func TestClusters(t *testing.T) {
	for _, s := range stores() {
		if s.server == nil || s.server.members == 0 {
			continue
		}
		t.Run(s.opener.Name, func(t *testing.T) {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			own, err := s.server.start(t.Context())
			servers.Unavailable(t, s.server.kind, err)
			for range 2 { // each has its own namespace
				o, err := parseOptions([]string{"-backend", s.opener.Name, "-dsn", own.dsn}, stores(), nil)
				if err != nil {
					t.Fatal(err)
				}
				p, err := openPlace(t.Context(), o)
				if err != nil {
					t.Fatal(err)
				}
				if err := p.close(true); err != nil {
					t.Fatal(err)
				}
			}
			if err := own.close(); err != nil {
				t.Fatal(err)
			}
			if r := playShort(t, exitOK, "-backend", s.opener.Name); len(r.ServerAway) != 1 {
				t.Errorf("a member killed %d times, want 1", len(r.ServerAway))
			}
		})
	}
}

// useNamed opens two places in one database. Each place has a separate namespace, which stays. An
// error about refused credentials does not show them.
func useNamed(t *testing.T, backend, driver string, dsn servers.DSN, refused string) {
	o, err := parseOptions([]string{"-backend", backend, "-dsn", dsn.Reveal(), "-namespace", "boards/today"}, stores(),
		nil)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		p, err := openPlace(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		if err := p.close(true); err != nil {
			t.Fatal(err)
		}
	}
	db, err := sql.Open(driver, dsn.Reveal())
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	var n int
	row := db.QueryRowContext(t.Context(), "SELECT count(*) FROM tenure_namespaces WHERE namespace LIKE "+
		"'boards/today/run-%'")
	if err := row.Scan(&n); err != nil || n != 2 {
		t.Errorf("%d namespaces, %v, want 2", n, err)
	}
	refuse(t, []string{"-backend", backend, "-dsn", dsn.As(dsn.User(), "SECRET").Reveal()}, refused)
}

func TestNoServer(t *testing.T) {
	t.Parallel()
	for _, s := range stores() {
		if s.server == nil {
			continue
		}
		got := oneLine(s.server.explain(fmt.Errorf("tenure: %w: no binaries", servers.ErrUnavailable)))
		for _, want := range []string{"demo: install ", "-dsn", "no binaries"} {
			if !strings.Contains(got, want) {
				t.Errorf("%q does not say %q", got, want)
			}
		}
		if got := oneLine(s.server.explain(errors.New("tenure: its log ends:\n" +
			strings.Repeat("line\n", 1000)))); len(got) > 2*maxLineRunes {
			t.Errorf("a line of %d bytes", len(got))
		}
	}
}
