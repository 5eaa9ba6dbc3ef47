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

// TestRefusedInput sees bad input end in one line, exit code 2, and no file.
func TestRefusedInput(t *testing.T) {
	for _, c := range []struct {
		name string
		args []string
		want string
	}{
		{"unknown flag", []string{"-speed", "3"}, "-speed"},
		{"argument", []string{"fast"}, `unexpected argument "fast"`},
		{"unknown backend", []string{"-backend", "oracle"}, `unknown backend "oracle": use one of sqlite`},
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
		{"name in the flights file", []string{"-flights", badFlights(t, flightsHeader+"\n1,2001-01-01T00:47,'; DROP TABLE,LAS,66,1\n")}, "line 2: origin"},
	} {
		t.Run(c.name, func(t *testing.T) { refuse(t, c.args, c.want) })
	}
}

// refuse runs the command and wants one line with want, exit code 2, nothing on
// standard output, and nothing written.
func refuse(t *testing.T, args []string, want string) {
	t.Helper()
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	var out, errs strings.Builder
	if code := run(context.Background(), args, &out, &errs); code != exitInput {
		t.Errorf("exit code %d, want %d", code, exitInput)
	}
	if got := errs.String(); !strings.HasPrefix(got, "demo: ") || strings.Count(got, "\n") != 1 || !strings.Contains(got, want) {
		t.Errorf("got %q, want one line with %q", got, want)
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
	if _, err := parseOptions([]string{"-h"}, stores(), &help); !errors.Is(err, flag.ErrHelp) || !strings.Contains(help.String(), "-unfenced") {
		t.Errorf("got %v and %q, want the usage", err, help.String())
	}
}
