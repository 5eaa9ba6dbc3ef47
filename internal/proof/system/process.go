package system

import (
	"os/exec"
	"runtime"
	"sync"

	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/proof/harness"
)

// process is one run of a member, as the supervisor sees it. A process is safe for concurrent use.
type process struct {
	*harness.Process

	mu   sync.Mutex
	up   bool
	left bool
	held int          // writes held so far
	sent int          // held writes that have ended
	at   driver.Token // token of the last of them
}

// launcher starts all processes from one thread. Linux kills a child when the thread that started
// the child ends. The launcher's thread ends after the last child.
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
		// The runtime never ends the main thread. While this goroutine holds the main thread,
		// another goroutine gets a different thread.
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

// close ends the launcher's thread. On Linux, the end of this thread also ends the processes that
// it started.
func (l *launcher) close() {
	close(l.requests)
	l.ended.Wait()
}

func (l *launcher) start(c memberConfig) (*process, error) {
	p := &process{}
	start := func(cmd *exec.Cmd) error {
		started := make(chan error)
		l.requests <- func() { started <- cmd.Start() }
		return <-started
	}
	take := func(events *harness.Reader) {
		for e := range harness.All[event](events) {
			p.take(e)
		}
	}
	var err error
	p.Process, err = harness.Start(c.Process, memberEnv, c, start, take)
	return p, err
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

// holds returns the number of writes that have been held so far, and the token of the last held
// write.
func (p *process) holds() (int, driver.Token) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.held, p.at
}

// sends returns the number of held writes that have ended.
func (p *process) sends() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.sent
}
