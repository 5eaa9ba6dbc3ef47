package bucket

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"gocloud.dev/blob"

	"github.com/tenure-go/tenure/backends/kv"
	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/internal/proof/ample"
	"github.com/tenure-go/tenure/internal/proof/servers"
	proofsuite "github.com/tenure-go/tenure/internal/proof/suite"
)

// memberVariable makes the test binary a member. Its value is an address.
const memberVariable = "TENURE_BUCKET_MEMBER"

const (
	realTTL = 5 * time.Second
	job     = "job"
)

// runMember runs a member until the end of its input, and returns the exit code.
func runMember(text string) int {
	ctx, end := context.WithCancel(context.Background())
	defer end()
	go func() { // the test ended, or asks for the end
		_, _ = io.Copy(io.Discard, os.Stdin)
		end()
	}()
	err := member(ctx, text)
	if err != nil && ctx.Err() == nil {
		fmt.Println("failed", err)
		return 1
	}
	return 0
}

func member(ctx context.Context, text string) error {
	var a address
	if err := json.Unmarshal([]byte(text), &a); err != nil {
		return err
	}
	opened, err := a.open(ctx, http.DefaultTransport)
	if err != nil {
		return err
	}
	b, err := openReal(ctx, opened, false)
	if err != nil {
		return errors.Join(err, opened.Close())
	}
	err = core.RunSingleton(ctx, b, job, appendAll("victim", func(n core.Seq, payload string, err error) {
		if err != nil {
			fmt.Println("refused", payload, errors.Is(err, core.ErrLost), err)
		} else {
			fmt.Println("wrote", n, payload)
		}
	}), memberOptions("victim"))
	return errors.Join(err, b.Close(), opened.Close())
}

func openReal(ctx context.Context, b *blob.Bucket, create bool) (*kv.Backend, error) {
	return OpenBucket(ctx, b, "app", &Options{Create: create, Poll: 100 * time.Millisecond,
		Logger: slog.New(slog.DiscardHandler)})
}

func memberOptions(name string) *core.Options {
	return &core.Options{Node: name, TTL: realTTL, LockDir: "none", Logger: slog.New(slog.DiscardHandler)}
}

// appendAll returns a handler that appends payloads that are unique, and reports how each append
// ended.
func appendAll(name string, report func(core.Seq, string, error)) core.Handler {
	return func(ctx context.Context, l *core.Lease) error {
		for i := 0; ctx.Err() == nil; i++ {
			payload := fmt.Sprintf("%s-%d-%d.", name, l.Token(), i)
			n, err := l.Append(l.Context(), []byte(payload))
			report(n, payload, err)
			if err != nil {
				return err
			}
		}
		return nil
	}
}

// cast is what members report.
type cast struct {
	*testing.T
	*served

	mu    sync.Mutex
	acked map[string]core.Seq
}

func newCast(t *testing.T, server *servers.Server) *cast {
	return &cast{T: t, served: newServed(proofsuite.Wrap(t), server), acked: map[string]core.Seq{}}
}

func (c *cast) report(n core.Seq, payload string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err == nil {
		c.acked[payload] = n
	}
}

// count returns the number of entries of a member that were acknowledged.
func (c *cast) count(name string) (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for payload := range c.acked {
		if strings.HasPrefix(payload, name) {
			n++
		}
	}
	return n
}

// progress waits until ten more entries have been acknowledged.
func (c *cast) progress(name string) {
	c.Helper()
	n := c.count(name)
	ample.Wait(c, "no ten more entries of "+name+" were acknowledged", func() bool { return c.count(name) >= n+10 })
}

// backend opens the namespace, and closes it after the test.
func (c *cast) backend(create bool) *kv.Backend {
	c.Helper()
	ctx, cancel := context.WithTimeout(c.Context(), ample.Time)
	defer cancel()
	opened := c.door()
	b, err := openReal(ctx, opened, create)
	if err != nil {
		c.Fatal(errors.Join(err, opened.Close()))
	}
	c.Cleanup(func() {
		if err := errors.Join(b.Close(), opened.Close()); err != nil {
			c.Error(err)
		}
	})
	return b
}

// start runs a member in this process, and returns a function that ends it and returns its error.
func (c *cast) start(b *kv.Backend, name string, o *core.Options) (end func() error) {
	end, _ = c.begin(b, name, o)
	return end
}

// begin is like start, and also returns a channel that is closed when the member has ended.
func (c *cast) begin(b *kv.Backend, name string, o *core.Options) (end func() error, ended <-chan struct{}) {
	ctx, stop := context.WithCancel(context.WithoutCancel(c.Context()))
	done := make(chan struct{})
	var err error
	go func() {
		defer close(done)
		err = core.RunSingleton(ctx, b, job, appendAll(name, c.report), o)
	}()
	end = func() error {
		stop()
		<-done
		return err
	}
	c.Cleanup(func() { _ = end() })
	return end, done
}

// check reads the log. It must contain each acknowledged entry under its number, and each payload
// once, and tokens must not decrease.
func (c *cast) check(b *kv.Backend) (payloads []string) {
	c.Helper()
	c.mu.Lock()
	acked := maps.Clone(c.acked) // before the log is read: a process may go on
	c.mu.Unlock()
	log := map[string]core.Seq{}
	var last core.Token
	for at := core.Seq(0); ; {
		page, err := b.ReadLog(c.Context(), job, at, 1000)
		if err != nil {
			c.Fatal(err)
		}
		for _, e := range page.Entries {
			var token core.Token
			payload := string(e.Payload)
			if parts := strings.Split(payload, "-"); len(parts) == 3 {
				_, _ = fmt.Sscan(parts[1], &token) // 0 fails below
			}
			if token == 0 || token < last {
				c.Errorf("entry %d is %q after token %d: tokens must not decrease", e.Seq, payload, last)
			}
			if twice, ok := log[payload]; ok {
				c.Errorf("entries %d and %d are both %q", twice, e.Seq, payload)
			}
			log[payload], last, at = e.Seq, token, e.Seq
			payloads = append(payloads, payload)
		}
		if len(page.Entries) == 0 {
			break
		}
	}
	for payload, n := range acked {
		if log[payload] != n {
			c.Errorf("%q was acknowledged as entry %d, and the log has it as entry %d", payload, n, log[payload])
		}
	}
	c.Logf("%d entries acknowledged, %d in the log", len(acked), len(log))
	return payloads
}

// TestServerStopped stops the server, and kills and restarts it, while members commit. The log then
// has every acknowledged entry once.
func TestServerStopped(t *testing.T) {
	each(t, func(t *testing.T, kind servers.Kind) {
		server := servers.New(t, kind, nil)
		c := newCast(t, server)
		first, second := c.backend(true), c.backend(true)
		ends := []func() error{c.start(first, "one", memberOptions("one")), c.start(second, "two", memberOptions("two"))}
		rounds := 3
		if testing.Short() {
			rounds = 1
		}
		for range rounds {
			c.progress("")
			if err := server.Stop(t.Context()); err != nil {
				t.Fatal(err)
			}
			for range ample.During(time.Second, 100*time.Millisecond) {
			}
			if err := server.Cont(); err != nil {
				t.Fatal(err)
			}
			c.progress("")
			if err := server.Kill(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := server.Restart(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		c.progress("")
		for _, end := range ends {
			if err := end(); !errors.Is(err, context.Canceled) {
				t.Errorf("a member ends with %v", err)
			}
		}
		c.check(c.backend(false))
	})
}

// gate is a proxy for requests to a server. It can hold back the next create with a text until it
// is released.
type gate struct {
	mu      sync.Mutex
	text    []byte
	held    chan struct{}
	release chan struct{}
	status  chan int // of the request that was held back
}

// newGate starts a proxy, and returns its address.
func newGate(t *testing.T, to address) (g *gate, at string) {
	g = &gate{}
	target := &url.URL{Scheme: "http", Host: to.Server}
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target)
			if to.Kind == servers.S3 {
				r.Out.Host = r.In.Host // it is signed
			}
		},
		Transport: &http.Transport{MaxIdleConnsPerHost: 16},
		ErrorLog:  slog.NewLogLogger(slog.DiscardHandler, slog.LevelError),
	}
	ctx := t.Context()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, err := io.ReadAll(r.Body)
		if err != nil {
			return // the client has left
		}
		r.Body = io.NopCloser(bytes.NewReader(text))
		if !g.holds(ctx, text) {
			proxy.ServeHTTP(w, r)
			return
		}
		// The request arrives, even if its client no longer waits.
		answer := httptest.NewRecorder()
		proxy.ServeHTTP(answer, r.WithContext(context.WithoutCancel(r.Context())))
		g.status <- answer.Code
		w.WriteHeader(answer.Code)
		_, _ = io.Copy(w, answer.Body)
	}))
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
		proxy.Transport.(*http.Transport).CloseIdleConnections()
	})
	return g, server.Listener.Addr().String()
}

// hold makes the gate hold back the next request with a text.
func (g *gate) hold(text string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.text, g.held, g.release, g.status = []byte(text), make(chan struct{}), make(chan struct{}), make(chan int, 1)
}

// holds reports whether a request was held back, after its release.
func (g *gate) holds(ctx context.Context, text []byte) bool {
	g.mu.Lock()
	match := g.text != nil && bytes.Contains(text, g.text)
	if !match {
		g.mu.Unlock()
		return false
	}
	g.text = nil
	close(g.held)
	release := g.release
	g.mu.Unlock()
	select {
	case <-release:
	case <-ctx.Done():
	}
	return true
}

// process is a member in a process.
type process struct {
	cmd   *exec.Cmd
	stdin io.Closer
	read  chan struct{} // closed when all its output has been read
	mu    sync.Mutex
	lines []string
}

// spawn starts a member, and ends it after the test.
func (c *cast) spawn(at address) *process {
	c.Helper()
	text, err := json.Marshal(at)
	if err != nil {
		c.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		c.Fatal(err)
	}
	p := &process{cmd: exec.Command(self), read: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), memberVariable+"="+string(text))
	p.cmd.Stderr = os.Stderr
	out, err := p.cmd.StdoutPipe()
	if err == nil {
		p.stdin, err = p.cmd.StdinPipe() // it ends with this process
	}
	if err == nil {
		err = p.cmd.Start()
	}
	if err != nil {
		c.Fatal(err)
	}
	go func() {
		defer close(p.read)
		for in := bufio.NewScanner(out); in.Scan(); {
			c.take(p, in.Text())
		}
	}()
	c.Cleanup(func() {
		_ = p.cmd.Process.Kill() // a stopped process, too
		<-p.read
		_ = p.cmd.Wait()
	})
	return p
}

func (c *cast) take(p *process, line string) {
	var n core.Seq
	var payload string
	if _, err := fmt.Sscanf(line, "wrote %d %s", &n, &payload); err == nil {
		c.report(n, payload, nil)
		return
	}
	c.Log("the process says: ", line)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lines = append(p.lines, line)
}

// said returns the first line that begins with a text.
func (p *process) said(prefix string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if i := slices.IndexFunc(p.lines, func(l string) bool { return strings.HasPrefix(l, prefix) }); i >= 0 {
		return p.lines[i]
	}
	return ""
}

// TestStoppedProcess stops a process whose commit is on its way, until another member has the
// shard. The commit then arrives, and is refused. The process, which continues, learns that its
// lease was lost.
func TestStoppedProcess(t *testing.T) {
	each(t, func(t *testing.T, kind servers.Kind) {
		c := newCast(t, shared(t, kind))
		other := c.backend(true)
		g, at := newGate(t, c.address)
		through := c.address
		through.Server = at
		victim := c.spawn(through)
		c.progress("victim")
		g.hold("victim-")
		ample.Wait(t, "no commit was sent", func() bool {
			select {
			case <-g.held:
				return true
			default:
				return false
			}
		})
		if err := victim.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		end := c.start(other, "other", memberOptions("other"))
		c.progress("other")
		close(g.release)
		if status := <-g.status; status != http.StatusPreconditionFailed {
			t.Errorf("the late create is answered with status %d, want %d", status, http.StatusPreconditionFailed)
		}
		if err := victim.cmd.Process.Signal(syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
		ample.Wait(t, "the process has not said how its commit ended", func() bool { return victim.said("refused") != "" })
		_, payload, _ := strings.Cut(victim.said("refused"), " ")
		payload, reason, _ := strings.Cut(payload, " ")
		if !strings.HasPrefix(reason, "true") {
			t.Errorf("the commit ended with %q, want ErrLost", reason)
		}
		c.progress("other")
		if err := end(); !errors.Is(err, context.Canceled) {
			t.Errorf("the other member ends with %v", err)
		}
		if payloads := c.check(other); slices.Contains(payloads, payload) {
			t.Errorf("the log contains %q, which was refused", payload)
		}
	})
}
