package servers

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"
)

// Server is one running server. All methods are safe for concurrent use. Faults act one at a time.
type Server struct {
	kind   Kind
	user   DSN // ordinary user, the owner of the tests' databases
	admin  DSN // superuser over TCP
	local  DSN // superuser without TLS and proxies
	files  *certificates
	mu     sync.Mutex // one fault at a time
	closed bool
	inst   instance
}

// instance is how a server runs: as processes of this machine, or elsewhere without faults.
type instance interface {
	kill(ctx context.Context) error
	stop(ctx context.Context) error
	cont() error
	restart(ctx context.Context) error
	reconfigure(ctx context.Context, config []string) error
	killProcess(pid int) error
	slowFlush(d time.Duration) (flushes func() (uint32, error), err error)
	logs() string
	close() error
}

// Start starts a server and returns when it accepts connections. ctx limits only the start. The
// caller closes the server. If this machine does not have the server, the error is ErrUnavailable.
// If the environment names a running server of this kind, Start returns that one. It then refuses
// options as ErrUnavailable, because they cannot be applied.
func Start(ctx context.Context, kind Kind, o *Options) (*Server, error) {
	if err := kind.check(); err != nil {
		return nil, err
	}
	if o == nil {
		o = &Options{}
	}
	if err := o.check(kind); err != nil {
		return nil, err
	}
	if short(kind) {
		return nil, unavailable(kind, "-short: "+RequireVariable+" does not list it; .ci/run runs these tests")
	}
	if name := kind.variable(); name != "" && os.Getenv(name) != "" {
		return fromEnvironment(ctx, kind, name, o)
	}
	servers, err := startLocalCluster(ctx, kind, 1, o)
	if err != nil {
		return nil, err
	}
	return servers[0], nil
}

// Kind returns the server's kind.
func (s *Server) Kind() Kind { return s.kind }

// Addr returns the server's host:port.
func (s *Server) Addr() string { return s.user.addr }

// User returns the DSN of an ordinary user, the owner of the databases of CreateDatabase. For a
// server of the environment it is the given user.
func (s *Server) User() DSN { return s.user }

// Admin returns the DSN of the superuser. For a server of the environment it is the given user.
func (s *Server) Admin() DSN { return s.admin }

// CAFile returns the path of the CA's certificate, in PEM; "" without TLS.
func (s *Server) CAFile() string {
	if s.files == nil {
		return ""
	}
	return s.files.ca
}

// ClientFiles returns the paths of a client's certificate and key, in PEM; "" without TLSMutual.
func (s *Server) ClientFiles() (cert, key string) {
	if s.files == nil {
		return "", ""
	}
	return s.files.clientCert, s.files.clientKey
}

// TLSConfig returns a client's configuration for this server, nil without TLS. The caller may
// change it.
func (s *Server) TLSConfig() (*tls.Config, error) {
	if s.files == nil {
		return nil, nil
	}
	return s.files.config()
}

// Kill ends all processes of the server with SIGKILL, and returns when they are gone. The data
// stays for Restart.
func (s *Server) Kill(ctx context.Context) error {
	return s.fault("kill", func(i instance) error { return i.kill(ctx) })
}

// Restart kills the server, if it runs, and starts it again on the same port and data. It returns
// when the server accepts connections.
func (s *Server) Restart(ctx context.Context) error {
	return s.fault("restart", func(i instance) error { return i.restart(ctx) })
}

// Reconfigure is Restart with other lines of Options.Config. For a server in a container or of the
// environment the error matches errors.ErrUnsupported.
func (s *Server) Reconfigure(ctx context.Context, config ...string) error {
	return s.fault("reconfigure", func(i instance) error { return i.reconfigure(ctx, config) })
}

// Stop suspends all processes of the server with SIGSTOP, and returns when they have stopped.
// Connections stay open.
func (s *Server) Stop(ctx context.Context) error {
	return s.fault("stop", func(i instance) error { return i.stop(ctx) })
}

// Cont continues the server's processes after Stop.
func (s *Server) Cont() error {
	return s.fault("continue", func(i instance) error { return i.cont() })
}

// KillProcess ends one of the server's processes with SIGKILL, such as that of a PostgreSQL
// connection (pg_backend_pid). It refuses a process of another program. PostgreSQL then restarts
// all its other backends.
func (s *Server) KillProcess(pid int) error {
	return s.fault(fmt.Sprintf("kill process %d of", pid), func(i instance) error { return i.killProcess(pid) })
}

// SlowFlush makes each flush of a file take d longer from now on, as on a slow disk. The returned
// function counts the flushes that have ended, modulo 2^32. The server needs Options.SlowFlush.
func (s *Server) SlowFlush(d time.Duration) (flushes func() (uint32, error), err error) {
	err = s.fault("slow the disk of", func(i instance) error {
		flushes, err = i.slowFlush(d)
		return err
	})
	return flushes, err
}

// Logs returns the end of the server's log, at most 16 KiB, without the generated passwords. It
// returns "" for a server of the environment, and after Close.
func (s *Server) Logs() string { return redact(s.inst.logs(), s.user.password, s.admin.password) }

// Close ends the server and removes its data. A server of the environment continues. A second Close
// does nothing.
func (s *Server) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	if err := s.inst.close(); err != nil {
		return fmt.Errorf("tenure: cannot close %s at %s: %w", s.kind, s.Addr(), err)
	}
	return nil
}

func (s *Server) fault(what string, do func(instance) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	err := errors.New("it is closed")
	if !s.closed {
		err = do(s.inst)
	}
	if err != nil {
		return fmt.Errorf("tenure: cannot %s %s at %s: %w", what, s.kind, s.Addr(), err)
	}
	return nil
}
