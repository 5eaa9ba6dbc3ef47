package quorum

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/tenure-go/tenure/backends/etcd"
	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/internal/proof/ample"
	"github.com/tenure-go/tenure/internal/proof/sqlfault"
)

// childVariable makes the test binary a member. Its value is a setting.
const childVariable = "TENURE_QUORUM_CHILD"

const (
	testTTL   = 5 * time.Second
	shard     = "invoices"
	namespace = "test"
)

func TestMain(m *testing.M) {
	text := os.Getenv(childVariable)
	if text == "" {
		os.Exit(m.Run())
	}
	go func() { // the test ended but left this process running
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(2)
	}()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	fmt.Println("up")
	if err := child(ctx, text); err != nil {
		fmt.Println("failed", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// setting is what a process does.
type setting struct {
	Config
	Replace    bool // instead of Start
	ClientOnly bool // the process is no member
	Idle       bool // the process does not contend for the shard
	TTL        time.Duration
}

func child(ctx context.Context, text string) (err error) {
	var s setting
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		return err
	}
	s.Logger = slog.New(slog.NewTextHandler(os.Stdout, nil))
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	open := func(ctx context.Context) (*Backend, error) {
		return Dial(ctx, s.Config, namespace, &etcd.Options{Create: true})
	}
	if !s.ClientOnly {
		starting, cancel := context.WithTimeout(ctx, ample.Time)
		defer cancel()
		begin := Start
		if s.Replace {
			begin = Replace
		}
		m, err := begin(starting, s.Config)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, m.Close()) }()
		go func() {
			<-m.Done()
			end(m.Err())
		}()
		fmt.Println("started")
		open = func(ctx context.Context) (*Backend, error) {
			return m.Open(ctx, namespace, &etcd.Options{Create: true})
		}
	}
	if s.Idle {
		<-ctx.Done()
		return stopped(ctx)
	}
	var b *Backend
	var failed error
	if !ample.Soon(ctx, func() bool { // an election may come
		limited, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		b, failed = open(limited)
		return failed == nil
	}) {
		return errors.Join(failed, stopped(ctx))
	}
	defer func() { err = errors.Join(err, b.Close()) }()
	err = core.RunSingleton(ctx, b, shard, lead(s.Name), &core.Options{TTL: cmp.Or(s.TTL, testTTL), Node: s.Name,
		Logger: s.Logger})
	if ctx.Err() == nil {
		return err
	}
	return stopped(ctx)
}

// stopped returns the reason why a member stopped, unless it was asked to.
func stopped(ctx context.Context) error {
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) {
		return fmt.Errorf("stopped: %w", err)
	}
	return nil
}

// lead appends numbered entries and reports those that the store has acknowledged.
func lead(name string) core.Handler {
	return func(ctx context.Context, l *core.Lease) error {
		fmt.Println("leads", l.Token())
		for i := 0; ctx.Err() == nil; i++ {
			payload := fmt.Sprintf("%s-%d-%d", name, l.Token(), i)
			n, err := l.Append(l.Context(), []byte(payload))
			if err != nil {
				return err
			}
			fmt.Println("wrote", n, payload)
			time.Sleep(20 * time.Millisecond)
		}
		return nil
	}
}

func endpoints(members []Address) (all []string) {
	for _, m := range members {
		all = append(all, "http://"+m.Client)
	}
	return all
}

// cluster runs members in processes, and records what they report.
type cluster struct {
	*testing.T
	of   Config // of every member, without Name and Dir
	root string
	ttl  time.Duration // default (0) testTTL

	mu     sync.Mutex
	acked  map[string]core.Seq // numbers of entries, by payload
	leader *proc               // the last one that reported a lease
	since  time.Time
	leases int
}

// newCluster chooses addresses for three members, of which none has started. Each cluster has its
// own addresses in 127.0.0.0/8, so tests that run in parallel share no ports.
func newCluster(t *testing.T) *cluster {
	c := &cluster{T: t, root: t.TempDir(), acked: map[string]core.Seq{}}
	c.of.Cluster = "test"
	for _, name := range []string{"a", "b", "c"} {
		ip := fmt.Sprintf("127.%d.%d.%d", 1+rand.IntN(254), rand.IntN(256), 1+rand.IntN(254))
		c.of.Members = append(c.of.Members, Address{Name: name, Peer: ip + ":2380", Client: ip + ":2379"})
	}
	return c
}

func (c *cluster) setting(name string) setting {
	s := setting{Config: c.of, TTL: c.ttl}
	s.Name, s.Dir = name, filepath.Join(c.root, name)
	return s
}

// proc is a process of a cluster.
type proc struct {
	c    *cluster
	name string
	cmd  *exec.Cmd
	read chan struct{} // closed when all its output has been read

	mu     sync.Mutex
	said   []string
	ended  bool
	stderr strings.Builder
}

// Write implements io.Writer for the standard error.
func (p *proc) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stderr.Write(b)
}

func (c *cluster) run(s setting) *proc {
	c.Helper()
	text, err := json.Marshal(s)
	if err != nil {
		c.Fatal(err)
	}
	p := &proc{c: c, name: s.Name, cmd: exec.Command(os.Args[0]), read: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), childVariable+"="+string(text))
	p.cmd.Stderr = p
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		c.Fatal(err)
	}
	if _, err := p.cmd.StdinPipe(); err != nil { // a pipe that ends with this process
		c.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		c.Fatal(err)
	}
	go func() {
		defer close(p.read)
		for in := bufio.NewScanner(out); in.Scan(); {
			p.take(in.Text())
		}
	}()
	c.Cleanup(func() { p.end(syscall.SIGKILL) })
	return p
}

// start starts a member as usual, after the cluster's first start.
func (c *cluster) start(name string) *proc {
	c.Helper()
	return c.run(c.setting(name))
}

// first starts all members for the first time, and waits until each has started.
func (c *cluster) first(idle bool) map[string]*proc {
	c.Helper()
	procs := map[string]*proc{}
	for _, m := range c.of.Members {
		s := c.setting(m.Name)
		s.Create, s.Idle = true, idle
		procs[m.Name] = c.run(s)
	}
	for _, p := range procs {
		p.await("started")
	}
	return procs
}

func (p *proc) take(line string) {
	var n core.Seq
	var payload string
	switch what, rest, _ := strings.Cut(line, " "); what {
	case "wrote":
		if _, err := fmt.Sscan(rest, &n, &payload); err != nil {
			p.c.Errorf("%q: %v", line, err)
		}
		p.c.mu.Lock()
		p.c.acked[payload] = n
		p.c.mu.Unlock()
	case "leads":
		p.c.mu.Lock()
		p.c.leader, p.c.since = p, time.Now()
		p.c.leases++
		p.c.mu.Unlock()
		fallthrough
	default:
		p.c.Logf("%s: %s", p.name, line)
		p.mu.Lock()
		p.said = append(p.said, line)
		p.mu.Unlock()
	}
}

// says waits for a line that contains all words.
func (p *proc) says(words ...string) {
	p.c.Helper()
	ample.Wait(p.c, fmt.Sprintf("%s has not said %q", p.name, words), func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return slices.ContainsFunc(p.said, func(l string) bool {
			return !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(l, w) })
		})
	})
}

// line returns the first line that begins with prefix.
func (p *proc) line(prefix string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, l := range p.said {
		if strings.HasPrefix(l, prefix) {
			return l
		}
	}
	return ""
}

func (p *proc) await(prefix string) string {
	p.c.Helper()
	ample.Wait(p.c, fmt.Sprintf("%s has not said %q", p.name, prefix), func() bool {
		select {
		case <-p.read:
			if p.line(prefix) == "" {
				p.c.Fatalf("%s ended without saying %q", p.name, prefix)
			}
		default:
		}
		return p.line(prefix) != ""
	})
	return p.line(prefix)
}

// end sends a signal and waits for the end of the process. The process must have printed nothing to
// its standard error. An orderly stop must succeed.
func (p *proc) end(s syscall.Signal) {
	p.c.Helper()
	if p.ended {
		return
	}
	p.ended = true
	if s == syscall.SIGTERM {
		p.await("up")
	}
	_ = p.cmd.Process.Signal(s)
	late := time.AfterFunc(ample.Time, func() { _ = p.cmd.Process.Kill() })
	<-p.read
	err := p.cmd.Wait()
	if !late.Stop() {
		p.c.Errorf("%s did not end within %v of its signal", p.name, ample.Time)
	} else if s == syscall.SIGTERM && err != nil {
		p.c.Errorf("%s, which was asked to stop: %v", p.name, err)
	}
	if text := p.stderr.String(); text != "" {
		p.c.Errorf("%s wrote to its standard error: %s", p.name, text)
	}
}

// fails waits for the end of a process that must fail with an error that contains all words.
func (p *proc) fails(words ...string) {
	p.c.Helper()
	line := p.await("failed")
	for _, w := range words {
		if !strings.Contains(line, w) {
			p.c.Errorf("%s: %q does not contain %q", p.name, line, w)
		}
	}
	p.end(syscall.Signal(0))
}

func (c *cluster) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.acked)
}

// progress waits until the cluster has acknowledged ten more entries.
func (c *cluster) progress() {
	c.Helper()
	n := c.count()
	ample.Wait(c, "no ten more entries were acknowledged", func() bool { return c.count() >= n+10 })
}

// owner waits until a process holds the shard, which was granted after n leases, and returns it.
func (c *cluster) owner(n int) (p *proc, since time.Time, leases int) {
	c.Helper()
	ample.Wait(c, "no process got the lease", func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		p, since, leases = c.leader, c.since, c.leases
		return leases > n
	})
	return p, since, leases
}

// check reads the log, which must contain every acknowledged entry, with tokens that do not decrease.
func (c *cluster) check() {
	c.Helper()
	c.mu.Lock()
	acked := maps.Clone(c.acked) // before the log is read: the processes go on
	c.mu.Unlock()
	log := c.log()
	for payload, n := range acked {
		if log[n] != payload {
			c.Errorf("entry %d was acknowledged as %q, and the log has %q", n, payload, log[n])
		}
	}
	if len(acked) == 0 {
		c.Error("no entry was acknowledged")
	}
	c.Logf("%d entries acknowledged, %d in the log", len(acked), len(log))
}

// log returns the log, after it has checked that tokens do not decrease.
func (c *cluster) log() map[core.Seq]string {
	c.Helper()
	b := sqlfault.Open(c, func(ctx context.Context) (*etcd.Backend, error) {
		return etcd.Open(ctx, clientv3.Config{Endpoints: endpoints(c.of.Members)}, namespace, nil)
	})
	log := map[core.Seq]string{}
	var last core.Token
	for at := core.Seq(0); ; {
		page, err := b.ReadLog(c.Context(), shard, at, 1000)
		if err != nil {
			c.Fatal(err)
		}
		if len(page.Entries) == 0 {
			break
		}
		for _, e := range page.Entries {
			log[e.Seq] = string(e.Payload)
			at = e.Seq
			var token core.Token
			if parts := strings.Split(string(e.Payload), "-"); len(parts) == 3 {
				_, _ = fmt.Sscan(parts[1], &token) // 0 fails below
			}
			if token == 0 || token < last {
				c.Errorf("entry %d is %q after token %d: tokens must not decrease", e.Seq, e.Payload, last)
			}
			last = token
		}
	}
	return log
}
