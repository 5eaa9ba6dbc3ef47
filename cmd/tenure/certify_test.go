//go:build linux

package main

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/tenure-go/tenure/backends/sql/sqlite"
	"github.com/tenure-go/tenure/internal/proof/ample"
	"github.com/tenure-go/tenure/internal/proof/certify"
)

// quickly contains the flags of a short run.
var quickly = []string{"certify", "--seeds", "1", "--control-seeds", "1", "--steps", "4", "--cases", "^Commit/(AppliesWhenCurrent|FencedAfterTakeover)$"}

// database creates a place with a namespace, and returns the place and its file.
func database(t *testing.T) (*place, string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "test.db")
	p := newPlace(t, fmt.Sprintf("sqlite: {path: %q, namespace: team}", path))
	p.run(exitOK, "init")
	return p, path
}

// namespaces returns the namespaces in the file.
func namespaces(t *testing.T, path string) string {
	t.Helper()
	db, err := sqlite.OpenDB(path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	var all sql.NullString
	if err := db.QueryRow("SELECT group_concat(namespace) FROM tenure_namespaces").Scan(&all); err != nil {
		t.Fatal(err)
	}
	return all.String
}

// TestCertify: a correct store gets a good report, and the team's own namespace stays.
func TestCertify(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("-short: tenure certify runs in .ci/run")
	}
	p, path := database(t)
	p.run(exitOK, "freeze", "--yes")
	before, _ := p.run(exitOK, "export")
	dir := filepath.Join(t.TempDir(), "report")
	var got certify.Report
	p.decode(&got, append(quickly, "--report", dir)...)
	if got.Verdict != certify.Held || got.System == nil || got.System.Accepted < 1000 || got.Control == nil || got.Control.Damage == 0 ||
		got.Store.Backend != "sqlite" || !strings.HasPrefix(got.Store.Namespace, "team/certify-") || got.Tenure.Version == "" {
		t.Errorf("got %+v", got)
	}
	var saved certify.Report
	text, err := os.ReadFile(filepath.Join(dir, "certify.json"))
	if err == nil {
		err = json.Unmarshal(text, &saved)
	}
	if err != nil || saved.Store.Namespace != got.Store.Namespace || saved.Verdict != got.Verdict {
		t.Errorf("%v, saved %s", err, text)
	}
	md, err := os.ReadFile(filepath.Join(dir, "certify.md"))
	if err != nil || !strings.Contains(string(md), "# sqlite: held") || !strings.Contains(string(md), "| **F1** fenced commit | 2 |") {
		t.Errorf("%v:\n%s", err, md)
	}
	if all := namespaces(t, path); all != "team" {
		t.Errorf("left are the namespaces %s", all)
	}
	if after, _ := p.run(exitOK, "export"); after != before {
		t.Errorf("the team's namespace was changed:\n%s\nbefore:\n%s", after, before)
	}
	// Only the earlier report is replaced.
	p.run(exitOK, append(quickly, "--only", "conformance", "--report", dir)...)
	if err := os.WriteFile(filepath.Join(dir, "certify.md"), []byte("my notes"), 0o600); err != nil {
		t.Fatal(err)
	}
	p.bad(exitUsage, "is not replaced", append(quickly, "--report", dir)...)
	if text, err := os.ReadFile(filepath.Join(dir, "certify.md")); err != nil || string(text) != "my notes" {
		t.Errorf("the notes are %q, %v", text, err)
	}
}

// TestCertifyShowsALie: the report shows that a database drops rows of logs that it acknowledged.
func TestCertifyShowsALie(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("-short: tenure certify runs in .ci/run")
	}
	p, path := database(t)
	db, err := sqlite.OpenDB(path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.Exec("CREATE TRIGGER lose BEFORE INSERT ON tenure_logs WHEN NEW.last_seq % 3 = 0 BEGIN SELECT RAISE(IGNORE); END"); err != nil {
		t.Fatal(err)
	}
	out, errs := p.run(exitBroken, "certify", "--seeds", "1", "--steps", "4", "--only", "conformance,system", "--cases", "^Log/(Contiguous|TokensNonDecreasing)$")
	if !regexp.MustCompile(`tenure: the store broke rules: .*\b(L1|L2|F1|S15|S16)\b`).MatchString(errs) || !regexp.MustCompile(`(?m)^verdict +broken`).MatchString(out) {
		t.Errorf("got %s%s", out, errs)
	}
	if all := namespaces(t, path); all != "team" {
		t.Errorf("left are the namespaces %s", all)
	}
}

// TestCertifyTwice: two concurrent runs on one namespace do not affect each other.
func TestCertifyTwice(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("-short: tenure certify runs in .ci/run")
	}
	p, path := database(t)
	var both sync.WaitGroup
	for range 2 {
		both.Go(func() {
			if code, out, errs := p.exec(append(quickly, "--only", "conformance", "--cases", "^Acquire/")...); code != exitOK {
				t.Errorf("exit code %d: %s%s", code, out, errs)
			}
		})
	}
	both.Wait()
	if all := namespaces(t, path); all != "team" {
		t.Errorf("left are the namespaces %s", all)
	}
}

// TestCertifyInterrupted: in each phase, SIGINT ends the run and its processes, and removes its
// records.
func TestCertifyInterrupted(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ phase, at, flags string }{
		{"conformance", "conformance: 1 of", "conformance"}, {"system", "system: 100 runs", "system"}, {"control", "control: 100 runs", "control"},
	} {
		t.Run(c.phase, func(t *testing.T) {
			t.Parallel()
			p, path := database(t)
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			var out bytes.Buffer
			said := &watched{want: c.at, seen: make(chan struct{})}
			temp := t.TempDir()
			cmd := p.command(ctx, "certify", "--only", c.flags, "--seeds", "100", "--control-seeds", "100", "--report", filepath.Join(temp, "r"))
			cmd.Env = append(cmd.Env, "TMPDIR="+temp)
			cmd.Stdout, cmd.Stderr = &out, said
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			select {
			case <-said.seen:
			case <-ctx.Done():
				t.Fatalf("it wrote %s", said)
			}
			if c.phase != "conformance" {
				members(t, cmd.Process.Pid, 3)
			}
			if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
				t.Fatal(err)
			}
			var exited *exec.ExitError
			if err := cmd.Wait(); !errors.As(err, &exited) || exited.ExitCode() != exitInterrupted {
				t.Errorf("got %v: %s", err, said)
			}
			if all := namespaces(t, path); all != "team" {
				t.Errorf("left are the namespaces %s: %s", all, said)
			}
			if left, err := filepath.Glob(filepath.Join(temp, "*", "*")); err != nil || len(left) != 0 {
				t.Errorf("left are the files %q, %v", left, err)
			}
			if out.Len() != 0 || !strings.Contains(said.String(), "tenure: interrupted: removed ") {
				t.Errorf("it wrote %s, %s", &out, said)
			}
		})
	}
}

// members waits until a process has children, and fails the test if a child outlives the process.
func members(t *testing.T, pid, least int) {
	t.Helper()
	var pids []string
	ample.Wait(t, "the command does not start its members", func() bool {
		pids = nil
		tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
		for _, task := range tasks {
			text, _ := os.ReadFile(task)
			pids = append(pids, strings.Fields(string(text))...)
		}
		return len(pids) >= least
	})
	t.Cleanup(func() {
		for _, pid := range pids {
			if exe, err := os.Readlink("/proc/" + pid + "/exe"); err == nil && exe == binary {
				t.Errorf("member %s is left", pid)
			}
		}
	})
}

// watched collects the output of a command, until the output contains the wanted text.
type watched struct {
	mu   sync.Mutex
	text bytes.Buffer
	want string
	seen chan struct{}
	once sync.Once
}

func (w *watched) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	n, err := w.text.Write(b)
	if strings.Contains(w.text.String(), w.want) {
		w.once.Do(func() { close(w.seen) })
	}
	return n, err
}

func (w *watched) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.String()
}

// TestCertifyRefuses: bad arguments, and stores that cannot be opened, are refused without showing
// passwords.
func TestCertifyRefuses(t *testing.T) {
	t.Parallel()
	p, _ := database(t)
	for _, c := range [][]string{{"--seeds", "0"}, {"--control-seeds", "-1"}, {"--steps", "3"}, {"--ttl", "1h"}, {"--ttl", "1ms"}, {"--first-seed", "0"},
		{"--only", "opening"}, {"--cases", "("}, {"--cases", "^Acquire/Exclusiv$"}, {"argument"}} {
		p.bad(exitUsage, "", append([]string{"certify"}, c...)...)
	}
	dir := filepath.Join(t.TempDir(), "report")
	gone := newPlace(t, `postgres: {dsn: "postgres://me:planted@127.0.0.1:1/db", namespace: n}`)
	code, out, errs := gone.exec("certify", "--report", dir)
	md, err := os.ReadFile(filepath.Join(dir, "certify.md"))
	if code != exitUnreachable || err != nil || !strings.Contains(string(md), "# postgres: not opened") {
		t.Errorf("exit code %d, %v, %s%s", code, err, out, md)
	}
	if all := out + errs + string(md); strings.Contains(all, "planted") || strings.Contains(string(md), "setting") {
		t.Errorf("it shows the password, or the report has settings of a store that was not opened: %s", all)
	}
}

// TestMemberVariable: no command reads the variable that makes a process a member. Without a
// command, the variable gives the process no additional permissions.
func TestMemberVariable(t *testing.T) {
	t.Parallel()
	p, path := database(t)
	precious := filepath.Join(t.TempDir(), "precious")
	if err := os.WriteFile(precious, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	run := func(stdin string, args ...string) (int, string) {
		cmd := p.command(t.Context(), args...)
		cmd.Env = append(cmd.Env, "TENURE_SYSTEM_MEMBER=1")
		cmd.Stdin = strings.NewReader(stdin)
		out, _ := cmd.CombinedOutput()
		return cmd.ProcessState.ExitCode(), string(out)
	}
	member := fmt.Sprintf(`{"opener":"sqlite","options":{"path":%q,"namespace":"team"},"node":"n","process":"m1.1","shards":["s"],`+
		`"ttl":500000000,"pace":1000000,"seed":1,"history":%q,"journal":%q}`+"\n", path, precious, precious)
	if code, out := run(member, "version"); code != exitOK || !strings.Contains(out, "commit") {
		t.Errorf("version: exit code %d, %s", code, out)
	}
	for _, stdin := range []string{"", "{", "null\n", member, strings.Repeat("x", 2<<20)} {
		if code, out := run(stdin); code == exitOK {
			t.Errorf("%.40q: exit code %d, %s", stdin, code, out)
		}
	}
	if text, err := os.ReadFile(precious); err != nil || string(text) != "precious" {
		t.Errorf("a file that was there has %q, %v", text, err)
	}
}
