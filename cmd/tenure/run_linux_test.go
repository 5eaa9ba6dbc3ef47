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

	"github.com/tenure-go/tenure/internal/proof/ample"
	"github.com/tenure-go/tenure/internal/proof/servers"
)

const runtimeIsLinux = true

// childVariable makes the test binary the command under run. Its value is the file that the command
// writes.
const (
	childVariable  = "TENURE_TEST_CHILD"
	ignoreVariable = "TENURE_TEST_IGNORE"     // SIGTERM
	grandVariable  = "TENURE_TEST_GRANDCHILD" // is below the command: "child", "fork" or "daemon"
	daemonVariable = "TENURE_TEST_DAEMON"     // the command's child is a daemon: two forks, and its own session
	userVariable   = "TENURE_TEST_USER"       // the user that all become
	runnerVariable = "TENURE_TEST_RUNNER"
)

// child writes a line every few milliseconds while it is alive, and so does its own child.
func child() {
	f, err := os.OpenFile(os.Getenv(childVariable), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		panic(err)
	}
	if os.Getenv(ignoreVariable) != "" {
		signal.Ignore(syscall.SIGTERM)
	}
	group := syscall.Getpgrp()
	switch os.Getenv(grandVariable) {
	case "":
		if os.Getenv(daemonVariable) != "" {
			below("fork", false)
		} else {
			below("child", false)
		}
	case "fork":
		below("daemon", true)
		return
	default:
		group = 0
	}
	if user, err := strconv.Atoi(os.Getenv(userVariable)); err == nil {
		if err := syscall.Setuid(user); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(9)
		}
	}
	for {
		line := fmt.Sprintf("%d %s %s %d\n", monotonic(), os.Getenv("TENURE_TOKEN"), os.Getenv(runnerVariable), group)
		if _, err := f.WriteString(line); err != nil {
			panic(err)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// below starts this program again.
func below(as string, session bool) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), grandVariable+"="+as)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: session}
	if err := cmd.Start(); err != nil {
		panic(err)
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

// A tenant is the output of the children under one lease.
type tenant struct {
	token       int64
	runner      string
	group       int
	first, last int64
	command     int64 // the last of the command itself
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
			x = &tenant{token: token, runner: runner, first: math.MaxInt64}
			byToken[token] = x
		}
		if group > 0 {
			x.group, x.command = group, at
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

// A race contains two processes that run a command under one shard, and faults of one kind.
type race struct {
	*testing.T
	p     *place
	file  string
	env   []string // of the command
	procs map[string]*exec.Cmd
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
		ample.Wait(r, runner+" does not join", func() bool { return joined() > before })
	}()
	cmd := r.p.command(context.Background(), "run", "--shard", "jobs", "--grace", "300ms", "--", os.Args[0])
	cmd.Env = append(cmd.Env, "TENURE__NODE="+runner, runnerVariable+"="+runner, childVariable+"="+r.file)
	cmd.Env = append(cmd.Env, r.env...)
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
	var x tenant
	ample.Wait(r, fmt.Sprintf("nobody leads after token %d", than), func() bool {
		if all := tenants(r.T, r.file); len(all) > 0 {
			x = all[len(all)-1]
		}
		return x.token > than && x.group > 0
	})
	return x
}

// ended waits until a stopped process's guard has ended the group, and until there is a successor.
// A process that was stopped during a write holds SQLite's lock. There is then no successor until
// the process continues.
func (r *race) ended(x tenant) {
	r.Helper()
	ample.Wait(r, fmt.Sprintf("the process that leads is stopped, and the group with token %d lives", x.token),
		func() bool { return !groupLives(x.group) })
	const patience = 6 * time.Second
	for range ample.During(patience, 10*time.Millisecond) {
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

// guard sends a signal to the guard of the command that leads, and returns the tenant of that
// command. On a busy machine, trust may have lapsed since x began, and the guard may have ended.
func (r *race) guard(x tenant, s syscall.Signal) tenant {
	r.Helper()
	for {
		if pid := parentOf(x.group); pid > 0 {
			switch err := syscall.Kill(pid, s); {
			case err == nil:
				return x
			case !errors.Is(err, syscall.ESRCH):
				r.Fatalf("%v to the guard %d: %v", s, pid, err)
			}
		}
		x = r.led(x.token)
	}
}

// TestRun: whatever fault the process that leads has, no two commands of one shard run at the same
// time, and no command is left behind.
func TestRun(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("-short: commands that are killed run in .ci/run")
	}
	for _, kind := range []string{"killed", "stopped", "stopped with its child", "its child ignores SIGTERM", "its guard is stopped",
		"its guard is killed", "killed, with a daemon", "stopped, with a daemon", "its guard is stopped, with a daemon",
		"its guard is killed, with a daemon", "killed, with a daemon of another user",
		"its guard is stopped, with a daemon of another user", "its guard is killed, with a daemon of another user"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			raced(t, kind, sqliteBackend(t))
		})
	}
}

// TestServedRun runs TestRun on servers.
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

// raced makes two processes race on a store, through as many faults of a kind as the flag says.
func raced(t *testing.T, kind, backend string) {
	r := newRace(t, backend)
	kind, below, _ := strings.Cut(kind, ", with ")
	if strings.HasPrefix(kind, "its child") || strings.HasPrefix(kind, "its guard is stopped") {
		r.env = append(r.env, ignoreVariable+"=1")
	}
	if below != "" {
		r.env = append(r.env, daemonVariable+"=1")
	}
	if strings.HasSuffix(below, "user") {
		if os.Geteuid() != 0 {
			t.Skip("only root's command can become another user without a set-user-ID file")
		}
		r.env = append(r.env, userVariable+"=65534")
	}
	t.Cleanup(r.end)
	r.start("a")
	r.start("b")
	last := int64(0)
	for range *rounds {
		x := r.led(last)
		r.hit(kind, x)
		last = r.led(x.token).token - 1 // the next round begins with this token
	}
}

// hit injects one fault into the process that leads.
func (r *race) hit(kind string, x tenant) {
	switch kind {
	case "its guard is killed":
		x = r.guard(x, syscall.SIGKILL)
		r.led(x.token)
		return
	case "its guard is stopped":
		x = r.guard(x, syscall.SIGSTOP)
	}
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
		// On a busy machine, the guard may have ended the group before this signal.
		if err := syscall.Kill(-x.group, syscall.SIGSTOP); err != nil && !errors.Is(err, syscall.ESRCH) {
			r.Errorf("SIGSTOP to group %d: %v", x.group, err)
		}
		r.ended(x)
		r.signal(pid, syscall.SIGCONT)
	default:
		r.signal(pid, syscall.SIGTERM)
		if err := cmd.Wait(); err != nil {
			r.Errorf("run: %v", err)
		}
		r.led(x.token)
		r.start(x.runner)
	}
}

// end stops both processes. It checks their output, and that nothing is left.
func (r *race) end() {
	for runner, cmd := range r.procs {
		_ = cmd.Process.Signal(syscall.SIGCONT)
		r.signal(cmd.Process.Pid, syscall.SIGTERM)
		if err := cmd.Wait(); err != nil {
			r.Errorf("run of %s: %v", runner, err)
		}
	}
	// A guard whose process was killed has no parent here.
	var left []string
	if !ample.Soon(context.Background(), func() bool {
		left = processes(childVariable + "=" + r.file)
		return len(left) == 0
	}) {
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

// groupLives reports whether a process of a group runs.
func groupLives(group int) bool {
	list, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, file := range list {
		text, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		f := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:])) // state ppid pgrp
		if len(f) > 2 && f[2] == strconv.Itoa(group) && f[0] != "Z" && f[0] != "X" {
			return true
		}
	}
	return false
}

// parentOf returns the process that started another, or 0 if that process has ended.
func parentOf(pid int) int {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	f := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	if n, err := strconv.Atoi(f[1]); err == nil && n > 1 && f[0] != "Z" {
		return n
	}
	return 0
}

// processes returns the processes that have an environment variable.
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

// written waits until a log contains a text the given number of times.
func written(t *testing.T, file, text string, times int) {
	t.Helper()
	ample.Wait(t, fmt.Sprintf("%s has %q less than %d times", file, text, times), func() bool {
		log, _ := os.ReadFile(file)
		return strings.Count(string(log), text) >= times
	})
}

// newRace makes a place for two processes that run a command, with a TTL of 1.5 s.
func newRace(t *testing.T, backend string) *race {
	t.Helper()
	p := newPlace(t, backend+"\n  margin: 450ms\n  heartbeat: 450ms\n  drain_budget: 10s\n  backoff_max: 400ms\n  open_timeout: 1m")
	text, err := os.ReadFile(p.path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(p.path, bytes.Replace(text, []byte("ttl: 5s"), []byte("ttl: 1500ms"), 1), 0o600); err != nil {
		t.Fatal(err)
	}
	p.run(exitOK, "init")
	return &race{T: t, p: p, file: filepath.Join(t.TempDir(), "alive"), procs: map[string]*exec.Cmd{}}
}

func sqliteBackend(t *testing.T) string {
	return fmt.Sprintf("sqlite: {path: %q, namespace: test}", filepath.Join(t.TempDir(), "test.db"))
}

// TestRunLeftBehind: if a command ends and leaves a daemon behind, the daemon is ended and the
// command is restarted. The log gives the reason once a minute.
func TestRunLeftBehind(t *testing.T) {
	t.Parallel()
	p := sqlitePlace(t)
	p.run(exitOK, "init")
	file := filepath.Join(t.TempDir(), "log")
	log, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	cmd := p.command(context.Background(), "run", "--shard", "jobs", "--restart", "always", "--", "sh", "-c", "setsid sleep 1000 & exit 0")
	cmd.Env = append(cmd.Env, childVariable+"="+file)
	cmd.Stderr = log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	written(t, file, "lease granted", 3)
	_ = cmd.Process.Signal(syscall.SIGTERM)
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	text, _ := os.ReadFile(file)
	if n := strings.Count(string(text), "left processes behind"); n != 1 || !strings.Contains(string(text), "processes=1 pid=") {
		t.Errorf("the log says %d times that a process was left, want once: %s", n, text)
	}
	if left := processes(childVariable + "=" + file); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// TestRunSetuid: a command may become another user only if a flag allows this. With the flag, the
// tool names a process that it cannot end, and keeps the shard until that process has ended.
func TestRunSetuid(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root can make a set-user-ID file of root")
	}
	const nobody = 65534
	dir, err := os.MkdirTemp("", "tenure-setuid-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	r := newRace(t, fmt.Sprintf("sqlite: {path: %q, namespace: test}", filepath.Join(dir, "test.db")))
	for from, to := range map[string]string{binary: "tenure", os.Args[0]: "command", r.p.path: "tenure.yaml"} {
		text, err := os.ReadFile(from)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, to), text, 0o755)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	command := filepath.Join(dir, "command")
	if err := os.Chmod(command, 0o755|os.ModeSetuid); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("chown", "-R", "--from=:", fmt.Sprint(nobody), filepath.Join(dir, "test.db"), dir).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if err := os.Chown(command, 0, 0); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(command, 0o755|os.ModeSetuid); err != nil { // chown took it off
		t.Fatal(err)
	}
	r.file = filepath.Join(dir, "alive")
	start := func(runner string, args ...string) *exec.Cmd {
		cmd := r.p.command(context.Background(), append(append([]string{"run", "--shard", "jobs", "--grace", "300ms"}, args...), "--", command)...)
		cmd.Path = filepath.Join(dir, "tenure")
		cmd.Env = append(cmd.Env, configVariable+"="+filepath.Join(dir, "tenure.yaml"), "TENURE__NODE="+runner, runnerVariable+"="+runner,
			childVariable+"="+r.file, userVariable+"=0", ignoreVariable+"=1")
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
		cmd.Dir = dir
		log, err := os.OpenFile(r.file+"."+runner, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		defer log.Close()
		cmd.Stderr = log
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		return cmd
	}
	cmd := start("forbidden", "--restart", "never")
	if _ = cmd.Wait(); cmd.ProcessState.ExitCode() != 9 {
		text, _ := os.ReadFile(r.file + ".forbidden")
		t.Fatalf("a command that becomes root: exit code %d, want 9, as it may not: %s", cmd.ProcessState.ExitCode(), text)
	}

	var token int64
	for i := range *rounds {
		token = r.keptFromEnding(start, i, token)
	}
	all := tenants(t, r.file)
	for i, y := range all[1:] {
		if x := all[i]; y.first <= x.last {
			t.Errorf("token %d, %s: ran for %v beside %s", x.token, x.runner, time.Duration(x.last-y.first), y.runner)
		}
	}
	t.Logf("%d rounds, %d commands", *rounds, len(all))
}

// keptFromEnding is a round of TestRunSetuid. The tool is asked to stop but cannot end its command.
// This command must not run at the same time as another runner's command. keptFromEnding returns
// the last granted token.
func (r *race) keptFromEnding(start func(runner string, args ...string) *exec.Cmd, round int, token int64) int64 {
	t := r.T
	runners := [2]string{fmt.Sprintf("a%d", round), fmt.Sprintf("b%d", round)}
	a := start(runners[0], "--allow-setuid")
	x := r.led(token)
	defer func() {
		if _ = syscall.Kill(-x.group, syscall.SIGKILL); t.Failed() {
			for _, runner := range runners {
				text, _ := os.ReadFile(r.file + "." + runner)
				t.Logf("%s", text)
			}
		}
	}()
	b := start(runners[1], "--allow-setuid")
	written(t, r.file+"."+runners[1], "session joined", 1)
	r.signal(a.Process.Pid, syscall.SIGTERM)
	written(t, r.file+"."+runners[0], "cannot be ended: the shard is kept", 1)
	time.Sleep(4 * time.Second) // more than two TTL
	if all := tenants(t, r.file); all[len(all)-1].token != x.token {
		t.Errorf("token %d was granted while the command with token %d could not be ended", all[len(all)-1].token, x.token)
	}
	r.signal(-x.group, syscall.SIGKILL)
	if err := a.Wait(); err != nil && !strings.Contains(err.Error(), "exit status 1") { // the handler was stuck
		t.Error(err)
	}
	y := r.led(x.token)
	last := tenants(t, r.file)[slices.IndexFunc(tenants(t, r.file), func(z tenant) bool { return z.token == x.token })].last
	if y.first <= last {
		t.Errorf("two commands ran at once for %v", time.Duration(last-y.first))
	}
	r.signal(-y.group, syscall.SIGKILL)
	r.signal(b.Process.Pid, syscall.SIGTERM)
	stopped := make(chan error, 1)
	go func() { stopped <- b.Wait() }()
	for { // until b has stopped, its command is started again
		select {
		case <-stopped:
			all := tenants(t, r.file)
			return all[len(all)-1].token
		case <-time.After(50 * time.Millisecond):
			all := tenants(t, r.file)
			_ = syscall.Kill(-all[len(all)-1].group, syscall.SIGKILL)
		}
	}
}

// TestRunUncovered measures the cases that docs/tenure.md names as not covered: the process and its
// guard are both stopped, or both are killed at the same time. Even then, killing both ends the
// command itself.
func TestRunUncovered(t *testing.T) {
	t.Parallel()
	for _, kind := range []syscall.Signal{syscall.SIGSTOP, syscall.SIGKILL} {
		t.Run(kind.String(), func(t *testing.T) {
			t.Parallel()
			r := newRace(t, sqliteBackend(t))
			r.env = []string{daemonVariable + "=1"}
			r.start(fmt.Sprintf("first-%d", kind)) // no other test's processes have the name
			r.led(0)
			r.start(fmt.Sprintf("second-%d", kind))
			x := r.guard(r.led(0), kind)
			guard := parentOf(x.group)
			r.signal(r.procs[x.runner].Process.Pid, kind)
			begun := monotonic()
			y := r.led(x.token)
			resumed := monotonic()
			if kind == syscall.SIGSTOP {
				r.signal(guard, syscall.SIGCONT)
			}
			ample.Wait(t, "the guard was resumed, and its command lives on", func() bool {
				return kind != syscall.SIGSTOP || len(processes(runnerVariable+"="+x.runner)) <= 1
			})
			var old tenant
			for _, z := range tenants(t, r.file) {
				if z.token == x.token {
					old = z
				}
			}
			t.Logf("%v: the successor began %v after it; the former command wrote for %v beside it, its daemon for %v; it ended %v after the guard went on",
				kind, time.Duration(y.first-begun), max(0, time.Duration(old.command-y.first)), max(0, time.Duration(old.last-y.first)),
				time.Duration(old.last-resumed))
			if kind == syscall.SIGKILL && old.command >= y.first {
				t.Errorf("the command lived on after its guard was killed")
			}
			if kind == syscall.SIGKILL {
				for _, p := range processes(runnerVariable + "=" + x.runner) {
					n, _ := strconv.Atoi(strings.Fields(p)[0])
					_ = syscall.Kill(n, syscall.SIGKILL)
				}
			}
			for _, cmd := range r.procs {
				_ = cmd.Process.Signal(syscall.SIGCONT)
				_ = cmd.Process.Signal(syscall.SIGTERM)
				_ = cmd.Wait()
			}
		})
	}
}
