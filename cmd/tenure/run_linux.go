package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
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
	"github.com/tenure-go/tenure/fence"
)

// A process sends say lines to its guard, and the guard answers with tell lines.
const (
	sayUntil  = "until" // until NANOSECONDS: the time on CLOCK_BOOTTIME at which to end the command
	sayTerm   = "term"  // send SIGTERM to the process group
	sayKill   = "kill"  // send SIGKILL to all processes
	tellLeft  = "left"  // left COUNT PID NAME: the command ended without being asked, and left processes behind
	tellExit  = "exit"  // exit CODE [SIGNAL]: the command and all processes below it have ended
	tellError = "error" // error TEXT: the command could not be started
)

// A guard argument determines whether the command may become another user.
const (
	withSetuid    = "setuid"
	withoutSetuid = "no-setuid"
)

// boottime returns the time since the machine started, including suspensions. The clock is the same
// for all processes on the machine.
func boottime() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		return 0
	}
	return time.Duration(ts.Nano())
}

// guarded is the leading process's view of a command's guard.
type guarded struct {
	cmd    *exec.Cmd
	orders *os.File
	lines  chan string // closed when the guard is gone
	exit   *childExit
	left   string
	failed string
}

// adopt makes this process the parent of orphaned descendants, such as the children of a killed
// guard. Existing children do not belong to the command, so adopt records them.
func (r *runner) adopt() error {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("run: %w: the system gives no orphans: %w", core.ErrUnsupported, err)
	}
	r.spared = map[int]bool{}
	for _, pid := range children() {
		r.spared[pid] = true
	}
	return nil
}

// The handler runs the command under one lease, and returns when none of the command's processes is
// left. Another member may get the shard only after the handler has returned, or when trust ends.
// The guard ends the command before trust ends.
func (r *runner) handle(ctx context.Context, lease *core.Lease) error {
	r.working.Lock()
	defer r.working.Unlock()
	if r.quit {
		return nil
	}
	g, err := r.startGuard(lease)
	if err != nil {
		return fmt.Errorf("start the guard: %w", err)
	}
	asked := r.supervise(ctx, lease, g)
	_ = g.orders.Close()
	_ = g.cmd.Wait()
	endAll(r.log, 0, r.spared) // ends processes that a killed guard left behind
	if g.left != "" {
		r.leftBehind(g.left)
	}
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

func (r *runner) leftBehind(rest string) {
	if n := r.left.next(); n > 0 {
		var count, pid int
		var name string
		_, _ = fmt.Sscanf(rest, "%d %d %q", &count, &pid, &name)
		r.log.Warn("the command ended and left processes behind, which were ended: have it stay in the foreground",
			"shard", r.shard, "processes", count, "pid", pid, "name", name, "times", n)
	}
}

func (r *runner) startGuard(lease *core.Lease) (*guarded, error) {
	self, err := os.Executable()
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
	setuid := withoutSetuid
	if r.setuid || os.Geteuid() == 0 {
		setuid = withSetuid
	}
	//nolint:noctx // it ends its command and itself when its orders or its time end
	g.cmd = exec.Command(self, append([]string{guardName, strconv.FormatInt(int64(until), 10), setuid, "--"}, r.command...)...)
	g.cmd.Env = append(os.Environ(), "TENURE_SHARD="+lease.Shard(), fmt.Sprintf("TENURE_TOKEN=%d", lease.Token()),
		"TENURE_FENCE="+fence.Format(lease.Fence()))
	g.cmd.Stdin, g.cmd.Stdout, g.cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	g.cmd.ExtraFiles = []*os.File{orders, told}
	// A terminal that stops this process's group must not stop the guard, so the guard runs in a
	// separate session.
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

// Failures are ignored, because the guard's answers show whether the guard is gone or does not
// read.
func (g *guarded) say(words ...any) {
	_ = g.orders.SetWriteDeadline(time.Now().Add(10 * time.Millisecond)) // the pipe has room unless the guard is stopped
	_, _ = fmt.Fprintln(g.orders, words...)
}

func (g *guarded) hear(line string) {
	word, rest, _ := strings.Cut(line, " ")
	switch word {
	case tellExit:
		code, signal, _ := strings.Cut(rest, " ")
		n, _ := strconv.Atoi(code)
		g.exit = &childExit{n, signal}
	case tellError:
		g.failed = rest
	case tellLeft:
		g.left = rest
	}
}

// guardWait returns the time that the guard may take to obey an order. If the guard takes longer,
// this process ends the guard and its processes before another member may get the shard.
func (r *runner) guardWait() time.Duration { return min(200*time.Millisecond, r.margin/4) }

// supervise extends the guard's time limit and sends orders until the guard is gone. The result
// reports whether the command was asked to end.
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
				return asked
			}
			g.hear(line)
			continue
		case <-done:
			done = nil
			term()
		case <-tick.C:
		}
		now := boottime() // read before Remaining, so that the sum is early rather than late
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
				forceAt = time.Now().Add(r.guardWait())
			} else if time.Now().After(forceAt) { // the guard is stopped or may not end the command
				_ = g.cmd.Process.Kill()
			}
		}
	}
}

// The result includes children that have ended but have not been reaped.
func children() []int {
	var out []int
	lists, _ := filepath.Glob("/proc/self/task/*/children")
	for _, file := range lists {
		text, _ := os.ReadFile(file)
		for _, word := range strings.Fields(string(text)) {
			if n, err := strconv.Atoi(word); err == nil && n > 0 {
				out = append(out, n)
			}
		}
	}
	return out
}

// endAll ends and reaps all unspared descendants of this process, and returns when none is left. If
// leader, the command's process id, is not 0, endAll returns the command's exit status. A process
// whose parent ends becomes a child of this process, so a later round finds it. Each process that
// cannot be ended is logged once.
func endAll(log *slog.Logger, leader int, spared map[int]bool) (status syscall.WaitStatus) {
	const patience = time.Second // time for the kernel to end a killed process
	begun, said, pause, none := time.Now(), map[int]bool{}, time.Millisecond, 0
	for {
		if leader > 0 { // the leader has not been reaped, so its number still identifies its group
			_ = syscall.Kill(-leader, syscall.SIGKILL)
		}
		late := time.Since(begun) > patience
		if late {
			pause = 50 * time.Millisecond
		}
		none++
		for _, pid := range children() {
			if spared[pid] {
				continue
			}
			none = 0
			err := syscall.Kill(pid, syscall.SIGKILL)
			if (late || errors.Is(err, unix.EPERM)) && !said[pid] {
				said[pid] = true
				log.Error("a process of the command cannot be ended: the shard is kept, unless heartbeats fail; end the process",
					"pid", pid, "name", nameOf(pid), "user", userOf(pid), "error", err)
			}
		}
		for {
			pid, st, err := reap()
			if err != nil { // no child is left
				return status
			}
			if pid == 0 {
				break
			}
			delete(spared, pid)
			delete(said, pid)
			if pid == leader {
				status, leader = st, 0
			}
		}
		// If a process ends while the list is being read, another process may be missing from the
		// list.
		if none >= 3 && len(spared) > 0 {
			return status
		}
		time.Sleep(pause)
	}
}

// If no child has ended, the returned process id is 0.
func reap() (pid int, st syscall.WaitStatus, err error) {
	for {
		if pid, err = syscall.Wait4(-1, &st, syscall.WNOHANG, nil); !errors.Is(err, syscall.EINTR) {
			return pid, st, err
		}
	}
}

// Every process can choose its own name.
func nameOf(pid int) string {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
	return strings.TrimSuffix(string(text), "\n")
}

// userOf returns -1 if the user is unknown.
func userOf(pid int) int64 {
	var st unix.Stat_t
	if err := unix.Stat(fmt.Sprintf("/proc/%d", pid), &st); err != nil {
		return -1
	}
	return int64(st.Uid)
}

// A process counts as ended even if it has not been reaped.
func ended(pid int) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return true
	}
	// The format is "pid (name) state". The name may contain spaces and parentheses.
	f := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	return len(f) == 0 || f[0] == "Z" || f[0] == "X"
}

// The guard is a hidden subcommand that runs a command in a process group. The guard ends the
// command and all of its processes when ordered to, when trust ends, or when the leading process is
// gone. Processes that the command leaves behind become children of the guard. If the guard ends,
// the kernel kills the command, and the leading process becomes the parent of the other processes.
func guard(args []string, stderr io.Writer) int {
	var until int64
	var err error
	if len(args) >= 4 {
		until, err = strconv.ParseInt(args[0], 10, 64)
	}
	if len(args) < 4 || err != nil || args[2] != "--" {
		_, _ = fmt.Fprintln(stderr, "tenure: this command is for tenure run only")
		return exitUsage
	}
	orders, told := os.NewFile(3, "orders"), os.NewFile(4, "answers")
	syscall.CloseOnExec(3)
	syscall.CloseOnExec(4)
	fail := func(err error) int {
		_, _ = fmt.Fprintln(told, tellError, strings.ReplaceAll(err.Error(), "\n", " "))
		return exitOK
	}
	// The kernel kills the command when the thread that started it exits. The command also inherits
	// this thread's NO_NEW_PRIVS property.
	runtime.LockOSThread()
	cmd := exec.Command(args[3], args[4:]...) //nolint:noctx // the guard sends signals to the command when it is ordered to
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fail(err)
	}
	if args[1] != withSetuid {
		if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
			return fail(err)
		}
	}
	if boottime() >= time.Duration(until) {
		return exitOK
	}
	if err := cmd.Start(); err != nil {
		return fail(err)
	}
	pid := cmd.Process.Pid
	if watch(pid, time.Duration(until), orders) {
		tellRest(told, pid)
	}
	log := slog.New(slog.NewTextHandler(stderr, nil))
	code, signal := 0, ""
	if st := endAll(log, pid, nil); st.Signaled() {
		code, signal = int(st.Signal()), st.Signal().String()
	} else {
		code = st.ExitStatus()
	}
	_, _ = fmt.Fprintln(told, tellExit, code, signal)
	return exitOK
}

// tellRest reports the processes that the command left behind when it ended on its own.
func tellRest(told io.Writer, command int) {
	var left []int
	for _, pid := range children() {
		if pid != command && !ended(pid) {
			left = append(left, pid)
		}
	}
	if len(left) > 0 {
		_, _ = fmt.Fprintf(told, "%s %d %d %q\n", tellLeft, len(left), left[0], nameOf(left[0]))
	}
}

// The result reports whether the command ended on its own.
func watch(pid int, until time.Duration, orders *os.File) bool {
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		for {
			err := unix.Waitid(unix.P_PID, pid, &unix.Siginfo{}, unix.WEXITED|unix.WNOWAIT, nil)
			if !errors.Is(err, unix.EINTR) {
				return
			}
		}
	}()
	lines := make(chan string)
	stop := make(chan struct{})
	defer close(stop)
	go func() {
		defer close(lines)
		s := bufio.NewScanner(orders)
		for s.Scan() {
			select {
			case lines <- s.Text():
			case <-stop:
				return
			}
		}
	}()
	const (
		look = 20 * time.Millisecond // the guard polls, because timers stop while the machine is suspended
		reap = 50                    // number of looks between two reaps
	)
	tick := time.NewTicker(look)
	defer tick.Stop()
	asked := false
	for n := 1; boottime() < until; {
		select {
		case <-gone:
			return !asked
		case <-tick.C:
			if n++; n%reap == 0 {
				reapOthers(pid)
			}
		case line, ok := <-lines:
			word, rest, _ := strings.Cut(line, " ")
			switch {
			case !ok, word == sayKill:
				return false
			case word == sayTerm:
				asked = true
				_ = syscall.Kill(-pid, syscall.SIGTERM)
			case word == sayUntil:
				if n, err := strconv.ParseInt(rest, 10, 64); err == nil {
					until = time.Duration(n)
				}
			}
		}
	}
	return false
}

// While the command runs, reapOthers reaps those of its processes that have ended.
func reapOthers(command int) {
	for _, pid := range children() {
		if pid != command {
			_, _ = syscall.Wait4(pid, nil, syscall.WNOHANG, nil)
		}
	}
}
