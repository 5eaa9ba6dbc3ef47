package route_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/internal/problem"
	"github.com/tenure-go/tenure/internal/proof/ample"
	"github.com/tenure-go/tenure/internal/proof/loglines"
	"github.com/tenure-go/tenure/sharding"
	"github.com/tenure-go/tenure/sharding/route"
)

// teller serves a map of owners that the test defines.
type teller struct {
	*httptest.Server
	mu   sync.Mutex
	body string
	n    int
	auth atomic.Value // of the last request
	news atomic.Value // the age of the news
}

func newTeller(t *testing.T) *teller {
	x := &teller{}
	x.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		x.auth.Store(r.Header.Get("Authorization"))
		var body string
		if !ample.Soon(r.Context(), func() bool {
			x.mu.Lock()
			defer x.mu.Unlock()
			body = x.body
			return body == "" || r.URL.Query().Get("after") != fmt.Sprintf("t.%d", x.n)
		}) {
			w.WriteHeader(http.StatusNoContent)
			return
		}
		if body == "" {
			http.Error(w, "away", http.StatusServiceUnavailable)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		if age, ok := x.news.Load().(string); ok {
			w.Header().Set("Tenure-News-Age", age)
		}
		_, _ = io.WriteString(w, body)
	}))
	t.Cleanup(x.Close)
	return x
}

// tell makes the teller serve a map of one shard, which a member at the address owns.
func (x *teller) tell(address string, token int) {
	x.mu.Lock()
	n := x.n + 1
	x.mu.Unlock()
	at, _ := json.Marshal(address)
	x.raw(fmt.Sprintf(`{"version":"t.%d","full":true,"keyspace":{"name":"s","hash":"fnv1a-mixed","digits":4},"members":{"a":{"http":%s}},
		"shards":[{"shard":"s-0000","range":["0x0000000000000000","0x10000000000000000"],"node":"a","token":%d}]}`, n, at, token))
}

func (x *teller) raw(body string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.n++
	x.body = body
}

func (x *teller) of(t *testing.T, change func(*route.ClientOptions)) *route.Client {
	t.Helper()
	o := &route.ClientOptions{Members: []string{x.URL}, Header: http.Header{"Authorization": {"Bearer map"}}, Wait: 20 * time.Millisecond,
		Attempts: 5, Logger: slog.New(slog.DiscardHandler)}
	if change != nil {
		change(o)
	}
	c, err := route.NewClient(o)
	if err != nil {
		t.Fatal(err)
	}
	run(t, c)
	return c
}

func serve(t *testing.T, f http.HandlerFunc) (address string, hits *atomic.Int64) {
	hits = new(atomic.Int64)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		hits.Add(1)
		f(w, r)
	}))
	t.Cleanup(s.Close)
	return s.URL, hits
}

func answer(w http.ResponseWriter, status int, p problem.Document) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(p)
}

func only(address string) func(*url.URL) bool {
	return func(u *url.URL) bool { return u.Scheme+"://"+u.Host == address }
}

func send(ctx context.Context, c *route.Client, body io.Reader) (int, string, error) {
	r, err := http.NewRequestWithContext(ctx, "POST", "http://orders.example/x?y=1", body)
	if err != nil {
		return 0, "", err
	}
	r.Header.Set("Authorization", "Bearer secret")
	resp, err := c.Do("key", r)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(text), err
}

// TestClientSendsNowhereElse: the client connects only to allowed addresses of owners. This applies
// to IP addresses and names, from the map and from answers. The client does not follow redirects,
// and sends the credential for the map only to Members.
func TestClientSendsNowhereElse(t *testing.T) {
	t.Parallel()
	port, connected := victim(t)
	x := newTeller(t)
	var auth atomic.Value
	owner, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
		auth.Store(r.Header.Get("Authorization"))
		http.Redirect(w, r, "http://127.0.0.1:"+port+"/", http.StatusTemporaryRedirect)
	})
	guarded := x.of(t, nil)
	narrow := x.of(t, func(o *route.ClientOptions) { o.Allow = only(owner) })
	open := x.of(t, func(o *route.ClientOptions) { o.Allow = allowAll }) // names of local addresses stay refused
	shows := func(c *route.Client, token int) {
		await(t, "the map", func() bool {
			o, err := c.Owner("key")
			return err == nil && o.Token == core.Token(token)
		})
	}
	token := 0
	for _, address := range []string{
		"http://127.0.0.1:" + port, "http://127.1:" + port, "http://[::1]:" + port, "http://[::ffff:127.0.0.1]:" + port, "http://0.0.0.0:" + port,
		"http://localhost:" + port, "http://LOCALHOST.:" + port, "http://user:pw@127.0.0.1:" + port, "http://127.0.0.1:" + port + "/x", "file:///etc/passwd", "",
	} {
		token++
		x.tell(address, token)
		for name, c := range map[string]*route.Client{"guarded": guarded, "narrow": narrow, "open": open} {
			if name == "open" && !strings.Contains(strings.ToLower(address), "localhost") {
				continue
			}
			shows(c, token)
			code, _, err := send(t.Context(), c, strings.NewReader("body"))
			// Some of these names do not resolve on some machines.
			if op := (*net.OpError)(nil); !errors.Is(err, route.ErrAddress) && !errors.As(err, &op) {
				t.Errorf("%s, %s: %d %v, want ErrAddress", name, address, code, err)
			}
		}
	}
	token++
	x.tell(owner, token)
	shows(narrow, token)
	if code, _, err := send(t.Context(), narrow, strings.NewReader("body")); err != nil || code != http.StatusTemporaryRedirect || auth.Load() != "Bearer secret" {
		t.Errorf("a redirect: %d %v", code, err)
	}
	for _, address := range []string{"http://127.0.0.1:" + port, "http://localhost:" + port} {
		liar, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
			answer(w, 421, problem.Document{Type: "urn:tenure:route:owner", Shard: "s-0000", Node: "b", Address: address, Token: 1 << 60})
		})
		token++
		x.tell(liar, token)
		c := x.of(t, func(o *route.ClientOptions) { o.Allow = only(liar) })
		shows(c, token)
		if code, _, err := send(t.Context(), c, strings.NewReader("body")); err != nil || code != http.StatusMisdirectedRequest {
			t.Errorf("an answer that names %s: %d %v", address, code, err)
		}
	}
	elsewhere := httptest.NewServer(http.RedirectHandler("http://127.0.0.1:"+port+"/owners", http.StatusFound))
	defer elsewhere.Close()
	failed := make(chan error, 1)
	x.of(t, func(o *route.ClientOptions) {
		o.Members = []string{elsewhere.URL}
		o.Logger = loglines.Failures("tenure: route", func(err error) {
			select {
			case failed <- err:
			default:
			}
		})
	})
	select {
	case err := <-failed:
		if strings.Contains(err.Error(), "Bearer") {
			t.Error(err)
		}
	case <-time.After(ample.Time):
		t.Error("a map that is elsewhere: no error")
	}
	if n := connected.Load(); n != 0 {
		t.Errorf("%d connections to an address that is not allowed", n)
	}
	if x.auth.Load() != "Bearer map" || auth.Load() != "Bearer secret" {
		t.Errorf("the map is asked for with %q, the owner gets %q", x.auth.Load(), auth.Load())
	}
}

// TestClientKeepsItsMap: the client rejects a map that has gaps, has two owners for a hash, is too
// large, or is garbage. In these cases, and while no member answers, the client uses the last good
// map.
func TestClientKeepsItsMap(t *testing.T) {
	t.Parallel()
	x := newTeller(t)
	owner, hits := serve(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "done") })
	var failures atomic.Int64
	c := x.of(t, func(o *route.ClientOptions) {
		o.Allow = allowAll
		o.Logger = loglines.Failures("tenure: route", func(err error) {
			failures.Add(1)
			if len(err.Error()) > 1000 {
				t.Errorf("an error of %d bytes", len(err.Error()))
			}
		})
	})
	if _, ok := c.Age(); ok {
		t.Error("there is a map before there was one")
	}
	if _, _, err := send(t.Context(), c, nil); !errors.Is(err, sharding.ErrNoOwner) {
		t.Errorf("without a map: %v", err)
	}
	x.tell(owner, 7)
	known(t, c)
	frame := func(keyspace, shards string) string {
		return `{"version":"t.9","full":true,"keyspace":` + keyspace + `,"members":{"b":{"http":"http://b"}},"shards":[` + shards + `]}`
	}
	const good, all = `{"name":"s","hash":"fnv1a-mixed","digits":4}`, `"range":["0x0000000000000000","0x10000000000000000"],"node":"b","token":9`
	bad := []string{
		"", "{", "[]", `"x"`, "{}", strings.Repeat("[", 100_000), `{"version":"t.9","full":true,"shards":[]}`,
		frame(good, ""), frame(good, `{"shard":"s-0001","node":"b","token":9}`),
		frame(`{"name":"s","hash":"md5","digits":4}`, `{"shard":"s-0001",`+all+`}`), frame(`{"name":"_s","hash":"fnv1a"}`, `{"shard":"s-0001",`+all+`}`),
		frame(good, `{"shard":"s-0001","range":["0x0000000000000001","0x10000000000000000"],"node":"b","token":9}`),
		frame(good, `{"shard":"s-0001","range":["0x0000000000000000","0x8000000000000000"],"node":"b","token":9}`),
		frame(good, `{"shard":"s-0001",`+all+`},{"shard":"s-0002",`+all+`}`),
		frame(good, `{"shard":"s-0001","range":["0x0000000000000000","0x8000000000000000"]},{"shard":"s-0002","range":["0x9000000000000000","0x10000000000000000"]}`),
		frame(good, `{"shard":"s\n","range":["0x0000000000000000","0x10000000000000000"]}`), frame(good, `{"shard":"s-0001","range":["x","y"]}`),
		frame(good, `{"shard":"s-0001","range":["0x0000000000000000","0x10000000000000000"],"node":"b","token":-9}`),
		strings.Replace(frame(good, `{"shard":"s-0001",`+all+`}`), "t.9", strings.Repeat("v", 100), 1),
		`{"version":"t.9","full":true,"x":"` + strings.Repeat("x", 65<<20) + `"}`,
	}
	for i, body := range bad {
		before := failures.Load()
		x.raw(body)
		await(t, "an error", func() bool { return failures.Load() > before })
		if code, text, err := send(t.Context(), c, nil); err != nil || code != 200 || text != "done" {
			t.Errorf("after %d, %.100s: %d %s %v", i, body, code, text, err)
		}
		x.tell(owner, 7) // which ends the pause after failures
		await(t, "a good map", func() bool { age, _ := c.Age(); return age < 50*time.Millisecond })
	}
	for header, least := range map[string]time.Duration{"7200.5": 2 * time.Hour, "-7200": 0, "NaN": 0, "1e300": 0, "x": 0, "Inf": 0} {
		x.news.Store(header)
		x.tell(owner, 7)
		await(t, "the age of its member's news: "+header, func() bool {
			age, _ := c.Age()
			return age >= least && age < least+time.Hour
		})
	}
	x.Close()
	before := failures.Load()
	await(t, "an error", func() bool { return failures.Load() > before })
	was, _ := c.Age()
	for range 10 {
		if code, _, err := send(t.Context(), c, nil); err != nil || code != 200 {
			t.Errorf("while no member answers: %d %v", code, err)
		}
	}
	if age, ok := c.Age(); !ok || age <= was || hits.Load() < 10 {
		t.Errorf("the map is %v old, before %v", age, was)
	}
}

// TestClientRepeatsOnlyWhatWasNotDone: a request whose answer is lost is sent once. A request that
// was not sent goes to the owner that the map names then. If two members name each other as the
// owner, the client gives up after Attempts attempts.
func TestClientRepeatsOnlyWhatWasNotDone(t *testing.T) {
	t.Parallel()
	x := newTeller(t)
	cut, cuts := serve(t, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	good, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		_, _ = fmt.Fprintf(w, "%s %s %s", r.Host, r.URL, body)
	})
	var a, b string
	a, as := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		answer(w, 421, problem.Document{Type: "urn:tenure:route:owner", Shard: "s-0000", Node: "b", Address: b, Token: 50})
	})
	b, bs := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		answer(w, 421, problem.Document{Type: "urn:tenure:route:owner", Shard: "s-0000", Node: "a", Address: a, Token: 60})
	})
	forged, forgeries := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		answer(w, 503, problem.Document{Type: "urn:tenure:route:lost"})
	})
	const gone = "http://127.0.0.1:1" // no process gets a port this low unless it asks for it
	at := func(address string, change func(*route.ClientOptions)) *route.Client {
		x.tell(address, 7)
		c := x.of(t, func(o *route.ClientOptions) {
			o.Allow = allowAll
			if change != nil {
				change(o)
			}
		})
		known(t, c)
		return c
	}
	if code, _, err := send(t.Context(), at(cut, nil), strings.NewReader("body")); err == nil || cuts.Load() != 1 {
		t.Errorf("a lost answer: %d %v after %d requests", code, err, cuts.Load())
	}
	if code, _, err := send(t.Context(), at(forged, nil), strings.NewReader("body")); err != nil || code != 503 || forgeries.Load() != 1 {
		t.Errorf("an answer that was lost further on: %d %v after %d requests", code, err, forgeries.Load())
	}
	if code, _, err := send(t.Context(), at(a, nil), strings.NewReader("body")); err != nil || code != 421 || as.Load()+bs.Load() != 5 {
		t.Errorf("members that name each other: %d %v after %d requests, want 5", code, err, as.Load()+bs.Load())
	}
	former, formers := serve(t, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	late, lates := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		answer(w, 421, problem.Document{Type: "urn:tenure:route:owner", Shard: "s-0000", Node: "former", Address: former, Token: 6})
	})
	if code, _, err := send(t.Context(), at(late, nil), strings.NewReader("body")); err != nil || code != 421 || formers.Load() > 0 {
		t.Errorf("an owner that names a former one: %d %v after %d and %d requests", code, err, lates.Load(), formers.Load())
	}
	as.Store(0)
	if code, _, err := send(t.Context(), at(a, nil), io.NopCloser(strings.NewReader("once"))); err != nil || code != 421 || as.Load() != 1 {
		t.Errorf("a body that can be read once: %d %v after %d requests", code, err, as.Load())
	}
	if _, _, err := send(t.Context(), at(gone, nil), strings.NewReader("body")); err == nil {
		t.Error("an owner that is away: no error")
	}
	c := at(gone, func(o *route.ClientOptions) { o.Attempts = 1000 })
	moved := time.AfterFunc(100*time.Millisecond, func() { x.tell(good, 8) })
	defer moved.Stop()
	ctx, cancel := context.WithTimeout(t.Context(), ample.Time)
	defer cancel()
	if code, text, err := send(ctx, c, strings.NewReader("body")); err != nil || code != 200 || text != "orders.example /x?y=1 body" {
		t.Errorf("an owner that is away, and another one later: %d %q %v", code, text, err)
	}
	short, end := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer end()
	if _, _, err := send(short, at(gone, func(o *route.ClientOptions) { o.Attempts, o.Wait = 1000, time.Minute }), nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the end of the context: %v", err)
	}
}

func TestClientInvalid(t *testing.T) {
	t.Parallel()
	m := []string{"http://127.0.0.1:1/owners"}
	for _, o := range []*route.ClientOptions{
		nil, {}, {Members: []string{"127.0.0.1:1"}}, {Members: []string{"ftp://h"}}, {Members: []string{"http://u:secret@h"}}, {Members: []string{"http://h?x"}},
		{Members: make([]string, 1001)}, {Members: m, Attempts: -1}, {Members: m, Attempts: 1001}, {Members: m, Wait: -1}, {Members: m, Wait: time.Hour},
		{Members: m, Base: http.DefaultTransport},
	} {
		_, err := route.NewClient(o)
		if !errors.Is(err, core.ErrInvalid) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%+v: %v", o, err)
		}
	}
	c, err := route.NewClient(&route.ClientOptions{Members: m})
	if err != nil {
		t.Fatal(err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := c.Run(ended); err != nil {
		t.Errorf("Run: %v", err)
	}
	if err := c.Run(ended); !errors.Is(err, core.ErrStopped) {
		t.Errorf("Run again: %v", err)
	}
}
