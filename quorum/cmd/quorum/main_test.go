package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tenure-go/tenure/internal/proof/ample"
	"github.com/tenure-go/tenure/quorum"
)

// started starts a cluster of one member, and returns the path of its configuration.
func started(t *testing.T) (config string, of quorum.Config) {
	t.Helper()
	host := fmt.Sprintf("127.%d.%d.%d", 1+rand.IntN(254), rand.IntN(256), 1+rand.IntN(254))
	of = quorum.Config{Cluster: "orders", Members: []quorum.Address{{Name: "a", Peer: host + ":2380", Client: host + ":2379"}}}
	ctx, cancel := context.WithTimeout(t.Context(), ample.Time)
	defer cancel()
	m, err := quorum.Start(ctx, quorum.Config{Cluster: of.Cluster, Members: of.Members, Name: "a", Create: true,
		Dir: filepath.Join(t.TempDir(), "a"), Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	ample.Wait(t, "the member has not published its name", func() bool {
		all, err := m.Members(ctx)
		return err == nil && all[0].Name == "a"
	})
	return written(t, of), of
}

func written(t *testing.T, v any) string {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "quorum.json")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// runs runs the command, compares its exit code, and looks for words in its output.
func runs(t *testing.T, code int, words string, args ...string) {
	t.Helper()
	var out, errs bytes.Buffer
	got := run(t.Context(), args, &out, &errs)
	text := out.String() + errs.String()
	if got != code || !strings.Contains(text, words) {
		t.Errorf("%.300q: exit code %d, want %d, with %q: %s", args, got, code, words, text)
	}
	if code != exitOK && (strings.Count(errs.String(), "\n") != 1 || !strings.HasPrefix(errs.String(), "quorum: ")) {
		t.Errorf("%.300q: not one line of errors: %q", args, &errs)
	}
	if len(text) > 2000 || strings.ContainsAny(text, "\x1b\x00\u202e") {
		t.Errorf("%.300q: the output has %d bytes, or control characters: %.300q", args, len(text), text)
	}
}

func TestCommand(t *testing.T) {
	t.Parallel()
	config, of := started(t)
	with := func(args ...string) []string { return append([]string{"-config", config}, args...) }
	runs(t, exitOK, "leader", with("members")...)
	runs(t, exitNotFound, "no member", with("-yes", "remove", "z")...)
	runs(t, exitRefused, "add -yes", with("remove", "a")...)
	runs(t, exitRefused, "runs at", with("replace", "a")...)
	runs(t, exitNotFound, "correct the name", with("replace", "b")...)
	of.Members = append(of.Members, quorum.Address{Name: "b", Peer: "127.0.0.1:1", Client: "127.0.0.1:2"})
	runs(t, exitOK, `quorum.Replace(ctx, quorum.Config{Cluster: "orders", Name: "b"`, "-config", written(t, of), "replace", "b")

	dir := t.TempDir()
	good := filepath.Join(dir, "good")
	runs(t, exitOK, "wrote", with("snapshot", good)...)
	runs(t, exitOK, "quorum.Restore(ctx, config, path, time.Unix(", with("restore", good)...)
	runs(t, exitOther, "no such file", with("snapshot", filepath.Join(dir, "none", "x"))...)
	runs(t, exitNotFound, "no such file", with("restore", filepath.Join(dir, "none"))...)
	runs(t, exitDamaged, "not a snapshot", with("restore", dir)...)
	runs(t, exitDamaged, "not a snapshot", with("restore", config)...)
	runs(t, exitDamaged, "not a snapshot", with("restore", os.Args[0])...)
}

// TestHostile: arguments and files from anywhere lead to one short line, without control characters.
func TestHostile(t *testing.T) {
	t.Parallel()
	config, of := started(t)
	with := func(args ...string) []string { return append([]string{"-config", config}, args...) }
	for _, name := range []string{"\x1b[2J", "a\nb", "\u202eb", "-yes", strings.Repeat("x", maxPath), "\xff\xfe", "../../etc"} {
		runs(t, exitNotFound, "", with("-yes", "remove", name)...)
	}
	for _, args := range [][]string{nil, {"members", "x"}, {"remove"}, {"remove", ""}, {"snapshot"}, {"\x1b"}, {"-x\x1b", "members"},
		{"-timeout", "1ns", "members"}, {"-timeout", "-5s", "members"}, {"remove", strings.Repeat("x", maxPath+1)},
		{"snapshot", "a\x00b"}, {"remove", strings.Repeat("\x1b", 1<<20)}} {
		runs(t, exitUsage, "", with(args...)...)
	}
	runs(t, exitOK, "use: quorum", "-h")

	runs(t, exitUsage, "no such file", "-config", filepath.Join(t.TempDir(), "\x1bnone"), "members")
	bad := of
	bad.Cluster = "\x1b" + strings.Repeat("x", 1000)
	runs(t, exitUsage, "Cluster", "-config", written(t, bad), "members")
	runs(t, exitUsage, "unknown field", "-config", written(t, map[string]string{"Folder": "/"}), "members")
	runs(t, exitUsage, "use JSON of at most", "-config", written(t, strings.Repeat("x", maxFile)), "members")
	runs(t, exitUsage, "use JSON of at most", "-config", t.TempDir(), "members")
	runs(t, exitUsage, "use JSON of at most", "-config", os.Args[0], "members")

	bad = of
	bad.Members = []quorum.Address{{Name: "a", Peer: "127.0.0.1:1", Client: "127.0.0.1:2"}}
	for _, args := range [][]string{{"members"}, {"-yes", "remove", "a"}, {"replace", "a"}, {"snapshot", filepath.Join(t.TempDir(), "x")}} {
		runs(t, exitUnreachable, "", append([]string{"-config", written(t, bad), "-timeout", "1s"}, args...)...)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	var out bytes.Buffer
	if code := run(ended, with("members"), &out, &out); code != exitInterrupted {
		t.Errorf("with an ended context: exit code %d, want %d: %s", code, exitInterrupted, &out)
	}
}
