package servers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"
)

// inContainers reports whether the environment asks for containers.
func inContainers() bool { return os.Getenv(RuntimeVariable) == "container" }

// image is how a kind of server runs in containers.
type image struct {
	name     string // official
	variable string // names another image
	port     int    // for clients, inside
	// command is that of each member, whose names are known to the others.
	command func(names []string, files *certificates, o *Options) ([][]string, error)
	probe   func(conn net.Conn, files *certificates) error
}

func findImage(kind Kind) (image, error) {
	switch kind {
	case Etcd:
		return image{
			name: "gcr.io/etcd-development/etcd:v3.7.3", variable: "TENURE_ETCD_IMAGE", port: 2379,
			command: etcdContainers, probe: probeEtcd,
		}, nil
	case Consul:
		return image{
			name: "hashicorp/consul:1.16.3", variable: "TENURE_CONSUL_IMAGE", port: 8500,
			command: consulContainers, probe: probeConsul,
		}, nil
	default:
		return image{}, unavailable(kind, "it is not run in containers here: unset %s", RuntimeVariable)
	}
}

// etcdContainers need no separate ports: each is a host.
func etcdContainers(names []string, files *certificates, o *Options) ([][]string, error) {
	cluster := make([]etcdMember, len(names))
	for i, name := range names {
		cluster[i] = etcdMember{
			name: name, data: "/data", listen: "0.0.0.0:2379", advertise: name + ":2379",
			listenPeer: "0.0.0.0:2380", tellPeer: name + ":2380", files: files,
		}
	}
	commands := make([][]string, len(names))
	for i, m := range cluster {
		commands[i] = append([]string{"/usr/local/bin/etcd"}, m.arguments(cluster, "tenure", o)...)
	}
	return commands, nil
}

// consulContainers need no separate ports either.
func consulContainers(names []string, files *certificates, o *Options) ([][]string, error) {
	commands := make([][]string, len(names))
	for i, name := range names {
		m := consulMember{
			name: name, data: "/data", bind: "0.0.0.0", members: len(names), files: files,
			port: 8500, gossip: 8301, calls: 8300,
		}
		for _, other := range names {
			if other != name {
				m.others = append(m.others, other+":8301")
			}
		}
		config, err := m.config(o)
		if err != nil {
			return nil, err
		}
		commands[i] = []string{"/bin/consul", "agent", "-hcl=" + config}
		for _, line := range o.Config {
			commands[i] = append(commands[i], "-hcl="+line)
		}
	}
	return commands, nil
}

// fleet is the containers of a cluster. The command in internal/proof/servers/containers
// runs them, and removes them when this process closes its input or dies.
type fleet struct {
	image image
	files *certificates
	dir   string // of files
	ports []int

	mu   sync.Mutex // one request at a time
	open int        // members not closed
	cmd  *exec.Cmd
	in   io.WriteCloser
	out  *json.Decoder
}

// The messages to and from the command.
type (
	fleetRequest struct {
		Do      string        `json:"do"`
		Member  int           `json:"member"`
		Image   string        `json:"image,omitempty"`
		Members []fleetMember `json:"members,omitempty"`
	}
	fleetMember struct {
		Name    string            `json:"name"`
		Command []string          `json:"command"`
		Port    int               `json:"port"`
		Host    int               `json:"host"`
		Files   map[string][]byte `json:"files,omitempty"`
	}
	fleetAnswer struct {
		Error string `json:"error"`
		Logs  []byte `json:"logs"`
	}
)

// startContainers starts n members as containers with a network.
func startContainers(ctx context.Context, kind Kind, n int, o *Options) (servers []*Server, err error) {
	img, err := findImage(kind)
	if err != nil {
		return nil, err
	}
	if o.DiskBytes > 0 {
		return nil, unavailable(kind, "a container has no separate disk: unset %s", RuntimeVariable)
	}
	if o.Upstream != nil {
		return nil, unavailable(kind, "a container has no upstream: unset %s", RuntimeVariable)
	}
	path, err := tool(kind, "containers")
	if err != nil {
		return nil, err
	}
	f := &fleet{image: img, open: n}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.end())
		}
	}()
	if o.TLS != TLSOff {
		if f.dir, err = os.MkdirTemp("", "tenure-certificates-"); err != nil {
			return nil, err
		}
		f.files, err = makeCertificates(o.TLS == TLSMutual, func(name, content string) (string, error) {
			at := filepath.Join(f.dir, name)
			return at, os.WriteFile(at, []byte(content), 0o600)
		})
		if err != nil {
			return nil, err
		}
	}
	if err = f.command(path); err != nil {
		return nil, err
	}
	start := fleetRequest{Do: "start", Image: img.name}
	if other := os.Getenv(img.variable); other != "" {
		start.Image = other
	}
	if start.Members, err = f.members(ctx, n, o); err != nil {
		return nil, err
	}
	if _, err = f.ask(start); err != nil {
		return nil, unavailable(kind, "no containers of %s: %w", start.Image, err)
	}
	for i := range n {
		c := &contained{fleet: f, index: i}
		if err = c.ready(ctx); err != nil {
			return nil, fmt.Errorf("tenure: cannot start %s in containers: %w; its log ends:\n%s", kind, err, c.logs())
		}
		d := DSN{kind: kind, network: "tcp", addr: c.addr()}
		servers = append(servers, &Server{kind: kind, files: f.files, inst: c, user: d, admin: d, local: d})
	}
	return servers, nil
}

// command starts the command. It outlives this process for as long as it needs to
// remove the containers, and an interrupt from the terminal does not reach it.
func (f *fleet) command(path string) error {
	f.cmd = exec.Command(path) //nolint:noctx // it ends with its input, and must not be killed
	f.cmd.Stderr = os.Stderr
	f.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	var err error
	if f.in, err = f.cmd.StdinPipe(); err != nil {
		return err
	}
	out, err := f.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	f.out = json.NewDecoder(out)
	if err := f.cmd.Start(); err != nil {
		f.cmd = nil
		return err
	}
	return nil
}

// members describes each container. Certificates are where the server's options
// say, below /conf.
func (f *fleet) members(ctx context.Context, n int, o *Options) ([]fleetMember, error) {
	var inside *certificates
	contents := map[string][]byte{}
	if f.files != nil {
		inside = &certificates{}
		for to, from := range map[*string]string{
			&inside.ca: f.files.ca, &inside.serverCert: f.files.serverCert, &inside.serverKey: f.files.serverKey,
		} {
			text, err := os.ReadFile(from)
			if err != nil {
				return nil, err
			}
			*to = "/conf/" + filepath.Base(from)
			contents[*to] = text
		}
	}
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("m%d", i)
	}
	commands, err := f.image.command(names, inside, o)
	if err != nil {
		return nil, err
	}
	members := make([]fleetMember, n)
	for i, command := range commands {
		port, err := freePort(ctx)
		if err != nil {
			return nil, err
		}
		f.ports = append(f.ports, port)
		members[i] = fleetMember{Name: names[i], Command: command, Port: f.image.port, Host: port, Files: contents}
	}
	return members, nil
}

func (f *fleet) ask(r fleetRequest) ([]byte, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.cmd == nil {
		return nil, errors.New("it is closed")
	}
	text, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	if _, err := f.in.Write(append(text, '\n')); err != nil {
		return nil, err
	}
	var a fleetAnswer
	if err := f.out.Decode(&a); err != nil {
		return nil, fmt.Errorf("the command that runs the containers ended: %w", err)
	}
	if a.Error != "" {
		return nil, errors.New(a.Error)
	}
	return a.Logs, nil
}

// end has everything removed.
func (f *fleet) end() (err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.cmd != nil {
		err = errors.Join(f.in.Close(), f.cmd.Wait())
		f.cmd = nil
	}
	if f.dir != "" {
		err = errors.Join(err, os.RemoveAll(f.dir))
	}
	return err
}

// contained is one member.
type contained struct {
	fleet *fleet
	index int
}

func (c *contained) addr() string {
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(c.fleet.ports[c.index]))
}

func (c *contained) do(what string) error {
	_, err := c.fleet.ask(fleetRequest{Do: what, Member: c.index})
	return err
}

func (c *contained) ready(ctx context.Context) error {
	var last error
	err := poll(ctx, func() (bool, error) {
		last = c.dial(ctx)
		return last == nil, nil
	})
	if err != nil {
		return fmt.Errorf("no connection at %s: %w (%v)", c.addr(), err, last)
	}
	return nil
}

func (c *contained) dial(ctx context.Context) error {
	d := net.Dialer{Timeout: time.Second}
	conn, err := d.DialContext(ctx, "tcp", c.addr())
	if err != nil {
		return err
	}
	err = conn.SetDeadline(time.Now().Add(2 * time.Second))
	if err == nil {
		err = c.fleet.image.probe(conn, c.fleet.files)
	}
	return errors.Join(err, conn.Close())
}

func (c *contained) kill(context.Context) error { return c.do("kill") }
func (c *contained) stop(context.Context) error { return c.do("pause") }
func (c *contained) cont() error                { return c.do("unpause") }

func (c *contained) restart(ctx context.Context) error {
	_ = c.do("kill") // it may not run
	if err := c.do("run"); err != nil {
		return err
	}
	return c.ready(ctx)
}

func (c *contained) reconfigure(context.Context, []string) error {
	return fmt.Errorf("%w: it runs in a container", errors.ErrUnsupported)
}

func (c *contained) killProcess(int) error {
	return fmt.Errorf("%w: it runs in a container", ErrUnsupported)
}

func (c *contained) slowFlush(time.Duration) (func() (uint32, error), error) {
	return nil, fmt.Errorf("%w: it runs in a container", ErrUnsupported)
}

func (c *contained) logs() string {
	text, err := c.fleet.ask(fleetRequest{Do: "logs", Member: c.index})
	if err != nil {
		return ""
	}
	return tail(text, 16<<10)
}

// close ends a member, and with the last one everything.
func (c *contained) close() error {
	f := c.fleet
	f.mu.Lock()
	f.open--
	last := f.open == 0
	f.mu.Unlock()
	if last {
		return f.end()
	}
	_ = c.do("kill") // it may not run
	return nil
}
