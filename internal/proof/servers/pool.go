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

// startTimeout limits a test's wait for a server. A machine with all cores busy takes ten times as
// long as an idle one.
const startTimeout = time.Minute

// New starts a server for one test, which may stop, kill and reconfigure it. The server is closed
// after the test. If the test failed, the end of the server's log is shown. If the machine has no
// such server, New does what Unavailable does.
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

// Pool has servers that the tests of one binary share, because a start takes up to a second. The
// zero Pool is ready. It is safe for concurrent use. Faults are for servers of New, because here
// they would hit other tests.
type Pool struct {
	mu      sync.Mutex
	closed  bool
	entries map[string]*entry
}

// entry is one start. It is done once, and all callers get the result.
type entry struct {
	once   sync.Once
	server *Server
	err    error
}

// Get returns the pool's server of this kind with these options, and starts it at the first call.
// If the machine has no such server, Get does what Unavailable does. Close or Run must close the
// pool.
func (p *Pool) Get(t testing.TB, kind Kind, o *Options) *Server {
	t.Helper()
	s, err := p.server(kind, o)
	Unavailable(t, kind, err)
	return s
}

// server returns the server of Get.
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
		// Not a test's context, because its end must not fail the others.
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

// Close closes the pool's servers. No Get may be running.
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
