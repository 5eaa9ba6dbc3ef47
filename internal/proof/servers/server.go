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

// Server is one running server. All methods are safe for concurrent use. A Server injects one fault
// at a time.
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

// instance is a server on this machine or elsewhere. A server elsewhere supports no faults.
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

// Start starts a server, and returns when the server accepts connections. The context limits only
// the start. The caller must close the server. If this machine does not have the server, the error
// is ErrUnavailable. If the environment specifies a running server of this kind, Start returns that
// server. Start cannot apply options to a running server, and refuses them with ErrUnavailable.
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

// User returns the DSN of an ordinary user, who owns the databases that CreateDatabase creates. For
// a server specified by the environment, User returns the user given there.
func (s *Server) User() DSN { return s.user }

// Admin returns the DSN of the superuser. For a server specified by the environment, Admin returns
// the user given there.
func (s *Server) Admin() DSN { return s.admin }

// CAFile returns the path of the CA's certificate, in PEM, or "" without TLS.
func (s *Server) CAFile() string {
	if s.files == nil {
		return ""
	}
	return s.files.ca
}

// ClientFiles returns the paths of a client's certificate and key, in PEM, or "" without TLSMutual.
func (s *Server) ClientFiles() (cert, key string) {
	if s.files == nil {
		return "", ""
	}
	return s.files.clientCert, s.files.clientKey
}

// TLSConfig returns a client's configuration for this server, or nil without TLS. The caller may
// change the configuration.
func (s *Server) TLSConfig() (*tls.Config, error) {
	if s.files == nil {
		return nil, nil
	}
	return s.files.config()
}

// Kill ends all of the server's processes with SIGKILL, and returns when they are gone. Restart can
// use the remaining data.
func (s *Server) Kill(ctx context.Context) error {
	return s.fault("kill", func(i instance) error { return i.kill(ctx) })
}

// Restart kills a running server, and starts the server again on the same port and data. Restart
// returns when the server accepts connections.
func (s *Server) Restart(ctx context.Context) error {
	return s.fault("restart", func(i instance) error { return i.restart(ctx) })
}

// Reconfigure is like Restart, but changes the lines of Options.Config. For a server in a
// container, or one specified by the environment, the error matches errors.ErrUnsupported.
func (s *Server) Reconfigure(ctx context.Context, config ...string) error {
	return s.fault("reconfigure", func(i instance) error { return i.reconfigure(ctx, config) })
}

// Stop suspends all of the server's processes with SIGSTOP, and returns when they have stopped.
// Connections stay open.
func (s *Server) Stop(ctx context.Context) error {
	return s.fault("stop", func(i instance) error { return i.stop(ctx) })
}

// Cont resumes the server's processes after Stop.
func (s *Server) Cont() error {
	return s.fault("continue", func(i instance) error { return i.cont() })
}

// KillProcess ends one of the server's processes with SIGKILL, such as the process of a PostgreSQL
// connection (pg_backend_pid). PostgreSQL then restarts all its other backends. KillProcess refuses
// to kill a process of another program.
func (s *Server) KillProcess(pid int) error {
	return s.fault(fmt.Sprintf("kill process %d of", pid), func(i instance) error { return i.killProcess(pid) })
}

// SlowFlush makes each later flush of a file take d longer, as on a slow disk. The returned
// function returns the number of flushes that have ended, modulo 2^32. The server needs
// Options.SlowFlush.
func (s *Server) SlowFlush(d time.Duration) (flushes func() (uint32, error), err error) {
	err = s.fault("slow the disk of", func(i instance) error {
		flushes, err = i.slowFlush(d)
		return err
	})
	return flushes, err
}

// Logs returns the end of the server's log, at most 16 KiB, without the generated passwords. Logs
// returns "" for a server specified by the environment, and after Close.
func (s *Server) Logs() string { return redact(s.inst.logs(), s.user.password, s.admin.password) }

// Close ends the server and removes its data. A server specified by the environment continues to
// run. A second Close has no effect.
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
