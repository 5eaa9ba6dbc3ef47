package fleet

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/tenure-go/tenure/config"
	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/internal/proof/ample"
	"github.com/tenure-go/tenure/internal/proof/faultproxy"
)

// childEnv is the environment variable that makes a process a member, and contains its setting.
const childEnv = "TENURE_FLEET_CHILD"

// upLine is the first line that a member prints.
const upLine = "up"

// setting is the input for a started process.
type setting struct {
	Config string // YAML
	Of     json.RawMessage
}

// Main implements a TestMain. If a Fleet started this process, Main runs child with the value
// passed to Start, until SIGTERM ends the ctx of child. In any other process, Main runs the tests.
// Main returns the exit status.
func Main[S any](m *testing.M, child func(ctx context.Context, b core.Backend, o *core.Options, set S) error) int {
	text := os.Getenv(childEnv)
	if text == "" {
		return m.Run()
	}
	if err := run(text, child); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func run[S any](text string, child func(context.Context, core.Backend, *core.Options, S) error) (err error) {
	go func() { // the test ended but left this process running
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(2)
	}()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	fmt.Println(upLine)
	var set setting
	var of S
	if err := errors.Join(json.Unmarshal([]byte(text), &set), json.Unmarshal(set.Of, &of)); err != nil {
		return err
	}
	c, err := config.Load(&config.LoadOptions{Path: "child", Data: []byte(set.Config)})
	if err != nil {
		return err
	}
	b, err := c.Open(ctx, Openers()...)
	if err != nil {
		if ctx.Err() != nil {
			return nil // asked to stop before its store was open
		}
		return err
	}
	defer func() { _ = b.Close() }()
	o := c.Options()
	o.Logger = slog.New(slog.DiscardHandler)
	slog.SetDefault(o.Logger)
	return child(ctx, b, o, of)
}

// Fleet contains one test's processes, and kills them when the test ends. Only one goroutine may
// use a Fleet.
type Fleet struct {
	*testing.T
	Rand    *rand.Rand
	Struck  map[string]int    // faults, by kind
	Procs   []*Proc           // running processes
	Take    func(line string) // gets a process's output, in that process's own goroutine; may be nil
	Proxied bool              // each process reaches the server through a separate proxy
	store   *Store
	space   string
}

// New creates a Fleet without processes, for a namespace of a store.
func New(t *testing.T, s *Store, namespace string, seed uint64) *Fleet {
	f := &Fleet{T: t, Rand: rand.New(rand.NewPCG(seed, 2)), Struck: map[string]int{}, store: s, space: namespace}
	t.Cleanup(func() {
		for _, p := range f.Procs {
			_ = p.cmd.Process.Kill()
			_ = p.wait()
		}
	})
	return f
}

// Open opens the store in this process.
func (f *Fleet) Open() core.Backend {
	f.Helper()
	return f.store.Open(f.T, f.space)
}

// Proc is a process in a Fleet.
type Proc struct {
	cmd   *exec.Cmd
	proxy *faultproxy.Proxy
	up    chan struct{} // closed when the process runs and can stop in an orderly way
	read  chan struct{} // closed when all its output has been read
}

// PID returns the process id.
func (p *Proc) PID() int { return p.cmd.Process.Pid }

func (p *Proc) wait() error {
	<-p.read // Wait closes the pipe
	err := p.cmd.Wait()
	if p.proxy != nil {
		err = errors.Join(err, p.proxy.Close())
	}
	return err
}

// Start runs another copy of this program as a member, and passes set to Main's child.
func (f *Fleet) Start(set any) *Proc {
	f.Helper()
	p := &Proc{up: make(chan struct{}), read: make(chan struct{})}
	addr := ""
	var err error
	if f.Proxied && f.store.Server != nil {
		if p.proxy, err = faultproxy.New(f.store.Server.Addr(), nil); err != nil {
			f.Fatal(err)
		}
		addr = p.proxy.Addr()
	}
	of, err := json.Marshal(set)
	if err != nil {
		f.Fatal(err)
	}
	text, err := json.Marshal(setting{configOf(fmt.Sprintf("n%d", f.Rand.IntN(1<<30)), f.store.Part(addr, f.space)), of})
	if err != nil {
		f.Fatal(err)
	}
	p.cmd = exec.Command(os.Args[0]) //nolint:noctx // End and the test's cleanup end it
	p.cmd.Env = append(os.Environ(), childEnv+"="+string(text))
	p.cmd.Stderr = f.Output()
	lines, err := p.cmd.StdoutPipe()
	if err != nil {
		f.Fatal(err)
	}
	if _, err := p.cmd.StdinPipe(); err != nil { // a pipe that ends with this process
		f.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		f.Fatal(err)
	}
	go func() {
		defer close(p.read)
		for in := bufio.NewScanner(lines); in.Scan(); {
			if in.Text() == upLine {
				close(p.up)
			} else if f.Take != nil {
				f.Take(in.Text())
			}
		}
	}()
	f.Procs = append(f.Procs, p)
	return p
}

// Any returns a random process.
func (f *Fleet) Any() *Proc { return f.Procs[f.Rand.IntN(len(f.Procs))] }

// Of returns the running process with the given process id, or nil.
func (f *Fleet) Of(pid int) *Proc {
	if i := slices.IndexFunc(f.Procs, func(p *Proc) bool { return p.PID() == pid }); i >= 0 {
		return f.Procs[i]
	}
	return nil
}

// Kill ends a process with SIGKILL.
func (f *Fleet) Kill(p *Proc) {
	f.Helper()
	f.end(p, syscall.SIGKILL)
}

// Leave ends a process with SIGTERM, and waits until it has ended.
func (f *Fleet) Leave(p *Proc) {
	f.Helper()
	select {
	case <-p.up:
	case <-time.After(ample.Time):
		f.Errorf("a member did not start within %v", ample.Time)
	}
	f.end(p, syscall.SIGTERM)
}

// LeaveAll ends the processes with SIGTERM, one after another.
func (f *Fleet) LeaveAll() {
	f.Helper()
	for len(f.Procs) > 0 {
		f.Leave(f.Procs[0])
	}
}

func (f *Fleet) end(p *Proc, s syscall.Signal) {
	f.Helper()
	f.Procs = slices.DeleteFunc(f.Procs, func(x *Proc) bool { return x == p })
	if err := p.cmd.Process.Signal(s); err != nil {
		f.Error(err)
	}
	late := time.AfterFunc(ample.Time, func() { _ = p.cmd.Process.Kill() })
	err := p.wait()
	if !late.Stop() {
		f.Errorf("a member did not end within %v of its signal", ample.Time)
	} else if s == syscall.SIGTERM && err != nil {
		f.Errorf("a member that was asked to stop: %v", err)
	}
}

// Stop stops a process with SIGSTOP until the caller calls the returned function.
func (f *Fleet) Stop(p *Proc) (cont func()) {
	_ = p.cmd.Process.Signal(syscall.SIGSTOP)
	return func() { _ = p.cmd.Process.Signal(syscall.SIGCONT) }
}

// Pause sleeps for a random number of milliseconds between least and most.
func (f *Fleet) Pause(least, most int) {
	time.Sleep(time.Duration(least+f.Rand.IntN(most-least)) * time.Millisecond)
}

// Served reports whether the store has a server, which StopStore needs.
func (f *Fleet) Served() bool { return f.store.Server != nil }

// StopStore stops the server with SIGSTOP for a random number of milliseconds between least and
// most.
func (f *Fleet) StopStore(least, most int) {
	f.Helper()
	if err := f.store.Server.Stop(f.Context()); err != nil {
		f.Fatal(err)
	}
	f.Pause(least, most)
	if err := f.store.Server.Cont(); err != nil {
		f.Fatal(err)
	}
}

// Cut resets a process's connections to the server, old and new, for a random number of
// milliseconds between least and most. The port stays open, so no other process can take it. Cut
// requires Proxied.
func (f *Fleet) Cut(p *Proc, least, most int) {
	f.Helper()
	if err := p.proxy.SetNew(faultproxy.Faults{Mute: true}); err != nil { // against new connections
		f.Fatal(err)
	}
	for range ample.During(time.Duration(least+f.Rand.IntN(most-least))*time.Millisecond, 2*time.Millisecond) {
		p.proxy.Reset()
	}
	if err := p.proxy.Set(faultproxy.Faults{}); err != nil {
		f.Fatal(err)
	}
}

// LoseReplies loses the server's replies to a process for a random number of milliseconds between
// least and most. It then resets the connections. LoseReplies requires Proxied.
func (f *Fleet) LoseReplies(p *Proc, least, most int) {
	f.Helper()
	if err := p.proxy.Set(faultproxy.Faults{Replies: faultproxy.Flow{Swallow: true}}); err != nil {
		f.Fatal(err)
	}
	f.Pause(least, most)
	if err := p.proxy.Set(faultproxy.Faults{}); err != nil {
		f.Fatal(err)
	}
}
