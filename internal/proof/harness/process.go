package harness

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"time"
)

const (
	orderLimit = 2 * time.Second  // sending an order to a process that does not read
	exitLimit  = 20 * time.Second // end of a killed process
)

// Process is a copy of this program, started as a member. A Process is safe for concurrent use.
type Process struct {
	Name string

	cmd    *exec.Cmd
	stdin  *os.File
	orders *Writer
	stderr *tail
	done   chan struct{} // closed when it has ended and err is set
	err    error
}

// Start runs this program again in a separate process group, with the environment variable env set.
// Start sends config as the first line of input, and passes the standard output to take. The start
// function must call (*exec.Cmd).Start. The process ends when its input ends. On Linux, the kernel
// kills the process when the thread that started it ends, even while the process is stopped.
func Start(name, env string, config any, start func(*exec.Cmd) error, take func(*Reader)) (*Process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("tenure: find this program: %w", err)
	}
	in, stdin, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("tenure: start %s: %w", name, err)
	}
	defer in.Close() //nolint:errcheck // the child has its own copy
	p := &Process{
		Name: name, cmd: exec.Command(self), stdin: stdin, orders: NewWriter(stdin), //nolint:noctx // Kill ends it
		stderr: &tail{}, done: make(chan struct{}),
	}
	p.cmd.Env = append(os.Environ(), env+"=1")
	p.cmd.Stdin, p.cmd.Stderr, p.cmd.SysProcAttr = in, p.stderr, attributes()
	out, err := p.cmd.StdoutPipe()
	if err == nil {
		err = start(p.cmd)
	}
	if err != nil {
		return nil, fmt.Errorf("tenure: start %s: %w", name, errors.Join(err, stdin.Close()))
	}
	go func() { // ends with the process, and Kill waits for that
		defer close(p.done)
		take(NewReader(out))
		_, _ = io.Copy(io.Discard, out)
		p.err = p.cmd.Wait()
		if text := p.stderr.String(); p.err != nil && text != "" {
			p.err = fmt.Errorf("%w: %s", p.err, text)
		}
		_ = p.stdin.Close() // no process reads it now
	}()
	if err := p.Order(config); err != nil {
		return nil, errors.Join(err, p.Kill())
	}
	return p, nil
}

// PID returns the process id.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Done returns a channel that is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Ended reports whether the process has ended.
func (p *Process) Ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// Err returns the process's exit error with the end of its standard error output, or nil if the
// exit status is 0. Call Err after Done.
func (p *Process) Err() error { return p.err }

// Order sends v to the process, as one line.
func (p *Process) Order(v any) error {
	err := p.stdin.SetWriteDeadline(time.Now().Add(orderLimit))
	if err == nil {
		err = p.orders.Write(v)
	}
	if err != nil {
		return fmt.Errorf("tenure: %s takes no orders: %w", p.Name, err)
	}
	return nil
}

// CloseInput closes the process's input. The process then ends, unless it is stopped.
func (p *Process) CloseInput() error { return p.stdin.Close() }

// Stop suspends the process until Continue is called.
func (p *Process) Stop() error { return p.signal(stopSignal) }

// Continue resumes a stopped process.
func (p *Process) Continue() error { return p.signal(continueSignal) }

// Kill ends the process, even a stopped process, and waits until the process is gone.
func (p *Process) Kill() error {
	if err := p.signal(os.Kill); err != nil {
		return err
	}
	t := time.NewTimer(exitLimit)
	defer t.Stop()
	select {
	case <-p.done:
		return nil
	case <-t.C:
		return fmt.Errorf("tenure: %s was killed and has not ended within %v", p.Name, exitLimit)
	}
}

// SendKill kills the process, even a stopped process, without waiting for its end.
func (p *Process) SendKill() error { return p.signal(os.Kill) }

func (p *Process) signal(s os.Signal) error {
	if err := p.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("tenure: send %v to %s: %w", s, p.Name, err)
	}
	return nil
}

// tail keeps the last bytes that were written to it. A tail is safe for concurrent use.
type tail struct {
	mu  sync.Mutex
	buf []byte
}

const tailSize = 8000

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.buf = append(t.buf, p...)
	if over := len(t.buf) - tailSize; over > 0 {
		t.buf = append(t.buf[:0], t.buf[over:]...)
	}
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(bytes.TrimSpace(t.buf))
}
