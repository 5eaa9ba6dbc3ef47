//go:build unix

package main

import (
	"context"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tenure-go/tenure/internal/proof/servers"
)

// badFlights writes a flights file.
func badFlights(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "flights.csv")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestRefusedInput: bad input ends the run with one line, exit code 2, and no file.
func TestRefusedInput(t *testing.T) {
	for _, c := range []struct {
		name string
		args []string
		want string
	}{
		{"unknown flag", []string{"-speed", "3"}, "-speed"},
		{"argument", []string{"fast"}, `unexpected argument "fast"`},
		{"unknown backend", []string{"-backend", "oracle"}, `unknown backend "oracle": use one of sqlite, postgres, mysql`},
		{"TTL below the server's floor", []string{"-backend", "postgres", "-ttl", "300ms"}, "floor"},
		{"keep and a server", []string{"-backend", "mysql", "-keep"}, "name a server of yours with -dsn"},
		{"keep and a server's dsn", []string{"-backend", "postgres", "-keep", "-dsn", "postgres://127.0.0.1/app"}, "leave -keep out"},
		{"server's address for sqlite", []string{"-dsn", "postgres://app:SECRET@127.0.0.1/app"}, "-backend postgres"},
		{"MySQL's address for sqlite", []string{"-dsn", "app:SECRET@tcp(127.0.0.1:3306)/app"}, "-backend mysql"},
		{"keywords for sqlite", []string{"-dsn", "host=127.0.0.1 password=SECRET"}, "-backend postgres"},
		{"path for postgres", []string{"-backend", "postgres", "-dsn", "board.db"}, "write it as postgres://"},
		{"MySQL's address for postgres", []string{"-backend", "postgres", "-dsn", "app:SECRET@tcp(127.0.0.1:3306)/app"},
			"write it as postgres://"},
		{"malformed address for postgres", []string{"-backend", "postgres", "-dsn",
			"postgres://app:SEC RET@127.0.0.1:port/app"}, "write it as postgres://"},
		{"path for mysql", []string{"-backend", "mysql", "-dsn", "board.db"}, "write it as user:password@tcp"},
		{"PostgreSQL's address for mysql", []string{"-backend", "mysql", "-dsn", "postgres://app:SECRET@127.0.0.1/app"},
			"write it as user:password@tcp"},
		{"no database for mysql", []string{"-backend", "mysql", "-dsn", "app:SECRET@tcp(127.0.0.1:3306)/"},
			"write it as user:password@tcp"},
		{"password with a slash for mysql", []string{"-backend", "mysql", "-dsn", "app:x/SECRET@tcp(127.0.0.1:3306)"},
			"write it as user:password@tcp"},
		{"in the clear to another host", []string{"-backend", "postgres", "-dsn",
			"postgres://app:SECRET@192.0.2.1/app?sslmode=disable"}, "sslmode=verify-full"},
		{"no server for postgres", []string{"-backend", "postgres", "-dsn", "postgres://app:SECRET@127.0.0.1:1/app"},
			"opening the database"},
		{"no server for mysql", []string{"-backend", "mysql", "-dsn", "app:SECRET@tcp(127.0.0.1:1)/app"}, "opening the database"},
		{"address as an argument", []string{"-backend", "postgres", "postgres://app:SECRET@127.0.0.1/app"}, "unexpected argument"},
		{"address as the backend", []string{"-backend", "postgres://app:SECRET@127.0.0.1/app"}, "unknown backend"},
		{"address in a wrong flag", []string{"-duration", "postgres://app:SECRET@127.0.0.1/app"}, "may hold a password"},
		{"address in no flag", []string{"---dsn=app:SECRET@tcp(127.0.0.1:3306)/app"}, "may hold a password"},
		{"members", []string{"-members", "1"}, "use 2 to 9 with -members"},
		{"no duration", []string{"-duration", "fast"}, "-duration"},
		{"short duration", []string{"-duration", "1s"}, "use 4s to 1h0m0s"},
		{"TTL below the floor", []string{"-ttl", "10ms"}, "floor"},
		{"no TTL", []string{"-ttl", "0"}, "use a positive one with -ttl"},
		{"negative TTL", []string{"-ttl", "-1s"}, "use a positive one with -ttl"},
		{"long TTL", []string{"-ttl", "1h"}, "at most 1m0s"},
		{"namespace", []string{"-namespace", "flight board"}, "-namespace"},
		{"keep and dsn", []string{"-keep", "-dsn", "x.db"}, "leave -keep out"},
		{"no flights file", []string{"-flights", filepath.Join(t.TempDir(), "none.csv")}, "name another with -flights"},
		{"flights file is a directory", []string{"-flights", t.TempDir()}, "directory"},
		{"empty flights file", []string{"-flights", badFlights(t, "")}, "it is empty"},
		{"malformed flights file", []string{"-flights", badFlights(t, flightsHeader+"\n1,2\n")}, "correct that line"},
		{"name in the flights file", []string{"-flights",
			badFlights(t, flightsHeader+"\n1,2001-01-01T00:47,'; DROP TABLE,LAS,66,1\n")}, "line 2: origin"},
	} {
		t.Run(c.name, func(t *testing.T) { refuse(t, c.args, c.want) })
	}
}

// TestRefusedEnvironment: if the environment names an unreachable server, the run ends as after a
// bad flag.
func TestRefusedEnvironment(t *testing.T) {
	servers.Short(t)
	t.Setenv("TENURE_POSTGRES_DSN", "app:SECRET")
	t.Setenv("TENURE_MYSQL_DSN", "app:SECRET@tcp(127.0.0.1:1)/")
	refuse(t, []string{"-backend", "postgres"}, "TENURE_POSTGRES_DSN is not understood")
	refuse(t, []string{"-backend", "mysql"}, "cannot reach the server named by TENURE_MYSQL_DSN")
}

// refuse runs the command and expects one line that contains want, exit code 2, an empty standard
// output, no password, and no files.
func refuse(t *testing.T, args []string, want string) {
	t.Helper()
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	var out, errs strings.Builder
	if code := run(context.Background(), args, &out, &errs); code != exitInput {
		t.Errorf("exit code %d, want %d", code, exitInput)
	}
	if got := errs.String(); !strings.HasPrefix(got, "demo: ") || strings.Count(got, "\n") != 1 ||
		!strings.Contains(got, want) {
		t.Errorf("got %q, want one line with %q", got, want)
	}
	if strings.Contains(errs.String(), "SEC") {
		t.Errorf("%q shows the password", errs.String())
	}
	if out.String() != "" {
		t.Errorf("standard output has %q", out.String())
	}
	if left, err := os.ReadDir(tmp); err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func TestDefaults(t *testing.T) {
	t.Parallel()
	o, err := parseOptions(nil, stores(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if o.backend != "sqlite" || o.members != 3 || o.unfenced {
		t.Errorf("got %+v", o)
	}
	var help strings.Builder
	if _, err := parseOptions([]string{"-h"}, stores(), &help); !errors.Is(err, flag.ErrHelp) ||
		!strings.Contains(help.String(), "-unfenced") {
		t.Errorf("got %v and %q, want the usage", err, help.String())
	}
	for line := range strings.Lines(help.String()) {
		if len(line) > 100 {
			t.Errorf("%d characters in one line: %s", len(line), line)
		}
	}
}
