package system

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"time"

	"github.com/tenure-go/tenure/core/driver"
)

// orderLimit bounds the sending of an order to a process that does not read.
const orderLimit = 2 * time.Second

// process is one incarnation of a member, as the supervisor sees it. Safe for
// concurrent use.
type process struct {
	name   string
	cmd    *exec.Cmd
	stdin  *os.File
	orders *lines
	stderr *tail
	done   chan struct{} // closed when it has ended and err is set
	err    error         // how it ended

	mu   sync.Mutex
	up   bool
	left bool
	held int          // writes held so far
	sent int          // of those held before they were sent: came to an end
	at   driver.Token // the last of them had
}

// launcher starts processes, all from one thread: Linux kills a child when the
// thread that started it ends, and this one ends after the last of them.
type launcher struct {
	requests chan func()
	ended    sync.WaitGroup
}

func newLauncher() *launcher {
	l := &launcher{requests: make(chan func())}
	l.ended.Go(l.run)
	return l
}

func (l *launcher) run() {
	runtime.LockOSThread() // not unlocked: the thread ends with the goroutine
	if onMainThread() {
		// But for the main thread, which the runtime keeps: another goroutine gets
		// another thread while this one has it.
		defer runtime.UnlockOSThread()
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			l.run()
		}()
		<-ended
		return
	}
	for f := range l.requests {
		f()
	}
}

// close ends the thread, and on Linux with it what it started.
func (l *launcher) close() {
	close(l.requests)
	l.ended.Wait()
}

func (l *launcher) start(c memberConfig) (*process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("tenure: system: find this binary: %w", err)
	}
	in, stdin, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("tenure: system: start %s: %w", c.Process, err)
	}
	defer in.Close()
	p := &process{name: c.Process, cmd: exec.Command(self), stdin: stdin, orders: &lines{w: stdin}, stderr: &tail{}, done: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), memberEnv+"=1")
	p.cmd.Stdin, p.cmd.Stderr, p.cmd.SysProcAttr = in, p.stderr, memberAttr()
	out, err := p.cmd.StdoutPipe()
	if err == nil {
		started := make(chan error)
		l.requests <- func() { started <- p.cmd.Start() }
		err = <-started
	}
	if err != nil {
		return nil, fmt.Errorf("tenure: system: start %s: %w", c.Process, errors.Join(err, stdin.Close()))
	}
	go func() { // ends with the process, which stop waits for
		defer close(p.done)
		for r := scanLines(out); r.Scan(); {
			var e event
			if json.Unmarshal(r.Bytes(), &e) == nil {
				p.take(e)
			}
		}
		p.err = p.cmd.Wait()
		if text := p.stderr.String(); p.err != nil && text != "" {
			p.err = fmt.Errorf("%w: %s", p.err, text)
		}
		p.stdin.Close()
	}()
	if err := p.order(c); err != nil {
		return nil, errors.Join(err, p.kill())
	}
	return p, nil
}

func (p *process) take(e event) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch e.Is {
	case isUp:
		p.up = true
	case isLeft:
		p.left = true
	case isSent:
		p.sent++
	case isHeld:
		p.held++
		p.at = e.Token
	}
}

func (p *process) isUp() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.up
}

func (p *process) hasLeft() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.left
}

// holds returns how many of its writes were held so far, and the token of the
// last.
func (p *process) holds() (int, driver.Token) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.held, p.at
}

// sends returns how many writes that were held have come to an end.
func (p *process) sends() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.sent
}

func (p *process) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// order sends one line.
func (p *process) order(v any) error {
	err := p.stdin.SetWriteDeadline(time.Now().Add(orderLimit))
	if err == nil {
		err = p.orders.write(v)
	}
	if err != nil {
		return fmt.Errorf("tenure: system: %s takes no orders: %w", p.name, err)
	}
	return nil
}

func (p *process) signal(s os.Signal) error {
	if err := p.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("tenure: system: send %v to %s: %w", s, p.name, err)
	}
	return nil
}

// exitLimit bounds the end of a process that was killed.
const exitLimit = 20 * time.Second

// kill ends the process, stopped or not, and waits until it is gone.
func (p *process) kill() error {
	if err := p.signal(os.Kill); err != nil {
		return err
	}
	t := time.NewTimer(exitLimit)
	defer t.Stop()
	select {
	case <-p.done:
		return nil
	case <-t.C:
		return fmt.Errorf("tenure: system: %s was killed and has not ended within %v", p.name, exitLimit)
	}
}

// tail keeps the end of what is written to it. Safe for concurrent use.
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
