package sidecar

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenure-go/tenure/backends/memory"
	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/internal/proof/kvfault"
)

const (
	ttl    = 3 * time.Second
	secret = "0123456789abcdef0123456789abcdef"
)

// pipes is a listener with connections that stay within a bubble.
type pipes struct {
	conns chan net.Conn
	done  context.Context
	close context.CancelFunc
}

func newPipes() *pipes {
	p := &pipes{conns: make(chan net.Conn)}
	p.done, p.close = context.WithCancel(context.Background())
	return p
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.done.Done():
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error   { p.close(); return nil }
func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipe"} }

func (p *pipes) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	ours, theirs := net.Pipe()
	select {
	case p.conns <- theirs:
		return ours, nil
	case <-p.done.Done():
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

type world struct {
	*testing.T
	store *memory.Store
}

func inWorld(t *testing.T, test func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(&world{t, memory.New()}) })
}

// side is one sidecar and a client's connections to it.
type side struct {
	*world
	server *Server
	link   *kvfault.Link
	pipes  *pipes
	client *http.Client
	token  string
	stop   context.CancelFunc
	done   chan error
}

func (w *world) start(node string, o Options) *side {
	w.Helper()
	x := &side{world: w, link: &kvfault.Link{}, pipes: newPipes(), token: secret, done: make(chan error, 1)}
	b, err := memory.Open(w.Context(), w.store, "test", &memory.Options{Wrap: x.link.Wrap})
	if err != nil {
		w.Fatal(err)
	}
	o.Token = secret
	o.Elector = &core.Options{Node: node, TTL: ttl, LockDir: "none", Logger: slog.New(slog.DiscardHandler)}
	if x.server, err = New(b, &o); err != nil {
		w.Fatal(err)
	}
	transport := &http.Transport{DialContext: x.pipes.dial}
	x.client = &http.Client{Transport: transport}
	var ctx context.Context
	ctx, x.stop = context.WithCancel(context.Background())
	go func() { x.done <- x.server.Serve(ctx, x.pipes) }()
	w.Cleanup(func() {
		x.link.Heal()
		x.stop()
		if err := errors.Join(<-x.done, b.Close()); err != nil {
			w.Error(err)
		}
		x.done <- nil
		transport.CloseIdleConnections()
	})
	return x
}

// request sends a request. If body is empty, the request has no body. The caller closes the body of
// the answer.
func (x *side) request(ctx context.Context, method, path, body string) *http.Response {
	x.Helper()
	r, err := http.NewRequestWithContext(ctx, method, "http://sidecar"+path, strings.NewReader(body))
	if err != nil {
		x.Fatal(err)
	}
	if x.token != "" {
		r.Header.Set("Authorization", "Bearer "+x.token)
	}
	resp, err := x.client.Do(r)
	if err != nil {
		x.Fatalf("%s %s: %v", method, path, err)
	}
	return resp
}

// call sends a request, and reads its answer into out unless out is nil. It expects a status and,
// for an error, the code.
func (x *side) call(status int, code, method, path, body string, out any) {
	x.Helper()
	resp := x.request(x.Context(), method, path, body)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		x.Fatal(err)
	}
	var p struct{ Error problem }
	if code != "" {
		err = json.Unmarshal(text, &p)
	} else if out != nil {
		err = json.Unmarshal(text, out)
	}
	if err != nil || resp.StatusCode != status || p.Error.Code != code || code != "" && p.Error.Message == "" || code != "" && len(text) > 2*maxMessage {
		x.Errorf("%s %s %.100s: got %d %.300s, want %d %s (%v)", method, path, body, resp.StatusCode, text, status, code, err)
	}
}

// lead is one stream of a lease.
type lead struct {
	*side
	cancel context.CancelFunc
	states chan leaseState // closed when the stream has ended
	last   leaseState
}

func (x *side) contend(shard, body string) *lead {
	x.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	resp := x.request(ctx, "POST", "/v1/shards/"+shard+"/lease", body) //nolint:bodyclose // by its reader
	if resp.StatusCode != http.StatusOK || resp.Header.Get("Content-Type") != "text/event-stream" {
		x.Fatalf("contend for %s: %s", shard, resp.Status)
	}
	return x.reads(resp, cancel)
}

// reads reads a stream until the stream is canceled.
func (x *side) reads(resp *http.Response, cancel context.CancelFunc) *lead {
	l := &lead{side: x, cancel: cancel, states: make(chan leaseState, 1000)}
	go func() {
		defer close(l.states)
		defer resp.Body.Close()
		for s := bufio.NewScanner(resp.Body); s.Scan(); {
			if data, ok := bytes.CutPrefix(s.Bytes(), []byte("data: ")); ok {
				var state leaseState
				if err := json.Unmarshal(data, &state); err != nil {
					x.Error(err)
				}
				l.states <- state
			}
		}
	}()
	x.Cleanup(func() {
		l.cancel()
		for range l.states {
		}
	})
	return l
}

// until reads states until it finds the expected one.
func (l *lead) until(state string) leaseState {
	l.Helper()
	limit := time.After(time.Minute)
	for {
		select {
		case s, ok := <-l.states:
			if !ok {
				l.Fatalf("the stream has ended after %+v, want the state %s", l.last, state)
			}
			if l.last = s; s.State == state {
				return s
			}
		case <-limit:
			l.Fatalf("after %+v no state %s within a minute", l.last, state)
		}
	}
}

func (l *lead) path(what string) string { return "/v1/leases/" + l.last.Lease + "/" + what }

func (l *lead) append(status int, code string, token core.Token, text string) {
	l.Helper()
	body, err := json.Marshal(appendBody{token, payload{Text: &text}})
	if err != nil {
		l.Fatal(err)
	}
	l.call(status, code, "POST", l.path("append"), string(body), nil)
}

func (x *side) entries(shard string) []string {
	x.Helper()
	var page logReply
	x.call(http.StatusOK, "", "GET", "/v1/shards/"+shard+"/log?limit=1000", "", &page)
	var out []string
	for _, e := range page.Entries {
		b, err := e.bytes()
		if err != nil {
			x.Error(err)
		}
		out = append(out, string(b))
	}
	return out
}
