//go:build unix

package kubernetes

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
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

	"github.com/tenure-go/tenure/backends/sql/sqlite"
	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/observe/tenurehttp"
	"github.com/tenure-go/tenure/sharding"
)

const (
	memberVariable = "TENURE_TEST_MEMBER" // NODE:PATH makes the test binary a member
	shards         = "orders-00..11"
	numShards      = 12
	limit          = time.Minute
	ttl            = 4 * time.Second
	// handover is the longest time that a shard may be without an owner. A crash takes two
	// thirds of the TTL at least (V1).
	handover = ttl / 2
)

func TestMain(m *testing.M) {
	if node, path, ok := strings.Cut(os.Getenv(memberVariable), ":"); ok {
		if err := runMember(node, path); err != nil {
			fmt.Fprintln(os.Stderr, node, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// runMember is a pod's process: it serves its shards and the probes until SIGTERM.
func runMember(node, path string) (err error) {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	b, err := sqlite.Open(ctx, path, "orders", nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.Close()) }()
	e, err := core.NewElector(b, &core.Options{Node: node, TTL: ttl, LameDuck: 300 * time.Millisecond, LockDir: "none",
		Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	m, err := sharding.NewManager(b, e, serveShard, &sharding.Options{Shards: []string{shards}, Interval: 200 * time.Millisecond})
	if err != nil {
		return err
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	web := &http.Server{Handler: tenurehttp.Handler(e, nil), ReadHeaderTimeout: time.Second}
	served := make(chan error, 1)
	go func() { served <- web.Serve(ln) }()
	fmt.Println("listens", ln.Addr())
	elect, end := context.WithCancel(context.Background())
	defer end()
	ended := make(chan error, 1)
	go func() { ended <- e.Run(elect) }()
	err = m.Run(ctx)
	end()
	err = errors.Join(err, <-ended, web.Close())
	<-served
	return err
}

// serveShard is the load: it appends entries for as long as it may, and writes which were
// acknowledged.
func serveShard(ctx context.Context, l *core.Lease) error {
	for ctx.Err() == nil {
		seq, err := l.Append(l.Context(), fmt.Appendf(nil, "%s %d", l.Shard(), l.Token()))
		if err != nil {
			return err
		}
		fmt.Println("ack", l.Shard(), seq, l.Token())
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
		}
	}
	return nil
}

// An ack is an entry that a member was told is written.
type ack struct {
	at    time.Time
	shard string
	seq   core.Seq
	token core.Token
}

// rollout is a Deployment whose pods are processes.
type rollout struct {
	*testing.T
	path string
	next int
	pods []*pod

	mu   sync.Mutex
	acks []ack
}

// pod is one process.
type pod struct {
	cmd     *exec.Cmd
	name    string
	address string
	read    chan struct{} // closed at the end of its output
}

// start starts a pod, and waits until its readiness probe succeeds.
func (r *rollout) start() {
	r.Helper()
	p := &pod{name: fmt.Sprintf("orders-%d", r.next), read: make(chan struct{})}
	r.next++
	p.cmd = exec.Command(os.Args[0])
	p.cmd.Env = append(os.Environ(), memberVariable+"="+p.name+":"+r.path)
	p.cmd.Stderr = os.Stderr
	out, err := p.cmd.StdoutPipe()
	if err == nil {
		err = p.cmd.Start()
	}
	if err != nil {
		r.Fatal(err)
	}
	r.pods = append(r.pods, p)
	lines := bufio.NewScanner(out)
	if !lines.Scan() || !strings.HasPrefix(lines.Text(), "listens ") {
		r.Fatalf("%s says %q", p.name, lines.Text())
	}
	p.address = strings.TrimPrefix(lines.Text(), "listens ")
	go func() {
		defer close(p.read)
		for lines.Scan() {
			a := ack{at: time.Now()}
			if _, err := fmt.Sscanf(lines.Text(), "ack %s %d %d", &a.shard, &a.seq, &a.token); err != nil {
				continue // cut off by a kill
			}
			r.mu.Lock()
			r.acks = append(r.acks, a)
			r.mu.Unlock()
		}
	}()
	r.becomes(p.name+" ready", func() bool { return p.probe("/readyz") == http.StatusOK })
}

// probe is what the kubelet does.
func (p *pod) probe(path string) int {
	client := http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Get("http://" + p.address + path)
	if err != nil {
		return 0
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode
}

func (r *rollout) becomes(what string, cond func() bool) {
	r.Helper()
	for end := time.Now().Add(limit); !cond(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			r.Fatalf("not within %v: %s", limit, what)
		}
	}
}

// allServed waits for an entry of every shard that is acknowledged from now on.
func (r *rollout) allServed() {
	r.Helper()
	since := time.Now()
	r.becomes("every shard is served", func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		served := map[string]bool{}
		for _, a := range r.acks {
			if a.at.After(since) {
				served[a.shard] = true
			}
		}
		return len(served) == numShards
	})
}

// end ends the oldest pod, by a signal, and returns its exit code.
func (r *rollout) end(s syscall.Signal) int {
	r.Helper()
	p := r.pods[0]
	r.pods = r.pods[1:]
	if err := p.cmd.Process.Signal(s); err != nil {
		r.Fatal(err)
	}
	if s == syscall.SIGTERM {
		r.becomes(p.name+" unready", func() bool { return p.probe("/readyz") != http.StatusOK })
		if got := p.probe("/healthz"); got != http.StatusOK && got != 0 {
			r.Errorf("%s, which leaves, has the liveness %d", p.name, got)
		}
	}
	late := time.AfterFunc(limit, func() { _ = p.cmd.Process.Kill() })
	defer late.Stop()
	<-p.read
	_ = p.cmd.Wait()
	return p.cmd.ProcessState.ExitCode()
}

// longestGap is the longest time from the last entry under one token to the first under
// the next.
func (r *rollout) longestGap(since time.Time) (longest time.Duration, moves int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	first, last := map[string]time.Time{}, map[string]time.Time{} // by shard and token
	tokens := map[string][]core.Token{}
	for _, a := range r.acks {
		if a.at.Before(since) {
			continue
		}
		key := fmt.Sprint(a.shard, " ", a.token)
		if _, ok := first[key]; !ok {
			first[key] = a.at
			tokens[a.shard] = append(tokens[a.shard], a.token)
		}
		last[key] = a.at
	}
	for shard, list := range tokens {
		slices.Sort(list)
		for i := 1; i < len(list); i++ {
			moves++
			longest = max(longest, first[fmt.Sprint(shard, " ", list[i])].Sub(last[fmt.Sprint(shard, " ", list[i-1])]))
		}
	}
	return longest, moves
}

// TestRollingDeploy replaces three members one by one under load, as the Deployment does:
// a new one is ready before an old one is asked to leave. No shard is without an owner for
// longer than a hand-over takes, and nothing that was acknowledged is lost. A member that
// is killed is the control: its shards do have no owner for longer.
func TestRollingDeploy(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("-short: real processes are deployed in .ci/run")
	}
	const replicas = 3
	r := &rollout{T: t, path: filepath.Join(t.TempDir(), "orders.db")}
	t.Cleanup(func() {
		for _, p := range r.pods {
			_ = p.cmd.Process.Kill()
			_ = p.cmd.Wait()
		}
	})
	for range replicas {
		r.start()
	}
	r.allServed()
	begun := time.Now()
	for range replicas {
		r.start()
		if code := r.end(syscall.SIGTERM); code != 0 {
			t.Errorf("a member that was asked to leave ended with %d", code)
		}
		r.allServed()
	}
	gap, moves := r.longestGap(begun)
	t.Logf("%d moves while all members were replaced; a shard was without an owner for %v at most", moves, gap)
	if gap > handover || moves < numShards {
		t.Errorf("%d moves, the longest gap %v: want at least %d moves, and no gap above %v", moves, gap, numShards, handover)
	}

	killed := time.Now()
	r.allServed() // so that the members that are left have shards, too
	r.end(syscall.SIGKILL)
	r.becomes("the killed member's shards are served", func() bool {
		gap, _ = r.longestGap(killed)
		return gap > handover
	})
	for len(r.pods) > 0 {
		r.end(syscall.SIGTERM)
	}
	r.complete()
}

// complete compares the logs with what was acknowledged.
func (r *rollout) complete() {
	r.Helper()
	b, err := sqlite.Open(r.Context(), r.path, "orders", nil)
	if err != nil {
		r.Fatal(err)
	}
	defer b.Close()
	names, err := sharding.Expand(shards)
	if err != nil {
		r.Fatal(err)
	}
	written := map[string]core.Token{}
	for _, shard := range names {
		for after := core.Seq(0); ; {
			page, err := b.ReadLog(r.Context(), core.ShardID(shard), after, 1000)
			if err != nil {
				r.Fatal(err)
			}
			if len(page.Entries) == 0 {
				break
			}
			for _, e := range page.Entries {
				after = e.Seq
				written[fmt.Sprint(shard, " ", e.Seq)] = e.Token
				if got, want := string(e.Payload), fmt.Sprintf("%s %d", shard, e.Token); got != want {
					r.Errorf("entry %d of %s says %q, want %q", e.Seq, shard, got, want)
				}
			}
		}
	}
	for _, a := range r.acks {
		if got := written[fmt.Sprint(a.shard, " ", a.seq)]; got != a.token {
			r.Errorf("entry %d of %s was acknowledged under token %d, and the log has %d", a.seq, a.shard, a.token, got)
		}
	}
	if len(r.acks) < 100 {
		r.Errorf("%d entries acknowledged: the load proves nothing", len(r.acks))
	}
}
