package servers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// recipe describes how to run a kind of server.
type recipe struct {
	// accounts lists users for servers that refuse to run as root. If this process is root, the
	// server runs as the first user in the list that exists.
	accounts []string
	// ports is the number of ports besides the port for clients. See local.ports.
	ports int
	// prepare creates the data. It is called once.
	prepare func(ctx context.Context, l *local) error
	// configure writes the configuration, which depends on the port.
	configure func(l *local) error
	// command returns the program and its arguments.
	command func(l *local) (path string, args []string)
	// environment returns variables of the server's environment. If there are none, environment is nil.
	environment func(l *local) []string
	// probe returns nil if the server's answer on a connection shows that it is ready.
	probe func(conn net.Conn) error
	// form joins several running members into one store. If members find each other without help,
	// form is nil.
	form func(ctx context.Context, members []*local) error
	// dsns returns the DSNs of the server: for the user, for the superuser over TCP, and for the
	// superuser locally.
	dsns func(l *local) (user, admin, local DSN)
}

// local is a server whose processes run on this machine.
type local struct {
	kind                        Kind
	opts                        *Options
	recipe                      recipe
	index                       int      // index in members
	members                     []*local // of its cluster, including itself
	dir                         *directory
	account                     *account
	port                        int            // port for clients
	ports                       []int          // other ports
	held                        []net.Listener // the sockets of its ports: see freePort
	userPassword, adminPassword string
	files                       *certificates
	log                         *os.File
	proc                        *process
}

// findRecipe returns the recipe for running one server of a kind.
func findRecipe(kind Kind, o *Options) (recipe, error) {
	switch kind {
	case Postgres:
		return postgresRecipe(o.Upstream)
	case MariaDB:
		return mariadbRecipe()
	case Galera:
		return galeraRecipe()
	case PgBouncer:
		return pgbouncerRecipe(o.Upstream)
	case ZooKeeper:
		return zookeeperRecipe()
	case Etcd:
		return etcdRecipe()
	case Consul:
		return consulRecipe()
	case Redis:
		return redisRecipe()
	case Sentinel:
		return sentinelRecipe(o.Upstream)
	case S3:
		return s3Recipe()
	case GCS:
		return gcsRecipe()
	}
	return recipe{}, unavailable(kind, "it is not started here")
}

// prepare creates everything that does not depend on ports: folders, certificates and data.
func (l *local) prepare(ctx context.Context) error {
	if os.Getuid() == 0 && len(l.recipe.accounts) > 0 {
		var err error
		if l.account, err = firstAccount(l.recipe.accounts); err != nil {
			return err
		}
	}
	for _, name := range []string{"conf", "data"} {
		if err := os.Mkdir(l.path(name), 0o700); err != nil {
			return err
		}
		if err := l.own(l.path(name)); err != nil {
			return err
		}
	}
	if l.account != nil {
		if err := l.reach(ctx); err != nil {
			return err
		}
	}
	if l.opts.DiskBytes > 0 {
		size := fmt.Sprintf("size=%d,mode=0700", l.opts.DiskBytes)
		if err := syscall.Mount("tmpfs", l.path("data"), "tmpfs", syscall.MS_NODEV|syscall.MS_NOSUID,
			size); err != nil {
			return fmt.Errorf("mount a disk: %w", err)
		}
		if err := l.own(l.path("data")); err != nil {
			return err
		}
	}
	var err error
	if l.log, err = os.OpenFile(l.path("log"), os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600); err != nil {
		return err
	}
	if first := l.members[0]; l != first {
		l.files = first.files // the same account runs all members, and they end together
	} else if l.opts.TLS != TLSOff {
		l.files, err = makeCertificates(l.opts.TLS == TLSMutual, l.write)
		if err != nil {
			return err
		}
	}
	if l.opts.SlowFlush {
		if err := l.prepareFlush(ctx); err != nil {
			return err
		}
	}
	return l.recipe.prepare(ctx, l)
}

// launch starts the server's process and waits until it accepts connections.
func (l *local) launch(ctx context.Context) error {
	path, args := l.recipe.command(l)
	cmd := exec.CommandContext(context.WithoutCancel(ctx), path, args...)
	cmd.Dir, cmd.Env = l.path("data"), append(environment(), l.flushEnvironment()...)
	if l.recipe.environment != nil {
		cmd.Env = append(cmd.Env, l.recipe.environment(l)...)
	}
	cmd.Stdout, cmd.Stderr = l.log, l.log
	cmd.SysProcAttr = l.account.attributes()
	proc, err := startProcess(cmd)
	if err != nil {
		return err
	}
	l.proc = proc
	var last error
	err = poll(ctx, func() (bool, error) {
		select {
		case <-proc.done:
			return false, fmt.Errorf("it ended by itself: %v", cmd.ProcessState)
		default:
		}
		last = l.dial(ctx)
		return last == nil, nil
	})
	if err != nil {
		return errors.Join(fmt.Errorf("no connection at %s: %w (%v)", l.addr(), err, last),
			l.kill(context.WithoutCancel(ctx)))
	}
	return nil
}

func (l *local) dial(ctx context.Context) error {
	d := net.Dialer{Timeout: time.Second}
	conn, err := d.DialContext(ctx, "tcp", l.addr())
	if err != nil {
		return err
	}
	err = conn.SetDeadline(time.Now().Add(2 * time.Second))
	if err == nil {
		err = l.recipe.probe(conn)
	}
	return errors.Join(err, conn.Close())
}

func (l *local) kill(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, faultTimeout)
	defer cancel()
	return poll(ctx, func() (bool, error) {
		pids, err := processes(l.path("data"))
		if err != nil {
			return false, err
		}
		for _, pid := range pids {
			if err := signal(pid, syscall.SIGKILL); err != nil {
				return false, err
			}
		}
		return len(pids) == 0 && l.ended(), nil
	})
}

func (l *local) ended() bool {
	if l.proc == nil {
		return true
	}
	select {
	case <-l.proc.done:
		return true
	default:
		return false
	}
}

func (l *local) stop(ctx context.Context) error {
	if l.ended() {
		return errors.New("it is not running: restart it first")
	}
	ctx, cancel := context.WithTimeout(ctx, faultTimeout)
	defer cancel()
	// The first signal goes to the main process, because only it starts other processes.
	if err := signal(l.proc.cmd.Process.Pid, syscall.SIGSTOP); err != nil {
		return err
	}
	return poll(ctx, func() (bool, error) {
		pids, err := processes(l.path("data"))
		if err != nil {
			return false, err
		}
		all := true
		for _, pid := range pids {
			if stopped(pid) {
				continue
			}
			all = false
			if err := signal(pid, syscall.SIGSTOP); err != nil {
				return false, err
			}
		}
		return all, nil
	})
}

func (l *local) cont() error {
	pids, err := processes(l.path("data"))
	if err != nil {
		return err
	}
	if len(pids) == 0 {
		return errors.New("it is not running: restart it")
	}
	for _, pid := range pids {
		err = errors.Join(err, signal(pid, syscall.SIGCONT))
	}
	return err
}

func (l *local) restart(ctx context.Context) error {
	if err := l.kill(ctx); err != nil {
		return err
	}
	if err := l.launch(ctx); err != nil {
		return fmt.Errorf("%w; its log ends:\n%s", err, redact(l.logs(), l.userPassword, l.adminPassword))
	}
	return nil
}

func (l *local) reconfigure(ctx context.Context, config []string) error {
	o := *l.opts
	o.Config = config
	if err := o.check(l.kind); err != nil {
		return err
	}
	l.opts = &o
	if err := l.recipe.configure(l); err != nil {
		return err
	}
	return l.restart(ctx)
}

func (l *local) killProcess(pid int) error {
	pids, err := processes(l.path("data"))
	if err != nil {
		return err
	}
	if !slices.Contains(pids, pid) {
		return errors.New("it is not one of its processes")
	}
	return signal(pid, syscall.SIGKILL)
}

func (l *local) logs() string {
	if l.log == nil {
		return ""
	}
	info, err := l.log.Stat()
	if err != nil {
		return ""
	}
	size := min(info.Size(), 16<<10)
	b := make([]byte, size)
	n, err := l.log.ReadAt(b, info.Size()-size)
	if err != nil && !errors.Is(err, io.EOF) {
		return ""
	}
	return strings.TrimSpace(string(b[:n]))
}

func (l *local) close() error {
	err := l.kill(context.Background())
	if l.log != nil {
		err = errors.Join(err, l.log.Close())
	}
	return errors.Join(err, l.releasePorts(), l.dir.remove())
}

func (l *local) addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(l.port)) }

func (l *local) path(names ...string) string {
	return filepath.Join(append([]string{l.dir.path}, names...)...)
}

// write stores a configuration file that only the server's user and root can read.
func (l *local) write(name, content string) (string, error) {
	path := l.path("conf", name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		return "", err
	}
	return path, l.own(path)
}

// copy stores a copy of a file, with the same permissions as write.
func (l *local) copy(name, from string) (string, error) {
	text, err := os.ReadFile(from)
	if err != nil {
		return "", err
	}
	return l.write(name, string(text))
}

func (l *local) own(path string) error {
	if l.account == nil {
		return nil
	}
	return os.Chown(path, int(l.account.uid), int(l.account.gid))
}

func firstAccount(names []string) (*account, error) {
	for _, name := range names {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err := strconv.ParseUint(u.Uid, 10, 32)
		if err != nil {
			return nil, err
		}
		gid, err := strconv.ParseUint(u.Gid, 10, 32)
		if err != nil {
			return nil, err
		}
		return &account{uint32(uid), uint32(gid)}, nil
	}
	return nil, fmt.Errorf("it refuses to run as root, and there is no user of %v: create one", names)
}

// freePort finds a port below the kernel's range for outgoing connections, so no outgoing
// connection takes the port while the server is down. No server of this package, in any process,
// gets the same port before close, because each port has an abstract socket that only one of them
// can open.
func (l *local) freePort(ctx context.Context) (int, error) {
	var last error
	for range 100 {
		port := 15000 + rand.IntN(17000)
		var lc net.ListenConfig
		held, err := lc.Listen(ctx, "unix", fmt.Sprintf("@tenure-port-%d", port))
		if err != nil {
			last = err
			continue
		}
		ln, err := lc.Listen(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err != nil {
			last = errors.Join(err, held.Close())
			continue
		}
		l.held = append(l.held, held)
		return port, ln.Close()
	}
	return 0, fmt.Errorf("no free port: %w", last)
}

func (l *local) releasePorts() (err error) {
	for _, held := range l.held {
		err = errors.Join(err, held.Close())
	}
	l.held = nil
	return err
}
