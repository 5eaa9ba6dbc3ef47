package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/internal/proof/ample"
	"github.com/tenure-go/tenure/internal/proof/servers"
)

var serveRounds = flag.Int("serve.rounds", 1, "faults of each kind in TestServe and TestServedSidecars")

const (
	serveTTL = 2 * time.Second
	// slack is the time that the successor's calls may take in cases that perhaps allow no
	// successor. Package sidecar tests exactly how long a lease outlives its client.
	slack = 5 * time.Second
)

// TestServe kills and stops the client that leads, and its sidecar. No write may be accepted under
// a superseded token, and each lease must end after its client.
func TestServe(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("-short: real sidecars run in .ci/run")
	}
	newPairing(t, sqlitePlace(t)).play(*serveRounds)
}

// TestServedSidecars runs TestServe on the stores that have servers.
func TestServedSidecars(t *testing.T) {
	t.Parallel()
	run := func(name string, place func(t *testing.T) *place) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			newPairing(t, place(t)).play(*serveRounds)
		})
	}
	run("postgres", func(t *testing.T) *place {
		return newPlace(t, fmt.Sprintf("postgres: {dsn: %q, namespace: test}", pool.Get(t, servers.Postgres, nil).Database(t).Reveal()))
	})
	run("mysql", func(t *testing.T) *place {
		return newPlace(t, fmt.Sprintf("mysql: {dsn: %q, namespace: test}", pool.Get(t, servers.MariaDB, nil).Database(t).Reveal()))
	})
	for kind, format := range atAddress {
		run(string(kind), func(t *testing.T) *place {
			return newPlace(t, fmt.Sprintf(format, servers.New(t, kind, nil).Addr()))
		})
	}
}

// pairing contains two sidecars, each with a client of the same shard.
type pairing struct {
	*testing.T
	p        *place
	tokens   string // the token file
	sidecars [2]*exec.Cmd
	logs     [2]*journal
	address  [2]string
	clients  [2]*exec.Cmd
	readers  sync.WaitGroup

	mu    sync.Mutex
	lines []clientLine
	heard chan struct{}
}

// A clientLine is a client's output about one state.
type clientLine struct {
	at     time.Time
	client int
	state  string
	token  int64
	status int
	seq    core.Seq
}

// journal is the output of a process, which can be read while it is written.
type journal struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (j *journal) Write(b []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Write(b)
}

func (j *journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.String()
}

func newPairing(t *testing.T, p *place) *pairing {
	t.Helper()
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("the clients need python3")
	}
	x := &pairing{T: t, p: p, tokens: tokenFile(t, 0o600), heard: make(chan struct{}, 1)}
	p.run(exitOK, "init")
	t.Cleanup(x.end)
	for i := range x.sidecars {
		x.logs[i] = &journal{}
		x.startSidecar(i, "127.0.0.1:0")
		x.startClient(i)
	}
	return x
}

func (x *pairing) startSidecar(i int, address string) {
	x.Helper()
	cmd := x.p.command(context.Background(), "serve", "--listen", address, "--token-file", x.tokens)
	cmd.Env = append(cmd.Env, fmt.Sprintf("TENURE__NODE=s%d", i), "TENURE__TTL="+serveTTL.String())
	before := len(x.logs[i].String())
	cmd.Stderr = x.logs[i]
	cmd.SysProcAttr = ownGroup()
	if err := cmd.Start(); err != nil {
		x.Fatal(err)
	}
	x.sidecars[i] = cmd
	listening := regexp.MustCompile(`address=(127\.0\.0\.1:\d+)`)
	if !ample.Soon(x.Context(), func() bool {
		m := listening.FindStringSubmatch(x.logs[i].String()[before:])
		if m != nil {
			x.address[i] = m[1]
		}
		return m != nil
	}) {
		x.Fatalf("sidecar %d does not listen: %s", i, x.logs[i])
	}
}

func (x *pairing) startClient(i int) {
	x.Helper()
	cmd := exec.Command("python3", "../../examples/python/leader.py", x.address[i], "jobs")
	cmd.Env = append(os.Environ(), "TENURE_TOKEN_FILE="+x.tokens)
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = ownGroup()
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		x.Fatal(err)
	}
	x.clients[i] = cmd
	x.readers.Go(func() { x.read(i, out) })
}

// ownGroup starts a process in a new process group. If a process group becomes orphaned, the kernel
// continues its stopped processes. A test's group becomes orphaned when the test's shell ends.
func ownGroup() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

func (x *pairing) read(i int, out io.Reader) {
	for s := bufio.NewScanner(out); s.Scan(); {
		l := clientLine{at: time.Now(), client: i}
		var token, rest string
		if n, _ := fmt.Sscan(s.Text(), &l.state, &token, &l.status); n < 3 {
			continue // the sidecar is gone
		}
		_, _ = fmt.Sscan(token, &l.token) // or None
		if _, answer, ok := strings.Cut(s.Text(), "{"); ok {
			rest = "{" + answer
		}
		var reply struct{ Seq core.Seq }
		_ = json.Unmarshal([]byte(rest), &reply)
		l.seq = reply.Seq
		x.mu.Lock()
		x.lines = append(x.lines, l)
		x.mu.Unlock()
		select {
		case x.heard <- struct{}{}:
		default:
		}
	}
}

// await waits for a line of a client.
func (x *pairing) await(patience time.Duration, match func(clientLine) bool) (clientLine, bool) {
	x.Helper()
	late := time.After(patience)
	for {
		x.mu.Lock()
		lines := x.lines
		x.mu.Unlock()
		for _, l := range lines {
			if match(l) {
				return l, true
			}
		}
		select {
		case <-x.heard:
		case <-late:
			return clientLine{}, false
		}
	}
}

// must is like await, with patience for a busy machine.
func (x *pairing) must(what string, match func(clientLine) bool) clientLine {
	x.Helper()
	l, ok := x.await(limit, match)
	if !ok {
		x.Fatalf("within %v no client %s; the sidecars wrote %s%s", limit, what, x.logs[0], x.logs[1])
	}
	return l
}

func (x *pairing) signal(cmd *exec.Cmd, s syscall.Signal) {
	x.Helper()
	if err := cmd.Process.Signal(s); err != nil {
		x.Errorf("%v: %v", s, err)
	}
}

func wrote(token int64) func(clientLine) bool {
	return func(l clientLine) bool { return l.token > token && l.seq > 0 }
}

// newest is the last write.
func (x *pairing) newest() clientLine {
	x.mu.Lock()
	defer x.mu.Unlock()
	var newest clientLine
	for _, l := range x.lines {
		if l.seq > newest.seq {
			newest = l
		}
	}
	return newest
}

// play injects the given number of faults of each kind into the client that leads.
func (x *pairing) play(rounds int) {
	leader := x.must("writes", wrote(0))
	kinds := []string{"client killed", "client stopped", "sidecar killed", "sidecar stopped"}
	longest := map[string]time.Duration{}
	for round := range rounds * len(kinds) {
		kind := kinds[round%len(kinds)]
		since := time.Now()
		x.must("stands by", func(l clientLine) bool {
			return l.client != leader.client && l.at.After(since) && l.state == "waiting" && l.status == http.StatusOK
		})
		leader = x.newest() // a lapse of trust gives a new token
		next, took := x.hit(kind, leader)
		longest[kind] = max(longest[kind], took)
		leader = next
	}
	x.Logf("longest time to the successor's first write: %v", longest)
}

// hit injects one fault, and returns the successor's first write.
func (x *pairing) hit(kind string, leader clientLine) (next clientLine, took time.Duration) {
	x.Helper()
	i := leader.client
	begun := time.Now()
	victim := x.clients[i]
	if strings.HasPrefix(kind, "sidecar") {
		victim = x.sidecars[i]
	}
	stop := strings.HasSuffix(kind, "stopped")
	if stop {
		x.signal(victim, syscall.SIGSTOP)
	} else {
		x.signal(victim, syscall.SIGKILL)
		_ = victim.Wait()
	}
	patience := ample.Time
	if kind == "sidecar stopped" {
		patience = serveTTL + slack
	}
	next, ok := x.await(patience, wrote(leader.token))
	took = time.Since(begun)
	switch {
	case ok:
	case kind == "sidecar stopped":
		// During a write, the process holds the lock of a row, or SQLite's lock.
		x.Logf("nobody succeeded token %d within %v: the sidecar was stopped within a write", leader.token, took)
	default:
		x.Fatalf("%s: the lease with token %d outlived its client by more than %v: %s%s", kind, leader.token, took, x.logs[0], x.logs[1])
	}
	switch kind {
	case "client killed":
		x.startClient(i)
	case "sidecar killed":
		x.startSidecar(i, x.address[i])
	case "client stopped":
		x.signal(victim, syscall.SIGCONT)
		x.must("is refused after it was stopped", func(l clientLine) bool {
			return l.client == i && l.token == leader.token && (l.status == http.StatusConflict || l.status == http.StatusGone)
		})
	default:
		x.signal(victim, syscall.SIGCONT)
	}
	if !ok {
		next = x.must("writes after "+kind, wrote(leader.token))
	}
	return next, took
}

// end stops everything, and compares the log with the answers that the clients got.
func (x *pairing) end() {
	for _, cmd := range x.clients {
		if cmd != nil {
			_ = cmd.Process.Kill()
		}
	}
	x.readers.Wait()
	for _, cmd := range x.clients {
		if cmd != nil {
			_ = cmd.Wait()
		}
	}
	defer func() {
		for i, cmd := range x.sidecars {
			if cmd == nil {
				continue
			}
			_ = cmd.Process.Signal(syscall.SIGCONT)
			x.signal(cmd, syscall.SIGTERM)
			if err := cmd.Wait(); err != nil {
				x.Errorf("sidecar %d: %v: %s", i, err, x.logs[i])
			}
		}
	}()
	out, _ := x.p.run(exitOK, "log", "jobs", "-o", "json")
	var last core.Token
	tokens := map[core.Seq]core.Token{}
	for line := range strings.Lines(out) {
		var e entryOut
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			x.Fatal(err)
		}
		if e.Token < last || e.Payload.String() != fmt.Sprintf("written under %d", e.Token) {
			x.Errorf("entry %d has token %d after %d, and says %q", e.Seq, e.Token, last, e.Payload)
		}
		last, tokens[e.Seq] = e.Token, e.Token
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, l := range x.lines {
		if l.seq > 0 && int64(tokens[l.seq]) != l.token {
			x.Errorf("a client was told of entry %d under token %d, and the log has token %d", l.seq, l.token, tokens[l.seq])
		}
	}
}

func TestServeRefuses(t *testing.T) {
	t.Parallel()
	p := sqlitePlace(t)
	p.bad(exitNotFound, "tenure init", "serve", "--listen", "127.0.0.1:0", "--token-file", tokenFile(t, 0o600))
	p.run(exitOK, "init")
	for _, c := range []struct {
		want string
		args []string
	}{
		{"--listen is missing", nil},
		{"not of loopback", []string{"--listen", "0.0.0.0:0", "--token-file", tokenFile(t, 0o600)}},
		{"no IP address", []string{"--listen", "localhost:0", "--token-file", tokenFile(t, 0o600)}},
		{"name a token file", []string{"--listen", "127.0.0.1:0"}},
		{"mode 0644", []string{"--listen", "127.0.0.1:0", "--token-file", tokenFile(t, 0o644)}},
		{"MaxLeases", []string{"--listen", "127.0.0.1:0", "--max-leases", "-1"}},
		{"takes no argument", []string{"--listen", "127.0.0.1:0", "jobs"}},
	} {
		_, errs := p.run(exitUsage, append([]string{"serve"}, c.args...)...)
		if !strings.Contains(errs, c.want) || strings.Contains(errs, "planted") {
			t.Errorf("serve %v: wrote %q, want %q", c.args, errs, c.want)
		}
	}
}

func tokenFile(t *testing.T, mode os.FileMode) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(path, []byte(strings.Repeat("planted", 6)+"\n"), mode); err != nil {
		t.Fatal(err)
	}
	return path
}
