package route_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tenure-go/tenure/backends/memory"
	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/internal/problem"
	"github.com/tenure-go/tenure/internal/proof/ample"
	"github.com/tenure-go/tenure/sharding"
	"github.com/tenure-go/tenure/sharding/route"
)

// member is a process that serves requests for /SHARD.
type member struct {
	*core.Elector
	t      *testing.T
	server *httptest.Server
	hits   atomic.Int64 // requests that have reached it
	h      atomic.Pointer[http.Handler]
}

// start starts a member whose metadata is meta, or its address.
func start(t *testing.T, store *memory.Store, node string, meta map[string]string, change func(*route.Options)) *member {
	t.Helper()
	m := &member{t: t}
	m.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		m.hits.Add(1)
		(*m.h.Load()).ServeHTTP(w, r)
	}))
	t.Cleanup(m.server.Close)
	if meta == nil {
		meta = map[string]string{"http": m.server.URL}
	}
	b, err := memory.Open(t.Context(), store, "app", nil)
	if err != nil {
		t.Fatal(err)
	}
	m.Elector, err = core.NewElector(b, &core.Options{Node: node, TTL: 5 * time.Second, LockDir: "none", Meta: meta,
		Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	ran := make(chan error, 1)
	go func() { ran <- m.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := errors.Join(<-ran, b.Close()); err != nil {
			t.Error(err)
		}
	})
	r, err := sharding.NewRouter(m.Elector, nil)
	if err != nil {
		t.Fatal(err)
	}
	o := &route.Options{Shard: func(r *http.Request) (string, error) { return strings.TrimPrefix(r.URL.Path, "/"), nil }}
	if change != nil {
		change(o)
	}
	h, err := route.NewHandler(m.Elector, r, http.HandlerFunc(m.serve), o)
	if err != nil {
		t.Fatal(err)
	}
	m.h.Store(&h)
	return m
}

func (m *member) serve(w http.ResponseWriter, r *http.Request) {
	if r.URL.RawQuery == "wait" {
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
		_, _ = fmt.Fprint(w, context.Cause(r.Context()))
		return
	}
	if r.URL.RawQuery == "lost" {
		panic(http.ErrAbortHandler)
	}
	body, err := io.ReadAll(r.Body)
	_, _ = fmt.Fprintf(w, "%s token %d %s %q %v", m.View().Node, route.FromContext(r.Context()).Token(), r.Host, body, err)
}

// own makes the member own a shard, and waits until all members know this.
func (m *member) own(shard string, all ...*member) *core.Lease {
	m.t.Helper()
	err := m.Contend(func(ctx context.Context, _ *core.Lease) error {
		<-ctx.Done()
		return nil
	}, shard)
	if err != nil {
		m.t.Fatal(err)
	}
	await(m.t, "the lease of "+shard, func() bool { return m.Lease(shard) != nil })
	session := m.View().Session
	for _, x := range append(all, m) {
		await(m.t, "news of the owner of "+shard, func() bool {
			o, _ := x.View().Owner(shard)
			_, known := x.View().Member(session)
			return o.Session == session && known
		})
	}
	time.Sleep(10 * time.Millisecond) // a Router's view may be 5 ms old
	return m.Lease(shard)
}

func await(t *testing.T, what string, cond func() bool) {
	t.Helper()
	ample.Wait(t, what+" did not come", cond)
}

func do(t *testing.T, c *http.Client, method, url, body string, header ...string) (int, string, *problem.Document, http.Header) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	p := route.ReadProblem(resp)
	text, _ := io.ReadAll(resp.Body)
	return resp.StatusCode, string(text), p, resp.Header
}

func forward(o *route.Options) { o.Forward, o.Allow = true, allowAll }

func allowAll(*url.URL) bool { return true }

func TestServeForwardAnswer(t *testing.T) {
	store := memory.New()
	a, b := start(t, store, "a", nil, nil), start(t, store, "b", nil, forward)
	lease := a.own("s", b)
	want := fmt.Sprintf("a token %d", lease.Token())
	c := http.DefaultClient

	if code, text, _, _ := do(t, c, "POST", a.server.URL+"/s", "x"); code != 200 || !strings.HasPrefix(text, want) {
		t.Errorf("at the owner: %d %s", code, text)
	}
	code, text, _, _ := do(t, c, "POST", b.server.URL+"/s", "x")
	if host := strings.TrimPrefix(b.server.URL, "http://"); code != 200 || text != want+" "+host+` "x" <nil>` {
		t.Errorf("forwarded: %d %s, want %s and the host that was asked for", code, text, want)
	}
	// a does not forward.
	lb := b.own("t", a)
	code, _, p, _ := do(t, c, "POST", a.server.URL+"/t", "x")
	if code != 421 || p == nil || *p != (problem.Document{Type: "urn:tenure:route:owner", Status: 421, Title: p.Title, Detail: p.Detail, Shard: "t",
		Node: "b", Address: b.server.URL, Token: lb.Token()}) {
		t.Errorf("answered %d %+v, want b, its address and token %d", code, p, lb.Token())
	}
	code, _, p, header := do(t, c, "GET", b.server.URL+"/nobody", "")
	if code != 503 || p == nil || p.Type != "urn:tenure:route:unowned" || header.Get("Retry-After") != "1" {
		t.Errorf("a shard without an owner: %d %+v %v", code, p, header)
	}
	if code, _, p, _ := do(t, c, "GET", b.server.URL+"/not%20a%0Ashard", ""); code != 400 || p == nil || p.Type != "urn:tenure:route:invalid" {
		t.Errorf("no shard: %d %+v", code, p)
	}
}

// A request is forwarded only once, even if two members publish each other's address, or a
// forwarded request returns.
func TestOneHop(t *testing.T) {
	store := memory.New()
	meta := map[string]string{"http": "http://127.0.0.1:1"}
	a, b := start(t, store, "a", meta, forward), start(t, store, "b", nil, forward)
	a.own("s", b)
	if err := a.Update(t.Context(), func(s *core.MemberState) { s.Meta["http"] = b.server.URL }); err != nil {
		t.Fatal(err)
	}
	await(t, "the new address", func() bool { m, _ := b.View().Member(a.View().Session); return m.Meta["http"] == b.server.URL })
	time.Sleep(10 * time.Millisecond) // a Router's view may be 5 ms old
	code, _, p, _ := do(t, http.DefaultClient, "GET", b.server.URL+"/s", "")
	if n := b.hits.Load(); code != 421 || p == nil || p.Node != "a" || n != 2 {
		t.Errorf("the answer is %d %+v after %d hops, want 421 after one", code, p, n-1)
	}
	code, _, _, _ = do(t, http.DefaultClient, "GET", b.server.URL+"/s", "", "Tenure-Forwarded", "x")
	if n := b.hits.Load(); code != 421 || n != 3 {
		t.Errorf("a forwarded request: %d, and was forwarded %d times", code, n-3)
	}
}

// Other members' addresses are checked, and an unreachable owner is distinguished from a lost
// answer.
func TestOwnerOutOfReach(t *testing.T) {
	store := memory.New()
	const gone = "http://127.0.0.1:1" // no process gets a port this low unless it asks for it
	a, b := start(t, store, "a", nil, nil), start(t, store, "b", nil, forward)
	narrow := start(t, store, "c", nil, func(o *route.Options) {
		o.Forward, o.Allow = true, func(u *url.URL) bool { return u.Hostname() == "10.0.0.1" }
	})
	a.own("s", b, narrow)
	at := func(m *member, path, address string) (int, *problem.Document) {
		t.Helper()
		if err := a.Update(t.Context(), func(s *core.MemberState) { s.Meta["http"] = address }); err != nil {
			t.Fatal(err)
		}
		await(t, "the new address", func() bool { x, _ := m.View().Member(a.View().Session); return x.Meta["http"] == address })
		time.Sleep(10 * time.Millisecond) // a Router's view may be 5 ms old
		code, _, p, _ := do(t, http.DefaultClient, "GET", m.server.URL+path, "")
		if p == nil {
			t.Fatalf("%q: %d and no problem", address, code)
		}
		return code, p
	}
	if code, p := at(b, "/s?lost", a.server.URL); code != 502 || p.Type != "urn:tenure:route:lost" {
		t.Errorf("a lost answer: %d %+v", code, p)
	}
	if code, p := at(b, "/s", gone); code != 503 || p.Type != "urn:tenure:route:unreachable" || p.Address != gone {
		t.Errorf("an owner that is away: %d %+v", code, p)
	}
	if code, p := at(b, "/s", "http://user:secret@127.0.0.1/"); code != 421 || p.Address != "" || p.Node != "a" {
		t.Errorf("an address with a user: %d %+v", code, p)
	}
	before := a.hits.Load()
	if code, p := at(narrow, "/s", a.server.URL); code != 421 || p.Address != "" || a.hits.Load() != before {
		t.Errorf("an address that is not allowed: %d %+v, forwarded %d times", code, p, a.hits.Load()-before)
	}
}

// A request ends with the lease under which it is served.
func TestRequestEndsWithItsLease(t *testing.T) {
	a := start(t, memory.New(), "a", nil, nil)
	a.own("s")
	resp, err := http.Get(a.server.URL + "/s?wait")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if err := a.Withdraw(t.Context(), "s"); err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(resp.Body)
	if err != nil || !strings.Contains(string(text), "s") || strings.Contains(string(text), context.Canceled.Error()) {
		t.Errorf("the request ended with %q, %v, want the lease's cause", text, err)
	}
}

func TestTransport(t *testing.T) {
	store := memory.New()
	a, b := start(t, store, "a", nil, nil), start(t, store, "b", nil, nil)
	a.own("s", b)
	client := func(o *route.TransportOptions) *http.Client {
		tr, err := route.NewTransport(o)
		if err != nil {
			t.Fatal(err)
		}
		return &http.Client{Transport: tr}
	}
	c := client(&route.TransportOptions{Allow: allowAll, Wait: 20 * time.Millisecond, Attempts: 3})
	if code, text, _, _ := do(t, c, "POST", b.server.URL+"/s", "the body"); code != 200 || !strings.HasPrefix(text, "a token") ||
		!strings.Contains(text, "the body") {
		t.Errorf("by the other member: %d %s", code, text)
	}
	before := a.hits.Load()
	none := client(&route.TransportOptions{Allow: func(*url.URL) bool { return false }})
	if code, _, p, _ := do(t, none, "POST", b.server.URL+"/s", "x"); code != 421 || p == nil || p.Node != "a" || a.hits.Load() != before {
		t.Errorf("to an address that is not allowed: %d %+v, %d requests", code, p, a.hits.Load()-before)
	}
	before = b.hits.Load()
	if code, _, p, _ := do(t, c, "GET", b.server.URL+"/nobody", ""); code != 503 || p == nil || b.hits.Load()-before != 3 {
		t.Errorf("without an owner: %d %+v after %d attempts, want 3", code, p, b.hits.Load()-before)
	}
	if code, _, _, _ := do(t, c, "GET", b.server.URL+"/nobody", "", "Content-Type", "x"); code != 503 {
		t.Errorf("without an owner: %d", code)
	}
	// A body that cannot be read again is sent once.
	before = b.hits.Load()
	req, err := http.NewRequest("POST", b.server.URL+"/s", io.NopCloser(strings.NewReader("once")))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != 421 || b.hits.Load()-before != 1 {
		t.Errorf("a body that can be read once: %d after %d attempts", resp.StatusCode, b.hits.Load()-before)
	}
	// The end of the request's context ends a wait.
	slow := client(&route.TransportOptions{Allow: allowAll, Wait: time.Minute})
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if req, err = http.NewRequestWithContext(ctx, "GET", b.server.URL+"/nobody", nil); err != nil {
		t.Fatal(err)
	}
	if resp, err := slow.Do(req); err == nil {
		resp.Body.Close()
		t.Errorf("status %d beyond the end of the context", resp.StatusCode)
	}
}

// Answers of the application, and of other servers, pass unchanged.
func TestTransportPassesOtherAnswers(t *testing.T) {
	long := strings.Repeat("x", 100<<10)
	for name, c := range map[string]struct {
		status     int
		kind, body string
	}{
		"application":     {421, "text/plain", "mine"},
		"other problem":   {503, "application/problem+json", `{"type":"urn:other"}`},
		"no JSON":         {421, "application/problem+json", "{"},
		"long":            {421, "application/problem+json", long},
		"forged address":  {421, "application/problem+json", `{"type":"urn:tenure:route:owner","shard":"s","node":"a","address":"file:///etc/passwd"}`},
		"address, a path": {421, "application/problem+json", `{"type":"urn:tenure:route:owner","shard":"s","node":"a","address":"http://h/x"}`},
	} {
		t.Run(name, func(t *testing.T) {
			hits := 0
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				hits++
				w.Header().Set("Content-Type", c.kind)
				w.WriteHeader(c.status)
				_, _ = fmt.Fprint(w, c.body)
			}))
			defer s.Close()
			tr, err := route.NewTransport(&route.TransportOptions{Allow: allowAll})
			if err != nil {
				t.Fatal(err)
			}
			resp, err := (&http.Client{Transport: tr}).Get(s.URL)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			if text, err := io.ReadAll(resp.Body); err != nil || string(text) != c.body || resp.StatusCode != c.status || hits != 1 {
				t.Errorf("%d, %d bytes, %v after %d attempts", resp.StatusCode, len(text), err, hits)
			}
		})
	}
}

func TestCheckAddress(t *testing.T) {
	for address, good := range map[string]bool{
		"http://127.0.0.1:80": true, "https://orders-7.internal": true, "http://[::1]:8080": true,
		"": false, "127.0.0.1:80": false, "ftp://h": false, "http://": false, "http://h/": false, "http://h?x": false, "http://h#x": false,
		"http://u@h": false, "http://u:p@h": false, "http://h:0": false, "http://h:99999": false, "http://h\n": false,
		"http:h": false, "http://" + strings.Repeat("h", 300): false,
	} {
		_, err := route.CheckAddress(address)
		if (err == nil) != good || err != nil && !errors.Is(err, core.ErrInvalid) {
			t.Errorf("%q: %v", address, err)
		}
		if err != nil && strings.Contains(err.Error(), "u:p") {
			t.Errorf("%q: the error has the password: %v", address, err)
		}
	}
}

func TestInvalid(t *testing.T) {
	if _, err := route.NewHandler(new(core.Elector), new(sharding.Router), http.NotFoundHandler(), &route.Options{
		Shard: func(*http.Request) (string, error) { return "", nil }, Transport: http.DefaultTransport}); !errors.Is(err, core.ErrInvalid) {
		t.Errorf("a Transport without Allow: %v", err)
	}
	if _, err := route.NewHandler(nil, nil, nil, nil); !errors.Is(err, core.ErrInvalid) {
		t.Errorf("NewHandler: %v", err)
	}
	for _, o := range []*route.TransportOptions{nil, {}, {Allow: allowAll, Attempts: -1}, {Allow: allowAll, Attempts: 101},
		{Allow: allowAll, Wait: -1}, {Allow: allowAll, Wait: time.Hour}} {
		if _, err := route.NewTransport(o); !errors.Is(err, core.ErrInvalid) {
			t.Errorf("%+v: %v", o, err)
		}
	}
}

// If a member does not know the map of ranges yet, a client tries again.
func TestUnknownMap(t *testing.T) {
	t.Parallel()
	m := start(t, memory.New(), "a", nil, func(o *route.Options) {
		o.Shard = func(*http.Request) (string, error) { return "", fmt.Errorf("test: %w", sharding.ErrNoOwner) }
	})
	w := httptest.NewRecorder()
	(*m.h.Load()).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
	if w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") == "" {
		t.Errorf("answered %d %v, want 503 with Retry-After", w.Code, w.Header())
	}
}
