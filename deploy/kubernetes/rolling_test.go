//go:build unix

package kubernetes

import (
	"bufio"
	"cmp"
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
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/tenure-go/tenure/backends/sql/sqlite"
	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/internal/keyspace"
	"github.com/tenure-go/tenure/internal/proof/ample"
	"github.com/tenure-go/tenure/observe/tenurehttp"
	"github.com/tenure-go/tenure/sharding"
)

const (
	memberVariable = "TENURE_TEST_MEMBER" // NODE:PATH makes the test binary a member
	shards         = "orders-00..11"
	numShards      = 12
	// With this TTL, no trust lapses while the disk hangs for some seconds. Nothing in this test
	// waits for a TTL.
	ttl = time.Minute
	// A leaving member that gets no plan within four intervals chooses its successors itself, and
	// the next plan may move these shards again.
	interval = 2 * time.Second
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

// runMember is the process of a pod. It serves its shards and the probes until SIGTERM.
func runMember(node, path string) (err error) {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	b, err := sqlite.Open(ctx, path, "orders", nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.Close()) }()
	e, err := core.NewElector(b, &core.Options{Node: node, TTL: ttl, LameDuck: 300 * time.Millisecond, LockDir: "none",
		Supersede: true, Logger: slog.New(slog.DiscardHandler), Hooks: core.Hooks{OnEvent: func(e core.Event) {
			switch e.Kind {
			case core.LeaseGranted:
				fmt.Printf("granted %s %d %q\n", e.Fence.Shard, e.Fence.Token, e.Session)
			case core.LeaseReleased, core.LeaseTransferred, core.LeaseLost, core.LeaseRefused, core.LeaseUnknown:
				fmt.Printf("settled %s %d %q\n", e.Fence.Shard, e.Fence.Token, e.Kind)
			default: // not of interest
			}
		}}})
	if err != nil {
		return err
	}
	m, err := sharding.NewManager(b, e, serveShard, &sharding.Options{Shards: []string{shards}, Interval: interval})
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

// serveShard produces the load. It appends entries for as long as it may, and prints each
// acknowledged entry.
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

// An ack is an entry that was acknowledged to a member.
type ack struct {
	shard string
	seq   core.Seq
	token core.Token
}

// A lease contains what a member observed about one of its leases.
type lease struct {
	token   core.Token
	owner   string         // the pod's name
	former  string         // the session of the former owner
	outcome core.EventKind // empty until it is over
}

// rollout acts as a Deployment. Its pods are processes.
type rollout struct {
	*testing.T
	path string
	next int
	pods []*pod

	mu     sync.Mutex
	acks   []ack
	leases map[string][]*lease // by shard, in the order of tokens
}

type pod struct {
	cmd     *exec.Cmd
	name    string
	address string
	read    chan struct{} // closed at the end of its output
}

func (r *rollout) start() {
	r.Helper()
	r.startAs(fmt.Sprintf("orders-%d", r.next))
	r.next++
}

// startAs starts a pod, and waits until its readiness probe succeeds.
func (r *rollout) startAs(name string) {
	r.Helper()
	p := &pod{name: name, read: make(chan struct{})}
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
			r.hear(p.name, lines.Text())
		}
	}()
	r.becomes(p.name+" ready", func() bool { return p.probe("/readyz") == http.StatusOK })
}

func (r *rollout) hear(pod, line string) {
	var what, shard, rest string
	var number int64
	if n, err := fmt.Sscanf(line, "%s %s %d %s", &what, &shard, &number, &rest); n < 4 || err != nil ||
		!strings.HasPrefix(shard, "orders-") {
		return // a line that a kill cut off, or a line of the assigner
	}
	text := strings.Trim(rest, `"`)
	r.mu.Lock()
	defer r.mu.Unlock()
	switch what {
	case "ack":
		token, _ := strconv.ParseInt(rest, 10, 64)
		r.acks = append(r.acks, ack{shard, core.Seq(number), core.Token(token)})
	case "granted":
		r.leases[shard] = append(r.leases[shard], &lease{token: core.Token(number), owner: pod, former: text})
		slices.SortFunc(r.leases[shard], func(a, b *lease) int { return cmp.Compare(a.token, b.token) })
	case "settled":
		for _, l := range r.leases[shard] {
			if l.token == core.Token(number) {
				l.outcome = core.EventKind(text)
			}
		}
	}
}

// probe sends the same request as the kubelet's probe.
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
	ample.Wait(r, what, cond)
}

// allServed waits until every shard has a newly acknowledged entry.
func (r *rollout) allServed() {
	r.Helper()
	r.mu.Lock()
	since := len(r.acks)
	r.mu.Unlock()
	r.becomes("every shard is served", func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		served := map[string]bool{}
		for _, a := range r.acks[since:] {
			served[a.shard] = true
		}
		return len(served) == numShards
	})
}

// shared waits until every pod owns its share, and returns the newest token of each shard.
func (r *rollout) shared() (tokens map[string]core.Token) {
	r.Helper()
	r.becomes(fmt.Sprintf("each of %d members owns its share", len(r.pods)), func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		owned := map[string]int{}
		tokens = map[string]core.Token{}
		for shard, list := range r.leases {
			newest := list[len(list)-1]
			tokens[shard] = newest.token
			if newest.outcome == "" {
				owned[newest.owner]++
			}
		}
		return !slices.ContainsFunc(r.pods, func(p *pod) bool { return owned[p.name] != numShards/len(r.pods) })
	})
	return tokens
}

// end ends the oldest pod with a signal, and returns its exit code.
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
	late := time.AfterFunc(ample.Time, func() { _ = p.cmd.Process.Kill() })
	defer late.Stop()
	<-p.read
	_ = p.cmd.Wait()
	return p.cmd.ProcessState.ExitCode()
}

// from returns the leases of each shard that have at least the given token. It first waits until
// done returns true for each shard's leases.
func (r *rollout) from(tokens map[string]core.Token, what string, done func([]*lease) bool) (leases map[string][]*lease) {
	r.Helper()
	r.becomes(what, func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		leases = map[string][]*lease{}
		for shard, list := range r.leases {
			first := slices.IndexFunc(list, func(l *lease) bool { return l.token == tokens[shard] })
			leases[shard] = slices.Clone(list[first:])
			if !done(leases[shard]) {
				return false
			}
		}
		return true
	})
	return leases
}

// TestRollingDeploy replaces three members one by one under load, as the Deployment does. A new
// member has its share before an old member is asked to leave. Each move of a shard takes one
// write, and no acknowledged entry is lost. In the control, a member is killed, and the other
// members take over its shards.
//
// The number of moves is the minimum for an assigner that does not know which member leaves next.
// Each new member gets a quarter of the shards, and each leaving member gives up a quarter.
// Therefore, a shard moves at most twice.
func TestRollingDeploy(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("-short: real processes are deployed in .ci/run")
	}
	const replicas = 3
	r := &rollout{T: t, path: filepath.Join(t.TempDir(), "orders.db"), leases: map[string][]*lease{}}
	t.Cleanup(func() {
		for _, p := range r.pods {
			_ = p.cmd.Process.Kill()
			_ = p.cmd.Wait()
		}
	})
	for range replicas {
		r.start()
	}
	begun := r.shared()
	for range replicas {
		r.start()
		r.shared()
		if code := r.end(syscall.SIGTERM); code != 0 {
			t.Errorf("a member that was asked to leave ended with %d", code)
		}
		r.shared()
		r.allServed()
	}
	moves := 0
	for shard, list := range r.from(begun, "each lease but the newest is over", func(list []*lease) bool {
		return !slices.ContainsFunc(list[:len(list)-1], func(l *lease) bool { return l.outcome == "" })
	}) {
		moves += len(list) - 1
		if len(list) < 2 || len(list) > 3 {
			t.Errorf("%s moved %d times, want once or twice", shard, len(list)-1)
		}
		for i, l := range list[1:] {
			if was := list[i]; was.outcome != core.LeaseTransferred || l.former != "" {
				t.Errorf("%s passed from %s to %s: the lease ended as %q, and the next was taken over from %q: want a hand-over",
					shard, was.owner, l.owner, was.outcome, l.former)
			}
		}
	}
	t.Logf("%d moves while all members were replaced", moves)
	if want := replicas * 2 * numShards / (replicas + 1); moves != want {
		t.Errorf("%d moves while all members were replaced, want %d", moves, want)
	}

	begun = r.shared()
	killed := r.pods[0].name
	r.end(syscall.SIGKILL)
	r.startAs(killed) // it supersedes the session of the killed process
	lost := 0
	for shard, list := range r.from(begun, "the killed member's shards have another lease", func(list []*lease) bool {
		return list[0].owner != killed || len(list) > 1
	}) {
		if was := list[0]; was.owner == killed {
			lost++
			if was.outcome != "" || list[1].former == "" {
				t.Errorf("%s of the member that was killed: the lease ended as %q, and the next was taken over from %q",
					shard, was.outcome, list[1].former)
			}
		}
	}
	r.allServed()
	if lost != numShards/replicas {
		t.Errorf("the member that was killed had %d shards, want %d", lost, numShards/replicas)
	}
	for len(r.pods) > 0 {
		r.end(syscall.SIGTERM)
	}
	r.complete()
}

func (r *rollout) complete() {
	r.Helper()
	b, err := sqlite.Open(r.Context(), r.path, "orders", nil)
	if err != nil {
		r.Fatal(err)
	}
	defer b.Close()
	names, err := keyspace.Expand(shards)
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
