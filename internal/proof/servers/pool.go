package servers

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"
)

// startTimeout limits how long a test waits for a server. If all cores are busy, a start takes ten
// times as long as on an idle machine.
const startTimeout = time.Minute

// New starts a server for one test, which may stop, kill and reconfigure the server. New closes the
// server after the test. If the test failed, New shows the end of the server's log. If the machine
// has no such server, New skips or fails the test, as Unavailable does.
func New(t testing.TB, kind Kind, o *Options) *Server {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), startTimeout)
	defer cancel()
	s, err := Start(ctx, kind, o)
	Unavailable(t, kind, err)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("end of the log of %s at %s:\n%s", kind, s.Addr(), s.Logs())
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// A Pool contains servers that the tests of one binary share. Sharing saves time, because starting
// a server takes up to a second. The zero Pool is ready for use. A Pool is safe for concurrent use.
// Do not cause faults in a Pool's servers, because the faults would affect other tests. For faults,
// use New.
type Pool struct {
	mu      sync.Mutex
	closed  bool
	entries map[string]*entry
}

// entry is one start of a server. The pool starts the server once, and all callers get the result.
type entry struct {
	once   sync.Once
	server *Server
	err    error
}

// Get returns the pool's server of this kind with these options. The first call starts the server.
// If the machine has no such server, Get skips or fails the test, as Unavailable does. The caller
// must close the pool, with Close or Run.
func (p *Pool) Get(t testing.TB, kind Kind, o *Options) *Server {
	t.Helper()
	s, err := p.server(kind, o)
	Unavailable(t, kind, err)
	return s
}

func (p *Pool) server(kind Kind, o *Options) (*Server, error) {
	if o == nil {
		o = &Options{}
	}
	key := fmt.Sprintf("%s %d %q %v %d %v %p", kind, o.TLS, o.Config, o.NoSync, o.DiskBytes, o.SlowFlush, o.Upstream)
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return nil, errors.New("tenure: the pool of servers is closed")
	}
	if p.entries == nil {
		p.entries = map[string]*entry{}
	}
	e := p.entries[key]
	if e == nil {
		e = &entry{}
		p.entries[key] = e
	}
	p.mu.Unlock()
	e.once.Do(func() {
		// The context does not come from a test, because the end of one test must not affect other
		// tests.
		ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
		defer cancel()
		e.server, e.err = Start(ctx, kind, o)
	})
	return e.server, e.err
}

// Run runs the tests of a TestMain, closes the pool, and returns the exit code.
func (p *Pool) Run(m *testing.M) int {
	code := m.Run()
	if err := p.Close(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = max(code, 1)
	}
	return code
}

// Close closes the pool's servers. Do not call Close while Get is running.
func (p *Pool) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	var errs []error
	for _, e := range p.entries {
		if e.server != nil {
			errs = append(errs, e.server.Close())
		}
	}
	p.entries = nil
	return errors.Join(errs...)
}
