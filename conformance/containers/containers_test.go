package containers

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/tenure-go/tenure/internal/proof/servers"
)

var fullFlag = flag.Bool("full", false, "run all cases, and not a few")

// TestMain turns Ryuk off, because Ryuk's image cannot be pulled everywhere, and the tests need
// this package's janitor.
func TestMain(m *testing.M) {
	if err := os.Setenv("TESTCONTAINERS_RYUK_DISABLED", "true"); err != nil {
		panic(err)
	}
	m.Run()
}

// absent is an image in a registry that does not exist.
const absent = "127.0.0.1:1/tenure/absent:1"

func options() *Options {
	o := &Options{StartTimeout: time.Minute}
	if !*fullFlag {
		o.Cases = []string{
			"Acquire/Idempotent", "Acquire/ClaimRacesEvict", "Commit/FencedAfterTakeover", "Membership/JoinTellsAll", "Log/Contiguous",
		}
	}
	return o
}

// TestImages runs the suite on each image that the engine has or can pull.
func TestImages(t *testing.T) {
	t.Parallel()
	servers.Short(t)
	for name, image := range map[string]Image{
		"postgres":  Postgres("postgres:16"),
		"mysql":     MySQL("mysql:8.4"),
		"mariadb":   MariaDB("mariadb:10.11"),
		"etcd":      Etcd("gcr.io/etcd-development/etcd:v3.7.3"),
		"consul":    Consul("hashicorp/consul:1.16.3"),
		"zookeeper": ZooKeeper("zookeeper:3.9"),
		"redis":     Redis("redis:7"),
		"debian":    Redis("tenure/redis-server:debian"), // made by internal/proof/servers/images.sh
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			Run(t, image, options())
		})
	}
}

// TestDying is the child process of TestRemovedAfterDeath.
func TestDying(t *testing.T) {
	if os.Getenv("TENURE_TEST_DYING") == "" {
		t.Skip("run by TestRemovedAfterDeath")
	}
	s := &store{image: Etcd("gcr.io/etcd-development/etcd:v3.7.3")}
	t.Cleanup(func() {
		if err := s.close(); err != nil {
			t.Error(err)
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	err := s.start(ctx)
	if errors.Is(err, errUnavailable) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stdout.WriteString("started " + s.janitor.id + "\n"); err != nil {
		t.Fatal(err)
	}
	<-t.Context().Done()
}

// TestRemovedAfterDeath kills a process that runs a container.
func TestRemovedAfterDeath(t *testing.T) {
	t.Parallel()
	servers.Short(t)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	child := exec.CommandContext(ctx, os.Args[0], "-test.run=^TestDying$", "-test.v", "-test.timeout=2m")
	child.Env = append(os.Environ(), "TENURE_TEST_DYING=1")
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	id, text := startedIn(out)
	if id == "" {
		if err := child.Wait(); err != nil || !strings.Contains(text, "--- SKIP") {
			t.Fatalf("the process ended: %v\n%s", err, text)
		}
		t.Skip(text)
	}
	before := labelled(t, ctx, id)
	if err := child.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := child.Wait(); err == nil {
		t.Error("the process ended by itself")
	}
	if before == "" {
		t.Fatalf("there was no container with label %s=%s to remove", janitorLabel, id)
	}
	for labelled(t, ctx, id) != "" {
		time.Sleep(100 * time.Millisecond) // the context of docker limits it
	}
}

// startedIn reads until the process prints the id of its janitor, or ends.
func startedIn(out interface{ Read([]byte) (int, error) }) (id, text string) {
	var all bytes.Buffer
	chunk := make([]byte, 4096)
	for {
		n, err := out.Read(chunk)
		all.Write(chunk[:n])
		if _, after, ok := strings.Cut(all.String(), "started "); ok && strings.Contains(after, "\n") {
			return strings.TrimSpace(strings.SplitN(after, "\n", 2)[0]), all.String()
		}
		if err != nil {
			return "", all.String()
		}
	}
}

// labelled returns the containers of a janitor.
func labelled(t *testing.T, ctx context.Context, id string) string {
	t.Helper()
	out, err := exec.CommandContext(ctx, "docker", "ps", "--all", "--quiet", "--filter", "label="+janitorLabel+"="+id).CombinedOutput()
	if err != nil {
		t.Fatalf("docker ps: %v: %s", err, out)
	}
	return string(out)
}

// TestNoEngine runs this binary without an engine's socket.
func TestNoEngine(t *testing.T) {
	t.Parallel()
	if text := hidden(t, "true"); text != "" {
		t.Skipf("/run cannot be hidden here: %s", text)
	}
	text := hidden(t, `exec "$0" -test.v -test.run='^TestImages$/^etcd$'`)
	if !strings.Contains(text, "--- SKIP: TestImages/etcd") || !strings.Contains(text, "no Docker engine answers: ") {
		t.Errorf("without an engine, got\n%s\nwant a skipped test that says so", text)
	}
}

// hidden runs a shell command in an environment without /run. In the command, $0 is this binary.
func hidden(t *testing.T, command string) string {
	t.Helper()
	c := exec.CommandContext(t.Context(), "unshare", "--mount", "--map-root-user", "sh", "-c",
		"mount -t tmpfs tmpfs /run || exit; "+command, os.Args[0])
	c.Env = append(os.Environ(), "HOME="+t.TempDir(), "XDG_RUNTIME_DIR=", "DOCKER_HOST=tcp://127.0.0.1:1")
	out, err := c.CombinedOutput()
	if err != nil {
		return err.Error() + ": " + string(out)
	}
	return string(out)
}

// TestUnavailable: an image that cannot be pulled is a reason to skip, with an explanation.
func TestUnavailable(t *testing.T) {
	t.Parallel()
	servers.Short(t)
	s := &store{image: Etcd(absent)}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	provider, err := engine(ctx)
	if err != nil {
		t.Skip(err)
	}
	if err := provider.Close(); err != nil {
		t.Error(err)
	}
	err = s.start(ctx)
	if !errors.Is(err, errUnavailable) || !strings.Contains(err.Error(), absent+": not available: the engine does not have the image") {
		t.Errorf("got %v of an image that nobody has, want a reason to skip", err)
	}
	if s.container != nil {
		t.Error("there is a container of it nevertheless")
	}
}

// TestNeverReady: the package does not wait for a store that has ended, and the error contains the
// store's output. The same is true if the container, and thus its port, was gone before the package
// looked for the port.
func TestNeverReady(t *testing.T) {
	t.Parallel()
	servers.Short(t)
	image := Etcd("gcr.io/etcd-development/etcd:v3.7.3")
	image.command = []string{"--no-such-flag"}
	s := &store{image: image}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	judge := func(err error) {
		t.Helper()
		if err == nil || ctx.Err() != nil || !strings.Contains(err.Error(), "exited with code") ||
			!strings.Contains(err.Error(), "no-such-flag") {
			t.Errorf("got %v, want the exit code and what the store wrote", err)
		}
	}
	err := s.start(ctx)
	if errors.Is(err, errUnavailable) {
		t.Skip(err)
	}
	judge(err)
	s.addr = "" // it has ended, and its port is asked for again
	judge(s.ready(ctx))
	id := s.janitor.id
	if err := s.close(); err != nil {
		t.Error(err)
	}
	if left := labelled(t, ctx, id); left != "" {
		t.Errorf("container %s is left", left)
	}
}

// TestOptionsAreChecked: options are checked before anything is started.
func TestOptionsAreChecked(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		image Image
		o     Options
	}{{image: Image{}}, {image: Postgres("")}, {image: Etcd("etcd"), o: Options{StartTimeout: -1}}} {
		if err := c.o.check(c.image); err == nil {
			t.Errorf("image %q with %+v is accepted", c.image.name, c.o)
		}
	}
	if err := new(Options).check(Redis("redis:7")); err != nil {
		t.Error(err)
	}
}
