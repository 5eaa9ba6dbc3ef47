// Command containers runs servers for tests in containers, for package servers,
// which starts it and talks to it in lines of JSON: requests on its standard input,
// one answer to each on its standard output. When its input ends, because the test
// closed it or died, it removes what it started, so that nothing is left of a test
// that panicked.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"maps"
	"net/netip"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"time"

	"github.com/moby/moby/api/pkg/stdcopy"
	"github.com/moby/moby/api/types/container"
	mobynetwork "github.com/moby/moby/api/types/network"
	"github.com/moby/moby/client"
	"github.com/testcontainers/testcontainers-go"
	tclog "github.com/testcontainers/testcontainers-go/log"
	"github.com/testcontainers/testcontainers-go/network"
)

// request is one line of input: "start", once, and then what is done to a member.
type request struct {
	Do      string   `json:"do"` // start, kill, pause, unpause, run, logs
	Member  int      `json:"member"`
	Image   string   `json:"image"`
	Members []member `json:"members"`
}

// member is one container, of which the others know the name.
type member struct {
	Name    string            `json:"name"`
	Command []string          `json:"command"`
	Port    int               `json:"port"` // inside
	Host    int               `json:"host"` // on loopback, the same after a restart
	Files   map[string][]byte `json:"files"`
}

type answer struct {
	Error string `json:"error,omitempty"`
	Logs  []byte `json:"logs,omitempty"`
}

// limit bounds one request; a pull of an image takes longest.
const limit = 2 * time.Minute

func main() {
	// This process removes what it started; the library's own reaper is an image
	// that cannot be had everywhere.
	if err := os.Setenv("TESTCONTAINERS_RYUK_DISABLED", "true"); err != nil {
		log.Fatal(err)
	}
	tclog.SetDefault(log.New(io.Discard, "", 0))
	signal.Ignore(os.Interrupt)
	f := &fleet{}
	err := f.serve(os.Stdin, os.Stdout)
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	if err = errors.Join(err, f.remove(ctx)); err != nil {
		log.Fatal(err)
	}
}

// fleet is what was started.
type fleet struct {
	docker     *testcontainers.DockerClient
	network    *testcontainers.DockerNetwork
	containers []testcontainers.Container
}

func (f *fleet) serve(in io.Reader, out io.Writer) error {
	requests, answers := json.NewDecoder(in), json.NewEncoder(out)
	for {
		var r request
		if err := requests.Decode(&r); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(context.Background(), limit)
		logs, err := f.do(ctx, r)
		cancel()
		a := answer{Logs: logs}
		if err != nil {
			a.Error = err.Error()
		}
		if err := answers.Encode(a); err != nil {
			return err
		}
	}
}

func (f *fleet) do(ctx context.Context, r request) ([]byte, error) {
	if r.Do == "start" {
		return nil, f.start(ctx, r)
	}
	if r.Member < 0 || r.Member >= len(f.containers) {
		return nil, fmt.Errorf("there is no member %d", r.Member)
	}
	id := f.containers[r.Member].GetContainerID()
	var err error
	switch r.Do {
	case "kill": // also one that is paused
		_, _ = f.docker.ContainerUnpause(ctx, id, client.ContainerUnpauseOptions{})
		_, err = f.docker.ContainerKill(ctx, id, client.ContainerKillOptions{Signal: "KILL"})
	case "pause":
		_, err = f.docker.ContainerPause(ctx, id, client.ContainerPauseOptions{})
	case "unpause":
		_, err = f.docker.ContainerUnpause(ctx, id, client.ContainerUnpauseOptions{})
	case "run":
		_, err = f.docker.ContainerStart(ctx, id, client.ContainerStartOptions{})
	case "logs":
		return f.logs(ctx, id)
	default:
		err = fmt.Errorf("there is no request %q", r.Do)
	}
	return nil, err
}

func (f *fleet) start(ctx context.Context, r request) (err error) {
	if f.network != nil {
		return errors.New("started already")
	}
	if f.docker, err = testcontainers.NewDockerClientWithOpts(ctx); err != nil {
		return err
	}
	if f.network, err = network.New(ctx); err != nil {
		return err
	}
	for _, m := range r.Members {
		inside, err := mobynetwork.ParsePort(strconv.Itoa(m.Port) + "/tcp")
		if err != nil {
			return err
		}
		req := testcontainers.ContainerRequest{
			Image: r.Image, Entrypoint: m.Command[:1], Cmd: m.Command[1:], ExposedPorts: []string{inside.String()},
			Networks: []string{f.network.Name}, NetworkAliases: map[string][]string{f.network.Name: {m.Name}},
			HostConfigModifier: func(c *container.HostConfig) {
				c.PortBindings = mobynetwork.PortMap{inside: {{HostIP: netip.MustParseAddr("127.0.0.1"), HostPort: strconv.Itoa(m.Host)}}}
			},
		}
		for _, path := range slices.Sorted(maps.Keys(m.Files)) {
			req.Files = append(req.Files, testcontainers.ContainerFile{Reader: bytes.NewReader(m.Files[path]), ContainerFilePath: path, FileMode: 0o444})
		}
		c, err := testcontainers.GenericContainer(ctx, testcontainers.GenericContainerRequest{ContainerRequest: req, Started: true})
		if c != nil {
			f.containers = append(f.containers, c)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// logs is the end of what a container wrote.
func (f *fleet) logs(ctx context.Context, id string) ([]byte, error) {
	r, err := f.docker.ContainerLogs(ctx, id, client.ContainerLogsOptions{ShowStdout: true, ShowStderr: true, Tail: "100"})
	if err != nil {
		return nil, err
	}
	defer r.Close()
	var text bytes.Buffer
	_, err = stdcopy.StdCopy(&text, &text, r)
	return text.Bytes(), err
}

func (f *fleet) remove(ctx context.Context) error {
	var errs []error
	for _, c := range f.containers {
		// One that is paused would not end.
		_, _ = f.docker.ContainerUnpause(ctx, c.GetContainerID(), client.ContainerUnpauseOptions{})
		errs = append(errs, c.Terminate(ctx, testcontainers.StopTimeout(0)))
	}
	if f.network != nil {
		errs = append(errs, f.network.Remove(ctx))
	}
	return errors.Join(errs...)
}
