package containers

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"maps"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/moby/moby/api/pkg/authconfig"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/network"
	"github.com/moby/moby/client"
	"github.com/testcontainers/testcontainers-go"

	"github.com/tenure-go/tenure/conformance"
	"github.com/tenure-go/tenure/core/driver"
)

// defaultStartTimeout is the default of [Options.StartTimeout].
const defaultStartTimeout = 3 * time.Minute

// Limits of single steps.
const (
	engineTimeout = 10 * time.Second // until the engine answers
	openTimeout   = 10 * time.Second // for one attempt to open the backend
	openPause     = 100 * time.Millisecond
	removeTimeout = time.Minute
	logLines      = 40
)

// Options are the options of Run. Nil and the zero value mean the defaults.
type Options struct {
	// Cases names the cases to run, in the form "Area/Property". A named case that would be
	// skipped fails. Default: all possible cases.
	Cases []string

	// StartTimeout limits the pull of the image and the start of the store together. Default 3
	// min.
	StartTimeout time.Duration

	// Required makes the test fail, rather than be skipped, if there is no engine or no image.
	// Default false.
	Required bool
}

// errUnavailable is the reason why a test is skipped.
var errUnavailable = errors.New("not available")

// Run starts a container of the image, runs the suite in it as subtests of t, and removes the
// container when t ends. If there is no Docker engine, or the image is missing and cannot be
// pulled, Run skips t and gives the reason.
func Run(t *testing.T, image Image, o *Options) {
	t.Helper()
	if o == nil {
		o = &Options{}
	}
	if err := o.check(image); err != nil {
		t.Fatal(err)
	}
	s := &store{image: image}
	t.Cleanup(func() {
		if err := s.close(); err != nil {
			t.Errorf("tenure: removing the container of %s: %v", image.name, err)
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), cmp.Or(o.StartTimeout, defaultStartTimeout))
	defer cancel()
	switch err := s.start(ctx); {
	case errors.Is(err, errUnavailable) && !o.Required:
		t.Skip(err)
	case err != nil:
		t.Fatal(err)
	}
	h := conformance.Harness{Name: image.opener.Name, Version: image.name, New: s.namespace}
	if len(o.Cases) > 0 {
		conformance.TestCases(t, h, o.Cases...)
		return
	}
	conformance.Test(t, h)
}

func (o *Options) check(image Image) error {
	if image.opener.Open == nil || image.name == "" {
		return errors.New(`tenure: the image has no name: pass one such as containers.Postgres("postgres:16")`)
	}
	if o.StartTimeout < 0 {
		return fmt.Errorf("tenure: StartTimeout %v is negative", o.StartTimeout)
	}
	return nil
}

// store is one container, with its namespaces.
type store struct {
	image     Image
	host      string // host of the container's port
	local     bool   // the engine is reached through a local socket
	addr      string // host and port, once known
	janitor   *janitor
	container testcontainers.Container
	cases     atomic.Int64
}

// start returns when the backend opens.
func (s *store) start(ctx context.Context) error {
	provider, err := engine(ctx)
	if err != nil {
		return fmt.Errorf("tenure: %s: %w: no Docker engine answers: %w", s.image.name, errUnavailable, err)
	}
	defer provider.Close() //nolint:errcheck // the container stays, and its own client has it
	if err := pull(ctx, provider.Client(), s.image.name); err != nil {
		return fmt.Errorf("tenure: %s: %w: the engine does not have the image, and pulling it failed: %w", s.image.name,
			errUnavailable, err)
	}
	labels := map[string]string{}
	if testcontainers.ReadConfig().RyukDisabled {
		if s.janitor, err = newJanitor(ctx, provider.Client().DaemonHost()); err != nil {
			return fmt.Errorf("tenure: %s: %w: TESTCONTAINERS_RYUK_DISABLED is set, and nothing else would remove the "+
				"container of a test that dies: %w", s.image.name, errUnavailable, err)
		}
		labels[janitorLabel] = s.janitor.id
	}
	if err := s.run(ctx, provider, labels); err != nil {
		return err
	}
	return s.ready(ctx)
}

// engine returns the engine in testcontainers-go's configuration, which panics without one.
func engine(ctx context.Context) (p *testcontainers.DockerProvider, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%v", r)
		}
	}()
	if p, err = testcontainers.NewDockerProvider(testcontainers.WithLogger(log.New(io.Discard, "", 0))); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, engineTimeout)
	defer cancel()
	if err := p.Health(ctx); err != nil {
		return nil, errors.Join(err, p.Close())
	}
	return p, nil
}

// pull makes the engine pull a missing image. testcontainers-go would try again until the context
// ends, and not report why.
func pull(ctx context.Context, docker client.APIClient, image string) error {
	if testcontainers.ReadConfig().Config.HubImageNamePrefix != "" {
		return nil // testcontainers-go uses another name for the image
	}
	if _, err := docker.ImageInspect(ctx, image); err == nil {
		return nil
	}
	o := client.ImagePullOptions{}
	if _, auth, err := testcontainers.DockerImageAuth(ctx, image); err == nil {
		if o.RegistryAuth, err = authconfig.Encode(auth); err != nil {
			return err
		}
	}
	answer, err := docker.ImagePull(ctx, image, o)
	if err != nil {
		return err
	}
	return errors.Join(answer.Wait(ctx), answer.Close())
}

// run starts the container.
func (s *store) run(ctx context.Context, provider *testcontainers.DockerProvider, labels map[string]string) error {
	host, err := provider.DaemonHost(ctx)
	if err != nil {
		return fmt.Errorf("tenure: finding the host of the Docker engine: %w", err)
	}
	inside, err := network.ParsePort(strconv.Itoa(s.image.port) + "/tcp")
	if err != nil {
		return err
	}
	r := testcontainers.ContainerRequest{
		Image: s.image.name, Entrypoint: s.image.entrypoint, Cmd: s.image.command, Env: s.image.env, Labels: labels,
		ExposedPorts: []string{inside.String()},
	}
	if host == "localhost" {
		r.HostConfigModifier = func(c *container.HostConfig) {
			c.PortBindings = network.PortMap{inside: {{HostIP: netip.MustParseAddr("127.0.0.1"), HostPort: "0"}}}
		}
		host = "127.0.0.1" // localhost may have another first address
	}
	s.host, s.local = host, strings.HasPrefix(provider.Client().DaemonHost(), "unix:")
	s.container, err = testcontainers.GenericContainer(ctx, testcontainers.GenericContainerRequest{
		ContainerRequest: r, Started: true, Logger: log.New(io.Discard, "", 0),
	})
	if err != nil {
		return fmt.Errorf("tenure: cannot start a container of %s (where Ryuk cannot be pulled, set "+
			"TESTCONTAINERS_RYUK_DISABLED=true): %w", s.image.name, err)
	}
	return nil
}

// ready returns when a backend opens, or with an error as soon as none ever will.
func (s *store) ready(ctx context.Context) error {
	if err := s.opens(ctx); err != nil {
		return fmt.Errorf("tenure: %s: the backend cannot be opened at %s: %w; the container's log ends:\n%s",
			s.image.name, cmp.Or(s.addr, s.host), err, s.logs())
	}
	return nil
}

func (s *store) opens(ctx context.Context) error {
	for {
		err := s.try(ctx)
		if err == nil || errors.Is(err, driver.ErrInvalid) {
			return err
		}
		if state, gone := s.container.State(ctx); gone == nil && !state.Running {
			return fmt.Errorf("the container exited with code %d: %w", state.ExitCode, err)
		}
		select {
		case <-time.After(openPause):
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", ctx.Err(), err)
		}
	}
}

func (s *store) try(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	if s.addr == "" { // an ended container has no port
		port, err := s.container.MappedPort(ctx, fmt.Sprintf("%d/tcp", s.image.port))
		if err != nil {
			return fmt.Errorf("the container has no port: %w", err)
		}
		s.addr = s.reached(ctx, strconv.Itoa(int(port.Num())))
	}
	b, err := s.open(ctx, "ready", true)
	if err != nil {
		return err
	}
	return b.Close()
}

// reached returns the address of a published port. An engine behind a local socket may run next
// to the process, or outside the container of the process. In the second case, the loopback
// address refuses connections.
func (s *store) reached(ctx context.Context, port string) string {
	if s.local {
		const loopback = "127.0.0.1"
		if conn, err := new(net.Dialer).DialContext(ctx, "tcp", net.JoinHostPort(loopback, port)); err == nil {
			_ = conn.Close()
			return net.JoinHostPort(loopback, port)
		}
	}
	return net.JoinHostPort(s.host, port)
}

// namespace makes the namespace of one case.
func (s *store) namespace(conformance.T) *conformance.Store {
	name := fmt.Sprintf("case%d", s.cases.Add(1))
	return &conformance.Store{
		Open:         func(ctx context.Context) (driver.Backend, error) { return s.open(ctx, name, true) },
		OpenExisting: func(ctx context.Context) (driver.Backend, error) { return s.open(ctx, name, false) },
		OpenNamespace: func(ctx context.Context, suffix string) (driver.Backend, error) {
			return s.open(ctx, name+suffix, true)
		},
	}
}

// open opens a backend. The container's network belongs to the engine, so plaintext is allowed even
// if the engine is on another host.
func (s *store) open(ctx context.Context, namespace string, create bool) (driver.Backend, error) {
	all := s.image.settings(s.addr)
	maps.Copy(all, settings{"namespace": namespace, "create": create, "insecure": true})
	return s.image.opener.Open(ctx, func(into any) error {
		text, err := json.Marshal(all)
		if err != nil {
			return err
		}
		return json.Unmarshal(text, into)
	})
}

// logs returns the end of the container's output, without the password.
func (s *store) logs() string {
	ctx, cancel := context.WithTimeout(context.Background(), engineTimeout)
	defer cancel()
	r, err := s.container.Logs(ctx)
	if err != nil {
		return err.Error()
	}
	defer r.Close()
	text, err := io.ReadAll(r)
	if err != nil {
		return err.Error()
	}
	all := string(text)
	if s.image.secret != "" {
		all = strings.ReplaceAll(all, s.image.secret, "xxxxx")
	}
	lines := strings.Split(strings.TrimSpace(all), "\n")
	return strings.Join(lines[max(0, len(lines)-logLines):], "\n")
}

// close removes the container.
func (s *store) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), removeTimeout)
	defer cancel()
	err := testcontainers.TerminateContainer(s.container, testcontainers.StopContext(ctx), testcontainers.StopTimeout(0))
	if s.janitor != nil {
		err = errors.Join(err, s.janitor.close(err == nil))
	}
	return err
}
