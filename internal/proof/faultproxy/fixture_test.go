package faultproxy

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/tenure-go/tenure/internal/proof/ample"
)

// server answers each line with "re:" and the line, and keeps the bytes received.
type server struct {
	l  net.Listener
	wg sync.WaitGroup

	mu      sync.Mutex
	got     bytes.Buffer
	ends    int // streams that ended in order
	resets  int // streams that ended otherwise
	conns   map[net.Conn]bool
	changed chan struct{}
}

func newServer(t *testing.T) *server {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &server{l: l, conns: map[net.Conn]bool{}, changed: make(chan struct{})}
	s.wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			s.note(func() { s.conns[c] = true })
			s.wg.Go(func() { s.serve(c) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		s.mu.Lock()
		for c := range s.conns {
			c.Close()
		}
		s.mu.Unlock()
		s.wg.Wait()
	})
	return s
}

func (s *server) note(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *server) serve(c net.Conn) {
	defer c.Close()
	var line []byte
	b := make([]byte, 1)
	for {
		_, err := c.Read(b)
		if err != nil {
			s.note(func() {
				if errors.Is(err, io.EOF) {
					s.ends++
				} else {
					s.resets++
				}
			})
			return
		}
		line = append(line, b[0])
		s.note(func() { s.got.Write(b) })
		if b[0] == '\n' {
			if _, err := c.Write(append([]byte("re:"), line...)); err != nil {
				continue // the next read fails
			}
			line = nil
		}
	}
}

// until waits for a condition over the server's fields.
func (s *server) until(t *testing.T, what string, cond func() bool) {
	t.Helper()
	deadline := time.After(ample.Time)
	for {
		s.mu.Lock()
		ok, changed, got := cond(), s.changed, s.got.String()
		s.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-changed:
		case <-deadline:
			t.Fatalf("the server did not see %s; it received %q", what, got)
		}
	}
}

func (s *server) received(t *testing.T, want string) {
	t.Helper()
	s.until(t, want, func() bool { return s.got.String() == want })
}

func (s *server) gotNow() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.got.String()
}

type fixture struct {
	*Proxy
	t *testing.T
	s *server
}

func setup(t *testing.T, o *Options) *fixture {
	t.Helper()
	s := newServer(t)
	p, err := New(s.l.Addr().String(), o)
	if err != nil {
		t.Fatal(err)
	}
	f := &fixture{Proxy: p, t: t, s: s}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
		if st := p.Stats(); st.Open != 0 || st.Requests.Held != 0 || st.Replies.Held != 0 {
			t.Errorf("after Close there are %d connections open, %d and %d bytes held", st.Open, st.Requests.Held,
				st.Replies.Held)
		}
	})
	return f
}

func (f *fixture) set(x Faults) {
	f.t.Helper()
	if err := f.Set(x); err != nil {
		f.t.Fatal(err)
	}
}

// wait waits until cond holds for the counts.
func (f *fixture) wait(what string, cond func(Stats) bool) {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(f.t.Context(), ample.Time)
	defer cancel()
	if err := f.Wait(ctx, cond); err != nil {
		f.t.Fatalf("waiting for %s: %v; the counts are %+v", what, err, f.Stats())
	}
}

type client struct {
	*net.TCPConn
	t *testing.T
}

func (f *fixture) dial() *client {
	f.t.Helper()
	c, err := net.DialTimeout("tcp", f.Addr(), ample.Time)
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { c.Close() })
	if err := c.SetDeadline(time.Now().Add(ample.Time)); err != nil {
		f.t.Fatal(err)
	}
	return &client{TCPConn: c.(*net.TCPConn), t: f.t}
}

// dialReset connects and expects a reset, which may arrive before Dial returns.
func (f *fixture) dialReset() {
	f.t.Helper()
	c, err := net.DialTimeout("tcp", f.Addr(), ample.Time)
	if err == nil {
		defer c.Close()
		_, err = io.ReadAll(c)
	}
	if !errors.Is(err, syscall.ECONNRESET) {
		f.t.Fatalf("connecting ended with %v, want a reset", err)
	}
}

func (c *client) send(s string) {
	c.t.Helper()
	if _, err := c.Write([]byte(s)); err != nil {
		c.t.Fatalf("sending %q: %v", s, err)
	}
}

func (c *client) want(s string) {
	c.t.Helper()
	b := make([]byte, len(s))
	if n, err := io.ReadFull(c, b); err != nil || string(b) != s {
		c.t.Fatalf("received %q and error %v, want %q", b[:n], err, s)
	}
}

// wantReset reads until the connection is reset, and expects no data before that.
func (c *client) wantReset() {
	c.t.Helper()
	b, err := io.ReadAll(c)
	if !errors.Is(err, syscall.ECONNRESET) || len(b) > 0 {
		c.t.Fatalf("received %q and error %v, want a reset and nothing before it", b, err)
	}
}

// wantSilence checks that nothing can be read, not even the end of the stream. It does not wait,
// because the test has already seen that all possible bytes were lost.
func (c *client) wantSilence() {
	c.t.Helper()
	if err := c.SetReadDeadline(time.Now().Add(time.Millisecond)); err != nil {
		c.t.Fatal(err)
	}
	b := make([]byte, 64)
	n, err := c.Read(b)
	var ne net.Error
	if !errors.As(err, &ne) || !ne.Timeout() {
		c.t.Fatalf("received %q and error %v, want silence", b[:n], err)
	}
	if err := c.SetReadDeadline(time.Now().Add(ample.Time)); err != nil {
		c.t.Fatal(err)
	}
}

// lines is a Framer for lines.
func lines(b []byte) int { return bytes.IndexByte(b, '\n') + 1 }
