package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tenure-go/tenure/core"
)

// What a process tells its guard, and the guard answers, a line each.
const (
	sayUntil  = "until" // until NANOSECONDS of CLOCK_BOOTTIME: end the group then
	sayTerm   = "term"  // SIGTERM to the group
	sayKill   = "kill"  // SIGKILL to the group
	tellStart = "start" // start PID
	tellExit  = "exit"  // exit CODE [SIGNAL]: the command has ended
	tellError = "error" // error TEXT: it could not be started
	tellGone  = "gone"  // no process of the group is left
	fenceVar  = "TENURE_FENCE_FILE"
	guardWait = 200 * time.Millisecond // for the guard to do what it was asked, before this process does it
)

// boottime is the time since the machine started, its suspensions included. All
// processes of the machine see the same.
func boottime() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		return 0
	}
	return time.Duration(ts.Nano())
}

// guarded is a command's guard, as the process that leads sees it.
type guarded struct {
	cmd    *exec.Cmd
	orders *os.File
	lines  chan string // closed when the guard is gone
	pid    int         // of the command, 0 before it started
	exit   *childExit
	gone   bool
	failed string
}

// handle runs the command under one lease. It returns when no process of its group is
// left, and the lease passes on only then, or at the end of trust, before which the
// guard has ended the group.
func (r *runner) handle(ctx context.Context, lease *core.Lease) error {
	dir, err := fenceFile(lease)
	if err != nil {
		r.end(err)
		return err
	}
	defer os.RemoveAll(dir)
	g, err := r.startGuard(lease, dir)
	if err != nil {
		return fmt.Errorf("start the guard: %w", err)
	}
	asked := r.supervise(ctx, lease, g)
	_ = g.orders.Close()
	_ = g.cmd.Wait()
	switch {
	case g.failed != "":
		err := usage(fmt.Sprintf("the command %s cannot be run: %s", quoted(r.command[0]), g.failed))
		r.end(err)
		return err
	case g.exit != nil && !asked:
		return r.decide(*g.exit)
	case ctx.Err() != nil:
		return nil
	case g.exit != nil:
		return *g.exit
	}
	return errGuard
}

// fenceFile writes the fence into a directory of its own.
func fenceFile(lease *core.Lease) (dir string, err error) {
	if dir, err = os.MkdirTemp("", "tenure-run-"); err != nil {
		return "", fmt.Errorf("no temporary directory: %w: set TMPDIR", err)
	}
	text, err := json.Marshal(lease.Fence())
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "fence.json"), append(text, '\n'), 0o600)
	}
	if err != nil {
		return "", errors.Join(err, os.RemoveAll(dir))
	}
	return dir, nil
}

// startGuard starts the guard, which starts the command.
func (r *runner) startGuard(lease *core.Lease, dir string) (*guarded, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	fence, err := json.Marshal(lease.Fence())
	if err != nil {
		return nil, err
	}
	orders, ours, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	theirs, told, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, orders.Close(), ours.Close())
	}
	g := &guarded{orders: ours, lines: make(chan string, 16)}
	until := boottime() + lease.Remaining()
	g.cmd = exec.Command(self, append([]string{guardName, strconv.FormatInt(int64(until), 10), "--"}, r.command...)...)
	g.cmd.Env = append(os.Environ(), "TENURE_SHARD="+lease.Shard(), fmt.Sprintf("TENURE_TOKEN=%d", lease.Token()),
		"TENURE_FENCE="+string(fence), fenceVar+"="+filepath.Join(dir, "fence.json"))
	g.cmd.Stdin, g.cmd.Stdout, g.cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	g.cmd.ExtraFiles = []*os.File{orders, told}
	// What stops this process's group, such as a terminal, does not stop the guard.
	g.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	err = g.cmd.Start()
	if err = errors.Join(err, orders.Close(), told.Close()); err != nil {
		return nil, errors.Join(err, ours.Close(), theirs.Close())
	}
	go func() {
		defer close(g.lines)
		s := bufio.NewScanner(theirs)
		for s.Scan() {
			g.lines <- s.Text()
		}
		_ = theirs.Close()
	}()
	return g, nil
}

// say gives the guard an order. A guard that is gone, or does not read, shows by what
// it answers.
func (g *guarded) say(words ...any) {
	_ = g.orders.SetWriteDeadline(time.Now().Add(guardWait))
	_, _ = fmt.Fprintln(g.orders, words...)
}

// hear takes in a line of the guard.
func (g *guarded) hear(line string) {
	word, rest, _ := strings.Cut(line, " ")
	switch word {
	case tellStart:
		g.pid, _ = strconv.Atoi(rest)
	case tellExit:
		code, signal, _ := strings.Cut(rest, " ")
		n, _ := strconv.Atoi(code)
		g.exit = &childExit{n, signal}
	case tellError:
		g.failed = rest
	case tellGone:
		g.gone = true
	}
}

// kill ends the group without the guard.
func (g *guarded) kill() {
	if g.pid > 0 && !g.gone {
		_ = syscall.Kill(-g.pid, syscall.SIGKILL)
	}
}

// supervise keeps the guard up to date until the group is gone. It reports whether the
// command was asked to end.
func (r *runner) supervise(ctx context.Context, lease *core.Lease, g *guarded) (asked bool) {
	tick := time.NewTicker(min(max(r.trust/100, 2*time.Millisecond), 100*time.Millisecond))
	defer tick.Stop()
	done := ctx.Done()
	var killAt, forceAt time.Time
	told := time.Duration(0)
	term := func() {
		if killAt.IsZero() {
			asked = true
			g.say(sayTerm)
			killAt = time.Now().Add(r.grace)
		}
	}
	for {
		select {
		case line, ok := <-g.lines:
			if !ok {
				if !g.gone && g.failed == "" {
					g.kill()
					waitGone(g.pid)
				}
				return asked
			}
			g.hear(line)
			continue
		case <-done:
			done = nil
			term()
		case <-tick.C:
		}
		now := boottime() // before Remaining, so that the sum is early rather than late
		remaining := lease.Remaining()
		if until := now + remaining; remaining > 0 && until > told+time.Millisecond {
			told = until
			g.say(sayUntil, int64(until))
		}
		if remaining < min(r.grace, r.trust/4) {
			term()
		}
		if remaining == 0 || !killAt.IsZero() && time.Now().After(killAt) {
			asked = true
			if forceAt.IsZero() {
				g.say(sayKill)
				forceAt = time.Now().Add(guardWait)
			} else if time.Now().After(forceAt) {
				g.kill()
				if time.Now().After(forceAt.Add(guardWait)) { // it is stopped, or hangs
					_ = g.cmd.Process.Kill()
				}
			}
		}
	}
}

// waitGone waits until no process of a group is left.
func waitGone(pgid int) {
	for pgid > 0 && groupLives(pgid) {
		time.Sleep(5 * time.Millisecond)
	}
}

// groupLives reports whether a process of the group runs. One that has ended and waits
// to be reaped does not.
func groupLives(pgid int) bool {
	if errors.Is(syscall.Kill(-pgid, 0), syscall.ESRCH) {
		return false
	}
	list, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil || len(list) == 0 {
		return true
	}
	for _, file := range list {
		text, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		// pid (name) state ppid pgrp: the name may have blanks and brackets.
		f := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
		if len(f) > 2 && f[2] == strconv.Itoa(pgid) && f[0] != "Z" && f[0] != "X" {
			return true
		}
	}
	return false
}

// endChildren ends and reaps all that is below this process, such as what has left the
// command's group.
func endChildren() {
	for {
		pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil)
		switch {
		case errors.Is(err, syscall.EINTR), pid > 0:
			continue
		case err != nil: // no child is left
			return
		}
		lists, _ := filepath.Glob("/proc/self/task/*/children")
		for _, file := range lists {
			text, _ := os.ReadFile(file)
			for _, word := range strings.Fields(string(text)) {
				if n, err := strconv.Atoi(word); err == nil && n > 0 {
					_ = syscall.Kill(n, syscall.SIGKILL)
				}
			}
		}
		time.Sleep(time.Millisecond)
	}
}

// guard is the hidden subcommand: it runs a command in a process group, and ends the
// group when it is told to, when trust ends, and when the process that leads is gone.
// What the command leaves behind becomes the guard's, which ends it, too. The kernel
// ends the command with the guard.
func guard(args []string, stderr interface{ Write([]byte) (int, error) }) int {
	if len(args) < 3 || args[1] != "--" {
		fmt.Fprintln(stderr, "tenure: this command is for tenure run only")
		return exitUsage
	}
	until, err := strconv.ParseInt(args[0], 10, 64)
	if err != nil {
		fmt.Fprintln(stderr, "tenure: this command is for tenure run only")
		return exitUsage
	}
	orders, told := os.NewFile(3, "orders"), os.NewFile(4, "answers")
	syscall.CloseOnExec(3)
	syscall.CloseOnExec(4)
	defer func() {
		if file := os.Getenv(fenceVar); strings.HasPrefix(filepath.Base(filepath.Dir(file)), "tenure-run-") {
			_ = os.Remove(file)
			_ = os.Remove(filepath.Dir(file))
		}
	}()
	// The kernel ends the command with the thread that started it.
	runtime.LockOSThread()
	cmd := exec.Command(args[2], args[3:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	// Older kernels do without: then only the group is ended.
	_ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
	if boottime() >= time.Duration(until) {
		fmt.Fprintln(told, tellGone)
		return exitOK
	}
	if err := cmd.Start(); err != nil {
		fmt.Fprintln(told, tellError, strings.ReplaceAll(err.Error(), "\n", " "))
		return exitOK
	}
	pid := cmd.Process.Pid
	fmt.Fprintln(told, tellStart, pid)
	watch(pid, time.Duration(until), orders)
	// The command has ended and is not reaped yet, so its group's number is its own.
	_ = syscall.Kill(-pid, syscall.SIGKILL)
	_ = cmd.Wait()
	code, signal := cmd.ProcessState.ExitCode(), ""
	if st, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && st.Signaled() {
		code, signal = int(st.Signal()), st.Signal().String()
	}
	fmt.Fprintln(told, tellExit, code, signal)
	endChildren()
	fmt.Fprintln(told, tellGone)
	return exitOK
}

// watch returns when the command has ended, which it makes happen in time.
func watch(pid int, until time.Duration, orders *os.File) {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			err := unix.Waitid(unix.P_PID, pid, &unix.Siginfo{}, unix.WEXITED|unix.WNOWAIT, nil)
			if !errors.Is(err, unix.EINTR) {
				return
			}
		}
	}()
	lines := make(chan string)
	go func() {
		defer close(lines)
		s := bufio.NewScanner(orders)
		for s.Scan() {
			select {
			case lines <- s.Text():
			case <-ended:
				return
			}
		}
	}()
	const look = 20 * time.Millisecond // timers stand still while the machine is suspended
	tick := time.NewTicker(look)
	defer tick.Stop()
	dead := false
	for {
		if dead = dead || boottime() >= until; dead {
			_ = syscall.Kill(-pid, syscall.SIGKILL)
		}
		select {
		case <-ended:
			return
		case <-tick.C:
		case line, ok := <-lines:
			word, rest, _ := strings.Cut(line, " ")
			switch {
			case !ok:
				dead, lines = true, nil
			case word == sayKill:
				dead = true
			case word == sayTerm:
				_ = syscall.Kill(-pid, syscall.SIGTERM)
			case word == sayUntil:
				if n, err := strconv.ParseInt(rest, 10, 64); err == nil {
					until = time.Duration(n)
				}
			}
		}
	}
}
