//go:build unix

package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"
)

// The signals that the director sends.
const (
	killSignal     = syscall.SIGKILL
	stopSignal     = syscall.SIGSTOP
	continueSignal = syscall.SIGCONT
)

// orderLimit bounds the sending of one order to a member that does not read.
const orderLimit = 2 * time.Second

// A child is one member process as its director sees it. Only reports is used by
// another goroutine.
type child struct {
	node   string
	cmd    *exec.Cmd
	orders *os.File
	lines  *lineWriter
	stderr *tail
	joined sync.WaitGroup // the goroutine that reads its events and waits for its end
}

// A report of a child: an event, or its end.
type childReport struct {
	from  *child
	event event
	ended bool
	err   error // of an ended child: nil if it exited with status 0
}

// startChild runs this program as a member. What it tells goes to reports until
// quit is closed; its end is the last report. On Linux the calling goroutine must
// be locked to a thread that lives as long as the director.
func startChild(c memberConfig, reports chan<- childReport, quit <-chan struct{}) (*child, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("demo: find this program: %w", err)
	}
	in, orders, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("demo: start %s: %w", c.Node, err)
	}
	defer in.Close()
	k := &child{node: c.Node, cmd: exec.Command(self), orders: orders, lines: &lineWriter{w: orders}, stderr: &tail{}}
	k.cmd.Env = append(os.Environ(), memberEnv+"=1")
	k.cmd.Stdin, k.cmd.Stderr = in, k.stderr
	k.cmd.SysProcAttr = childAttr()
	out, err := k.cmd.StdoutPipe()
	if err != nil {
		orders.Close()
		return nil, fmt.Errorf("demo: start %s: %w", c.Node, err)
	}
	if err := k.cmd.Start(); err != nil {
		orders.Close()
		return nil, fmt.Errorf("demo: start %s: %w", c.Node, err)
	}
	k.joined.Go(func() {
		tell := func(r childReport) {
			select {
			case reports <- r:
			case <-quit:
			}
		}
		for r := newLineReader(out); ; {
			var e event
			if err := r.read(&e); err != nil {
				break
			}
			tell(childReport{from: k, event: e})
		}
		io.Copy(io.Discard, out)
		tell(childReport{from: k, ended: true, err: k.cmd.Wait()})
	})
	if err := k.order(c); err != nil {
		k.kill()
		return nil, err
	}
	return k, nil
}

// order sends one line.
func (k *child) order(v any) error {
	err := k.orders.SetWriteDeadline(time.Now().Add(orderLimit))
	if err == nil {
		err = k.lines.write(v)
	}
	if err != nil {
		return fmt.Errorf("demo: %s takes no orders: %w", k.node, err)
	}
	return nil
}

func (k *child) signal(s os.Signal) error {
	if err := k.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("demo: send %v to %s: %w", s, k.node, err)
	}
	return nil
}

// kill ends the process, stopped or not, and waits until it is gone.
func (k *child) kill() {
	_ = k.signal(syscall.SIGKILL) // fails only if it is gone
	k.orders.Close()
	k.joined.Wait()
}

// tail keeps the end of what is written to it. Safe for concurrent use.
type tail struct {
	mu  sync.Mutex
	buf []byte
}

const tailSize = 2000

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.buf = append(t.buf, p...)
	if len(t.buf) > tailSize {
		t.buf = append(t.buf[:0], t.buf[len(t.buf)-tailSize:]...)
	}
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.TrimSpace(string(t.buf))
}
