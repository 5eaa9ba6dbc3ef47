package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tenure-go/tenure/internal/servers"
)

const runtimeIsLinux = true

// childVariable makes the test binary the command under run; it names the file that it
// writes to.
const (
	childVariable  = "TENURE_TEST_CHILD"
	ignoreVariable = "TENURE_TEST_IGNORE"     // SIGTERM
	grandVariable  = "TENURE_TEST_GRANDCHILD" // is a child of the command
	runnerVariable = "TENURE_TEST_RUNNER"
)

// child writes a line every few milliseconds for as long as it lives, and so does its
// own child.
func child() {
	f, err := os.OpenFile(os.Getenv(childVariable), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		panic(err)
	}
	if os.Getenv(ignoreVariable) != "" {
		signal.Ignore(syscall.SIGTERM)
	}
	if os.Getenv(grandVariable) == "" {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), grandVariable+"=1")
		if err := cmd.Start(); err != nil {
			panic(err)
		}
	}
	for {
		line := fmt.Sprintf("%d %s %s %d\n", monotonic(), os.Getenv("TENURE_TOKEN"), os.Getenv(runnerVariable),
			syscall.Getpgrp())
		if _, err := f.WriteString(line); err != nil {
			panic(err)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// monotonic is a clock that all processes of the machine share.
func monotonic() int64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic(err)
	}
	return ts.Nano()
}

// A tenant is what the children under one lease wrote.
type tenant struct {
	token       int64
	runner      string
	group       int
	first, last int64
}

// tenants reads the children's file.
func tenants(t *testing.T, file string) []tenant {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	text = text[:bytes.LastIndexByte(text, '\n')+1]
	byToken := map[int64]*tenant{}
	for line := range strings.Lines(string(text)) {
		var at, token int64
		var runner string
		var group int
		if _, err := fmt.Sscan(line, &at, &token, &runner, &group); err != nil {
			t.Fatalf("%v: %q", err, line)
		}
		x := byToken[token]
		if x == nil {
			x = &tenant{token: token, runner: runner, group: group, first: math.MaxInt64}
			byToken[token] = x
		}
		x.first, x.last = min(x.first, at), max(x.last, at)
	}
	var out []tenant
	for _, x := range byToken {
		out = append(out, *x)
	}
	slices.SortFunc(out, func(a, b tenant) int { return int(a.token - b.token) })
	return out
}

// A race is two processes that run a command under one shard, and the faults of one kind.
type race struct {
	*testing.T
	p      *place
	file   string
	ignore bool
	procs  map[string]*exec.Cmd
}

// start starts a process, and waits until it takes part.
func (r *race) start(runner string) {
	r.Helper()
	joined := func() int {
		text, _ := os.ReadFile(r.file + ".log")
		return strings.Count(string(text), "session joined")
	}
	before := joined()
	defer func() {
		for end := time.Now().Add(limit); joined() == before; time.Sleep(10 * time.Millisecond) {
			if time.Now().After(end) {
				r.Fatalf("%s does not join", runner)
			}
		}
	}()
	cmd := r.p.command(context.Background(), "run", "--shard", "jobs", "--grace", "300ms", "--", os.Args[0])
	cmd.Env = append(cmd.Env, "TENURE__NODE="+runner, runnerVariable+"="+runner, childVariable+"="+r.file)
	if r.ignore {
		cmd.Env = append(cmd.Env, ignoreVariable+"=1")
	}
	log, err := os.OpenFile(r.file+".log", os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		r.Fatal(err)
	}
	cmd.Stderr = log
	if err := cmd.Start(); err != nil {
		r.Fatal(err)
	}
	_ = log.Close()
	r.procs[runner] = cmd
}

// led waits for a tenant with a greater token.
func (r *race) led(than int64) tenant {
	r.Helper()
	for end := time.Now().Add(limit); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if all := tenants(r.T, r.file); len(all) > 0 && all[len(all)-1].token > than {
			return all[len(all)-1]
		}
	}
	log, _ := os.ReadFile(r.file + ".log")
	r.Fatalf("nobody leads after token %d: %s", than, log)
	return tenant{}
}

// ended waits until the guard of a process that is stopped has ended the group, and for
// a successor. A process that was stopped within a write has SQLite's lock, so that there
// is none before it goes on.
func (r *race) ended(x tenant) {
	r.Helper()
	for end := time.Now().Add(limit); groupLives(x.group); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			r.Fatalf("the group with token %d still lives, and the process that leads is stopped", x.token)
		}
	}
	const patience = 6 * time.Second
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if all := tenants(r.T, r.file); all[len(all)-1].token > x.token {
			return
		}
	}
	r.Logf("nobody succeeded token %d within %v: the process was stopped within a write", x.token, patience)
}

func (r *race) signal(pid int, s syscall.Signal) {
	r.Helper()
	if err := syscall.Kill(pid, s); err != nil {
		r.Errorf("%v to %d: %v", s, pid, err)
	}
}

// TestRun: whatever happens to the process that leads, no two commands of one shard run
// at once, and none is left behind.
func TestRun(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"killed", "stopped", "stopped with its child", "its child ignores SIGTERM", "its guard is stopped"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			raced(t, kind, fmt.Sprintf("sqlite: {path: %q, namespace: test}", filepath.Join(t.TempDir(), "test.db")))
		})
	}
}

// TestServedRun is the same on servers.
func TestServedRun(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"killed", "stopped", "stopped with its child", "its child ignores SIGTERM"} {
		t.Run("postgres/"+kind, func(t *testing.T) {
			t.Parallel()
			raced(t, kind, fmt.Sprintf("postgres: {dsn: %q, namespace: test}",
				pool.Get(t, servers.Postgres, nil).Database(t).Reveal()))
		})
		t.Run("mysql/"+kind, func(t *testing.T) {
			t.Parallel()
			raced(t, kind, fmt.Sprintf("mysql: {dsn: %q, namespace: test}",
				pool.Get(t, servers.MariaDB, nil).Database(t).Reveal()))
		})
		for server, format := range atAddress {
			t.Run(string(server)+"/"+kind, func(t *testing.T) {
				t.Parallel()
				namespace := strings.ReplaceAll(kind, " ", "-")
				raced(t, kind, strings.Replace(fmt.Sprintf(format, pool.Get(t, server, nil).Addr()), "namespace: test",
					"namespace: "+namespace, 1))
			})
		}
	}
}

// raced has two processes race on a store, through as many faults of a kind as the flag says.
func raced(t *testing.T, kind, backend string) {
	p := newPlace(t, backend+"\n  margin: 450ms\n  heartbeat: 450ms\n  drain_budget: 10s")
	text, err := os.ReadFile(p.path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(p.path, bytes.Replace(text, []byte("ttl: 3s"), []byte("ttl: 1500ms"), 1), 0o600); err != nil {
		t.Fatal(err)
	}
	p.run(exitOK, "init")
	r := &race{T: t, p: p, file: filepath.Join(t.TempDir(), "alive"), ignore: strings.HasPrefix(kind, "its child"),
		procs: map[string]*exec.Cmd{}}
	t.Cleanup(r.end)
	r.start("a")
	r.start("b")
	last := int64(0)
	for range *rounds {
		x := r.led(last)
		r.hit(kind, x)
		last = r.led(x.token).token - 1 // so that the next round begins with it
	}
}

// hit does one fault to the process that leads.
func (r *race) hit(kind string, x tenant) {
	cmd := r.procs[x.runner]
	pid := cmd.Process.Pid
	switch kind {
	case "killed":
		r.signal(pid, syscall.SIGKILL)
		_ = cmd.Wait()
		r.led(x.token)
		r.start(x.runner)
	case "stopped":
		r.signal(pid, syscall.SIGSTOP)
		r.ended(x)
		r.signal(pid, syscall.SIGCONT)
	case "stopped with its child":
		r.signal(pid, syscall.SIGSTOP)
		// On a busy machine the guard may have ended the group before this signal.
		if err := syscall.Kill(-x.group, syscall.SIGSTOP); err != nil && !errors.Is(err, syscall.ESRCH) {
			r.Errorf("SIGSTOP to group %d: %v", x.group, err)
		}
		r.ended(x)
		r.signal(pid, syscall.SIGCONT)
	default:
		if kind == "its guard is stopped" {
			r.signal(parentOf(r.T, x.group), syscall.SIGSTOP)
		}
		r.signal(pid, syscall.SIGTERM)
		if err := cmd.Wait(); err != nil {
			r.Errorf("run: %v", err)
		}
		r.led(x.token)
		r.start(x.runner)
	}
}

// end stops both processes, and checks what was written and what is left.
func (r *race) end() {
	for runner, cmd := range r.procs {
		_ = cmd.Process.Signal(syscall.SIGCONT)
		r.signal(cmd.Process.Pid, syscall.SIGTERM)
		if err := cmd.Wait(); err != nil {
			r.Errorf("run of %s: %v", runner, err)
		}
	}
	// A guard whose process was killed is nobody's here.
	left := []string{"?"}
	for end := time.Now().Add(10 * time.Second); len(left) > 0 &&
		time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		left = processes(childVariable + "=" + r.file)
	}
	if len(left) > 0 {
		r.Errorf("left behind: %v", left)
	}
	all := tenants(r.T, r.file)
	for i := 1; i < len(all); i++ {
		if a, b := all[i-1], all[i]; b.first <= a.last {
			r.Errorf("the commands with tokens %d (of %s) and %d (of %s) ran at once for %v", a.token, a.runner,
				b.token, b.runner,
				time.Duration(a.last-b.first))
		}
	}
	if len(all) < *rounds+1 {
		r.Errorf("%d commands ran in %d rounds", len(all), *rounds)
	}
	if r.Failed() {
		log, _ := os.ReadFile(r.file + ".log")
		r.Logf("%s", log)
	}
}

// parentOf is the process that started another.
func parentOf(t *testing.T, pid int) int {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	f := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	n, err := strconv.Atoi(f[1])
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// processes are those with an environment variable.
func processes(variable string) []string {
	var out []string
	list, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, file := range list {
		text, err := os.ReadFile(file)
		if err != nil || !slices.Contains(strings.Split(string(text), "\x00"), variable) {
			continue
		}
		pid := filepath.Base(filepath.Dir(file))
		if n, err := strconv.Atoi(pid); err == nil && n != os.Getpid() {
			name, _ := os.ReadFile("/proc/" + pid + "/cmdline")
			out = append(out, pid+" "+strings.ReplaceAll(string(name), "\x00", " "))
		}
	}
	return out
}
