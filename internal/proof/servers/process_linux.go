package servers

import (
	"context"
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
)

// pollPeriod is the time between two reads of a state whose changes the kernel does not report. For
// example, it does not report that a process other than a child has ended or stopped, or that a
// port is open.
const pollPeriod = 5 * time.Millisecond

// faultTimeout limits a fault whose caller sets no limit.
const faultTimeout = 30 * time.Second

// process is a running child. When this process dies, the kernel kills the child.
type process struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when the child was waited for
}

// startProcess starts cmd on a thread that lives as long as the child. The kernel sends the death
// signal when the thread that started the child ends.
func startProcess(cmd *exec.Cmd) (*process, error) {
	p := &process{cmd: cmd, done: make(chan struct{})}
	started := make(chan error)
	go func() {
		defer close(p.done)
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // only the end matters: the process was killed, or its log has the reason
		}
	}()
	return p, <-started
}

// account is the user that runs servers. Nil means the current user.
type account struct{ uid, gid uint32 }

// attributes returns the attributes of a server's processes.
func (a *account) attributes() *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if a != nil {
		attr.Credential = &syscall.Credential{Uid: a.uid, Gid: a.gid}
	}
	return attr
}

// run runs a command that prepares a server, in the data directory.
func (l *local) run(ctx context.Context, stdin, path string, args ...string) error {
	runtime.LockOSThread() // for the death signal
	defer runtime.UnlockOSThread()
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Dir, cmd.Stdin = l.path("data"), strings.NewReader(stdin)
	cmd.Env = environment()
	cmd.SysProcAttr = l.account.attributes()
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s failed: %w: %s", filepath.Base(path), err, tail(out, 2048))
	}
	return nil
}

// environment returns the environment without variables for database clients (PGPORT, MYSQL_HOST).
func environment() []string {
	return []string{"PATH=" + os.Getenv("PATH") + ":/usr/sbin:/sbin", "LC_ALL=C", "HOME=/", "TZ=UTC"}
}

// processes lists the processes whose working directory is in or below a directory. Process groups
// would not be enough, because each PostgreSQL child has a separate session. Parents would not be
// enough either, because children briefly outlive them.
func processes(dir string) ([]int, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	var pids []int
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		cwd, err := os.Readlink("/proc/" + e.Name() + "/cwd")
		if err == nil && (cwd == dir || strings.HasPrefix(cwd, dir+"/")) {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}

func stopped(pid int) bool {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return true
	}
	_, rest, _ := strings.Cut(string(text[strings.LastIndexByte(string(text), ')')+1:]), " ")
	return strings.HasPrefix(rest, "T") || strings.HasPrefix(rest, "Z") || strings.HasPrefix(rest, "X")
}

// signal sends a signal to a process that may have ended.
func signal(pid int, sig syscall.Signal) error {
	if err := syscall.Kill(pid, sig); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("signal %v to process %d: %w", sig, pid, err)
	}
	return nil
}

// poll calls check until it returns true or an error, or ctx ends.
func poll(ctx context.Context, check func() (done bool, err error)) error {
	tick := time.NewTicker(pollPeriod)
	defer tick.Stop()
	for {
		if done, err := check(); done || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
	}
}

func tail(text []byte, size int) string {
	if len(text) > size {
		text = text[len(text)-size:]
	}
	return strings.TrimSpace(string(text))
}
