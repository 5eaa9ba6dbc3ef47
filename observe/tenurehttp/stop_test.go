package tenurehttp_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenure-go/tenure/backends/memory"
	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/operator"
	"github.com/tenure-go/tenure/internal/proof/ample"
	"github.com/tenure-go/tenure/observe/tenurehttp"
)

// fleet is a store with members that send no heartbeats and live for a day. It counts calls to the
// store.
type fleet struct {
	core.Backend
	t     *testing.T
	reads atomic.Int64
	joins atomic.Int64 // a write of a rule begins with a join
	fail  atomic.Pointer[error]
}

func newFleet(t *testing.T, nodes ...string) *fleet {
	t.Helper()
	b, err := memory.Open(context.Background(), memory.New(), "web", nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	f := &fleet{Backend: b, t: t}
	for _, n := range nodes {
		f.member(n, "S"+n)
	}
	return f
}

func (f *fleet) member(node, session string) {
	f.t.Helper()
	if _, err := f.Backend.Join(context.Background(), core.Member{Session: core.SessionID(session), Node: node, TTL: 24 * time.Hour}); err != nil {
		f.t.Fatal(err)
	}
}

func (f *fleet) Join(ctx context.Context, m core.Member) (driver.Session, error) {
	f.joins.Add(1)
	return f.Backend.Join(ctx, m)
}

func (f *fleet) List(ctx context.Context, shard core.ShardID, prefix string, limit, largest int) ([]core.Item, error) {
	f.reads.Add(1)
	if err := f.fail.Load(); err != nil {
		return nil, *err
	}
	return f.Backend.List(ctx, shard, prefix, limit, largest)
}

// handler returns the handler of a node's member.
func (f *fleet) handler(node string, o tenurehttp.Options) http.Handler {
	o.Stops = f
	return tenurehttp.Handler((*fixed)(&core.View{Node: node, Session: core.SessionID("S" + node), Trusted: true}), &o)
}

// asks requests /may-stop, by default over a Unix socket.
func asks(h http.Handler, change func(*http.Request)) *httptest.ResponseRecorder {
	local := context.WithValue(context.Background(), http.LocalAddrContextKey, &net.UnixAddr{Name: "/run/x.sock", Net: "unix"})
	r := httptest.NewRequestWithContext(local, http.MethodGet, "http://localhost/may-stop", nil)
	if change != nil {
		change(r)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func answerOf(t *testing.T, w *httptest.ResponseRecorder, status int) (a operator.Answer) {
	t.Helper()
	if w.Code != status {
		t.Fatalf("status %d, want %d: %s", w.Code, status, w.Body)
	}
	if err := json.Unmarshal(w.Body.Bytes(), &a); err != nil {
		t.Fatal(err)
	}
	if got := w.Header().Get("Cache-Control"); got != "no-store" {
		t.Errorf("Cache-Control %q, want that nobody keeps the answer", got)
	}
	return a
}

func (f *fleet) places() []string {
	f.t.Helper()
	items, err := f.Backend.List(context.Background(), "_control", "rule/stop/", 0, 0)
	if err != nil {
		f.t.Fatal(err)
	}
	nodes := []string{}
	for _, i := range items {
		nodes = append(nodes, strings.TrimPrefix(i.Key, "rule/stop/"))
	}
	return nodes
}

// TestMayStop: one member gets the place. The answer to the other member names the node that has
// the place, and when to ask again. If the first member asks again, it keeps the place. No write is
// needed while half of the place's time is left.
func TestMayStop(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, "n1", "n2", "n3")
		one, two := f.handler("n1", tenurehttp.Options{StopFor: time.Minute}), f.handler("n2", tenurehttp.Options{StopFor: time.Minute})
		first := answerOf(t, asks(one, nil), 200)
		if left := time.Until(first.Until); !first.May || first.Node != "n1" || left < time.Minute || left > time.Minute+time.Second {
			t.Errorf("got %+v", first)
		}
		w := asks(two, nil)
		if a := answerOf(t, w, 409); a.May || a.Node != "n2" || len(a.Away) != 1 || a.Away[0].Node != "n1" || w.Header().Get("Retry-After") == "" {
			t.Errorf("got %+v, and the header %v", a, w.Header())
		}
		joins := f.joins.Load()
		for range 5 {
			time.Sleep(5 * time.Second)
			if a := answerOf(t, asks(one, nil), 200); !a.Until.Equal(first.Until) {
				t.Errorf("got %+v", a)
			}
		}
		if n := f.joins.Load() - joins; n != 0 {
			t.Errorf("asking again wrote %d times", n)
		}
		time.Sleep(10 * time.Second)
		if a := answerOf(t, asks(one, nil), 200); a.Until.Sub(first.Until) < 30*time.Second {
			t.Errorf("got %+v, want a longer place", a)
		}
		answerOf(t, asks(two, nil), 409)
		time.Sleep(62 * time.Second)
		answerOf(t, asks(two, nil), 200)
		f.member("n2", "again")
		answerOf(t, asks(one, nil), 200)
	})
}

// TestMayStopAsksForAYes: every yes requires a new query of the store, because the place may have
// expired and may belong to another node. Even a flood of requests causes only one query a second.
func TestMayStopAsksForAYes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, "n1", "n2", "n3")
		one, two := f.handler("n1", tenurehttp.Options{}), f.handler("n2", tenurehttp.Options{})
		answerOf(t, asks(one, nil), 200)
		w := &operator.Writer{Backend: f, Options: &core.Options{TTL: 10 * time.Second}, Timeout: time.Second}
		if had, err := w.Done(t.Context(), "n1", "an operator"); err != nil || !had {
			t.Fatal(had, err)
		}
		answerOf(t, asks(two, nil), 200)
		answerOf(t, asks(one, nil), 409)
		began, reads := time.Now(), f.reads.Load()
		var all sync.WaitGroup
		for range 16 {
			all.Go(func() {
				for time.Since(began) < 10*time.Second {
					if w := asks(two, nil); w.Code != 200 {
						t.Errorf("status %d: %s", w.Code, w.Body)
					}
				}
			})
		}
		all.Wait()
		if n := f.reads.Load() - reads; n < 2*8 || n > 2*12 {
			t.Errorf("%d lists of rules in 10 s of yes, want two a second", n)
		}
	})
}

// TestMayStopAtOnce: if several members are asked at the same time, one of them gets the place.
func TestMayStopAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, atOnce)
}

func atOnce(t *testing.T) {
	for range 10 {
		f := newFleet(t, "n1", "n2", "n3", "n4")
		var all sync.WaitGroup
		var yes atomic.Int64
		for i := range 4 {
			h := f.handler(fmt.Sprint("n", i+1), tenurehttp.Options{})
			for range 3 {
				all.Go(func() {
					switch w := asks(h, nil); w.Code {
					case 200:
						yes.Add(1)
					case 409:
					default:
						t.Errorf("status %d: %s", w.Code, w.Body)
					}
				})
			}
		}
		all.Wait()
		if n := len(f.places()); n != 1 || yes.Load() != 3 {
			t.Fatalf("got %d places, and %d yes to 3 requests of each member", n, yes.Load())
		}
	}
}

// TestMayStopBudget checks the options' budget, the number of members, and silent members.
func TestMayStopBudget(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "n1", "n2", "n3", "n4")
	answerOf(t, asks(f.handler("n1", tenurehttp.Options{StopAway: 2}), nil), 200)
	answerOf(t, asks(f.handler("n2", tenurehttp.Options{StopMembers: 4}), nil), 409)
	if a := answerOf(t, asks(f.handler("n2", tenurehttp.Options{StopAway: 2, StopMembers: 5}), nil), 409); a.Missing != 1 {
		t.Errorf("got %+v", a)
	}
	view := &core.View{Node: "n2", Session: "Sn2", Silent: []core.SessionID{"Sn3"}}
	h := tenurehttp.Handler((*fixed)(view), &tenurehttp.Options{Stops: f, StopAway: 2})
	if a := answerOf(t, asks(h, nil), 409); len(a.Away) != 2 || a.Away[1].Node != "n3" {
		t.Errorf("got %+v", a)
	}
	answerOf(t, asks(f.handler("n2", tenurehttp.Options{StopAway: 2}), nil), 200)
}

// TestMayStopNoAnswer: the status is 503 if the store does not answer, and 500 if options are
// wrong.
func TestMayStopNoAnswer(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "n1", "n2")
	if w := asks(f.handler("n9", tenurehttp.Options{}), nil); w.Code != 503 || !strings.Contains(w.Body.String(), "n9") {
		t.Errorf("a member that has not joined: status %d: %s", w.Code, w.Body)
	}
	for _, o := range []tenurehttp.Options{{StopAway: -1}, {StopFor: time.Millisecond}, {StopFor: 25 * time.Hour}, {StopMembers: -1}} {
		if w := asks(f.handler("n1", o), nil); w.Code != 500 || !strings.Contains(w.Body.String(), "Options.Stop") {
			t.Errorf("%+v: status %d: %s", o, w.Code, w.Body)
		}
	}
	down := errors.New("the store is away: " + strings.Repeat("x", 5000))
	f.fail.Store(&down)
	if w := asks(f.handler("n1", tenurehttp.Options{}), nil); w.Code != 503 || w.Header().Get("Retry-After") == "" || w.Body.Len() > 2000 {
		t.Errorf("a store that fails: status %d, %d bytes", w.Code, w.Body.Len())
	}
	if got := f.places(); len(got) != 0 {
		t.Errorf("got places for %v", got)
	}
}

// TestMayStopIsOff: without Options.Stops, no path writes.
func TestMayStopIsOff(t *testing.T) {
	t.Parallel()
	if w := asks(tenurehttp.Handler((*fixed)(sample()), nil), nil); w.Code != 404 {
		t.Errorf("status %d: %s", w.Code, w.Body)
	}
}

// TestMayStopFromOutside: clients that reach the port, on this machine or another, cannot take
// places. Neither can a proxy in front of a Unix socket, a request with a different Host, or a page
// in a local browser.
func TestMayStopFromOutside(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "n1", "n2", "n3")
	h := f.handler("n1", tenurehttp.Options{Hosts: []string{"board.example"}})
	header := func(name, value string) func(*http.Request) {
		return func(r *http.Request) { r.Header.Set(name, value) }
	}
	at := func(addr net.Addr) func(*http.Request) {
		return func(r *http.Request) {
			*r = *r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, addr))
		}
	}
	for name, change := range map[string]func(*http.Request){
		"loopback":             at(&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 8081}),
		"another machine":      at(&net.TCPAddr{IP: net.IPv4(10, 0, 0, 7), Port: 8081}),
		"a connection unknown": at(nil),
		"a proxy":              header("X-Forwarded-For", "192.0.2.1"),
		"a proxy, by RFC 7239": header("Forwarded", "for=192.0.2.1"),
		"a proxy, by Via":      header("Via", "1.1 proxy"),
		"a mesh":               header("X-Envoy-External-Address", "192.0.2.1"),
		"nginx":                header("X-Real-IP", "192.0.2.1"),
		"DNS rebinding": func(r *http.Request) {
			at(&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 8081})(r)
			r.Host = "evil.example:8081"
		},
		"an image on a page":    header("Sec-Fetch-Site", "cross-site"),
		"a link that is opened": header("Sec-Fetch-Mode", "navigate"),
		"a prefetch":            header("Sec-Purpose", "prefetch"),
		"another origin":        header("Origin", "http://evil.example"),
		"an old browser":        header("Referer", "http://evil.example/"),
		"a token without need": func(r *http.Request) {
			header("Authorization", "Bearer x")(r)
			at(&net.TCPAddr{IP: net.IPv4(10, 0, 0, 7)})(r)
		},
	} {
		if w := asks(h, change); w.Code != http.StatusForbidden {
			t.Errorf("%s: status %d: %s", name, w.Code, w.Body)
		}
	}
	if got, reads := f.places(), f.reads.Load(); len(got) != 0 || reads != 0 || f.joins.Load() != 0 {
		t.Errorf("got places for %v, and %d reads", got, reads)
	}
	if w := asks(h, nil); w.Code != 200 {
		t.Errorf("a Unix socket: status %d: %s", w.Code, w.Body)
	}
}

// TestMayStopToken: if a token is set, every request needs the token, even over a Unix socket.
func TestMayStopToken(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "n1", "n2")
	h := f.handler("n1", tenurehttp.Options{StopToken: "secret"})
	outside := func(authorization ...string) func(*http.Request) {
		return func(r *http.Request) {
			*r = *r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, &net.TCPAddr{IP: net.IPv4(10, 0, 0, 7), Port: 8081}))
			r.Host = "10.0.0.7:8081"
			r.Header["Authorization"] = authorization
		}
	}
	for _, wrong := range [][]string{nil, {""}, {"secret"}, {"Bearer"}, {"Bearer "}, {"Bearer secre"}, {"Bearer secrets"}, {"Basic secret"},
		{"Bearer wrong", "Bearer secret"}} {
		if w := asks(h, outside(wrong...)); w.Code != 401 || w.Header().Get("WWW-Authenticate") == "" || strings.Contains(w.Body.String(), "secret") {
			t.Errorf("%q: status %d: %s", wrong, w.Code, w.Body)
		}
	}
	if w := asks(h, nil); w.Code != 401 {
		t.Errorf("a Unix socket without the token: status %d", w.Code)
	}
	if w := asks(h, func(r *http.Request) { outside("Bearer secret")(r); r.Header.Set("Sec-Fetch-Site", "cross-site") }); w.Code != 403 {
		t.Errorf("a browser with the token: status %d", w.Code)
	}
	if got := f.places(); len(got) != 0 {
		t.Errorf("got places for %v", got)
	}
	answerOf(t, asks(h, outside("bearer secret")), 200)
}

// TestMayStopOwnNodeOnly: no parameter, path, method or body can request a place for another node,
// or a larger budget.
func TestMayStopOwnNodeOnly(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "n1", "n2", "n3")
	h := f.handler("n1", tenurehttp.Options{})
	for _, query := range []string{"node=n2", "away=100", "for=24h", "done", "x=" + strings.Repeat("y", 100_000), "%zz"} {
		if w := asks(h, func(r *http.Request) { r.URL.RawQuery = query }); w.Code != 400 || w.Body.Len() > 1000 {
			t.Errorf("?%.20s: status %d: %.200s", query, w.Code, w.Body)
		}
	}
	for _, method := range []string{http.MethodHead, http.MethodPost, http.MethodPut, http.MethodDelete, http.MethodOptions, "EVIL"} {
		if w := asks(h, func(r *http.Request) { r.Method = method }); w.Code != 405 || w.Header().Get("Allow") != "GET" {
			t.Errorf("%s: status %d, Allow %q", method, w.Code, w.Header().Get("Allow"))
		}
	}
	for _, path := range []string{"/may-stop/", "/may-stop/n2", "/MAY-STOP"} {
		if w := asks(h, func(r *http.Request) { r.URL.Path = path }); w.Code != 404 {
			t.Errorf("%s: status %d", path, w.Code)
		}
	}
	if got := f.places(); len(got) != 0 {
		t.Errorf("got places for %v", got)
	}
	answerOf(t, asks(h, nil), 200)
	if got := f.places(); len(got) != 1 || got[0] != "n1" {
		t.Errorf("got places for %v", got)
	}
}

// TestMayStopFlood: even in a flood of requests, a member queries the store once a second. A client
// that disconnects has no influence on this.
func TestMayStopFlood(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, "n1", "n2", "n3")
		h := f.handler("n2", tenurehttp.Options{})
		answerOf(t, asks(f.handler("n1", tenurehttp.Options{}), nil), 200)
		reads, joins := f.reads.Load(), f.joins.Load()
		for range 10 {
			for range 1000 {
				if w := asks(h, nil); w.Code != 409 {
					t.Fatalf("status %d: %s", w.Code, w.Body)
				}
			}
			time.Sleep(time.Second)
		}
		if n := f.reads.Load() - reads; n > 2*11 || f.joins.Load() != joins {
			t.Errorf("%d lists of rules in 10 s, and %d writes", n, f.joins.Load()-joins)
		}
		reads = f.reads.Load()
		gone, cancel := context.WithCancel(context.Background())
		cancel()
		for range 100 {
			asks(h, func(r *http.Request) {
				*r = *r.WithContext(context.WithValue(gone, http.LocalAddrContextKey, r.Context().Value(http.LocalAddrContextKey)))
			})
		}
		if n := f.reads.Load() - reads; n != 0 {
			t.Errorf("clients that had gone caused %d reads", n)
		}
	})
}

// TestMayStopWaits: while the store does not answer, some requests wait, and all others are refused
// immediately. Each request gets an answer within a limited time, and no answer is yes.
func TestMayStopWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, "n1", "n2")
		h := tenurehttp.Handler((*fixed)(&core.View{Node: "n1"}), &tenurehttp.Options{Stops: &silentStore{f}})
		began := time.Now()
		var all sync.WaitGroup
		var refused atomic.Int64
		for range 100 {
			all.Go(func() {
				w := asks(h, nil)
				if w.Code != 503 {
					t.Errorf("status %d: %s", w.Code, w.Body)
				}
				if time.Since(began) < time.Second {
					refused.Add(1)
				}
			})
		}
		all.Wait()
		if took := time.Since(began); took > 30*time.Second || refused.Load() != 84 {
			t.Errorf("took %v, and %d were refused at once", took, refused.Load())
		}
	})
}

type silentStore struct{ *fleet }

func (s *silentStore) Observe(ctx context.Context, _ driver.ObserveQuery) (*driver.View, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// TestMayStopServed asks a real server over loopback, for an Elector that runs.
func TestMayStopServed(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "n2")
	ctx, cancel := context.WithCancel(t.Context())
	e, err := core.NewElector(f.Backend, &core.Options{Node: "n1", TTL: 5 * time.Second, LockDir: "none"})
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Contend(func(ctx context.Context, _ *core.Lease) error { <-ctx.Done(); return nil }, "only"); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- e.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	server := httptest.NewServer(tenurehttp.Handler(e, &tenurehttp.Options{Stops: f, StopToken: "secret"}))
	defer server.Close()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+"/may-stop", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer secret")
	ample.Wait(t, "the member does not join", func() bool {
		resp, err := server.Client().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != 200 && resp.StatusCode != 503 { // 503: the member has not joined yet
			t.Fatalf("status %d", resp.StatusCode)
		}
		return resp.StatusCode == 200
	})
	if got := f.places(); len(got) != 1 || got[0] != "n1" {
		t.Errorf("got places for %v", got)
	}
}
