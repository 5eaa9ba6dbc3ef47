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

const defaultStartTimeout = 3 * time.Minute

const (
	engineTimeout = 10 * time.Second // time limit for the engine's first answer
	openTimeout   = 10 * time.Second // time limit for one attempt to open the backend
	openPause     = 100 * time.Millisecond
	removeTimeout = time.Minute
	logLines      = 40
)

// Options configures Run. Nil and the zero value select the defaults.
type Options struct {
	// Cases lists the cases to run, in the form "Area/Property". A listed case fails if the suite
	// would skip it. By default, Run runs all possible cases.
	Cases []string

	// StartTimeout limits the total time for pulling the image and starting the store. The default
	// is 3 minutes.
	StartTimeout time.Duration

	// Required makes Run fail the test, instead of skipping it, if the engine or the image is
	// unavailable. The default is false.
	Required bool
}

// errUnavailable is the error that makes Run skip a test.
var errUnavailable = errors.New("not available")

// Run starts a container of the image, runs the suite on it as subtests of t, and removes the
// container when t ends. If no Docker engine is available, or the image is missing and cannot be
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

// store is one container and its namespaces.
type store struct {
	image     Image
	host      string // host of the container's port
	local     bool   // this process reaches the engine through a local socket
	addr      string // host and port, once they are known
	janitor   *janitor
	container testcontainers.Container
	cases     atomic.Int64
}

// start starts the container, and waits until a backend can be opened.
func (s *store) start(ctx context.Context) error {
	provider, err := engine(ctx)
	if err != nil {
		return fmt.Errorf("tenure: %s: %w: no Docker engine answers: %w", s.image.name, errUnavailable, err)
	}
	defer provider.Close() //nolint:errcheck // the container stays, because it has its own client
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

// engine returns the engine that testcontainers-go is configured to use. testcontainers-go panics
// if there is no engine.
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

// pull pulls the image if the engine lacks it. Without this step, testcontainers-go would retry
// until the context ended, and give no reason.
func pull(ctx context.Context, docker client.APIClient, image string) error {
	if testcontainers.ReadConfig().Config.HubImageNamePrefix != "" {
		return nil // testcontainers-go will use another name for the image
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
		host = "127.0.0.1" // the first address of localhost may be a different one
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

// ready waits until a backend can be opened. It returns an error as soon as no attempt can succeed.
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
	if s.addr == "" { // a container that has ended has no port
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

// reached returns the address at which this process can reach a published port. If this process
// runs in a container, the engine behind a local socket may run outside that container. The
// loopback address then refuses connections.
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

// namespace creates a namespace for one case.
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

func (s *store) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), removeTimeout)
	defer cancel()
	err := testcontainers.TerminateContainer(s.container, testcontainers.StopContext(ctx), testcontainers.StopTimeout(0))
	if s.janitor != nil {
		err = errors.Join(err, s.janitor.close(err == nil))
	}
	return err
}
