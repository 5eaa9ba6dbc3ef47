package tenurehttp_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenure-go/tenure/backends/memory"
	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/internal/proof/ample"
	"github.com/tenure-go/tenure/observe/tenurehttp"
	"github.com/tenure-go/tenure/sharding"
)

type changing struct{ view atomic.Pointer[core.View] }

func newChanging(v *core.View) *changing {
	c := &changing{}
	c.view.Store(v)
	return c
}

func (c *changing) View() *core.View { return c.view.Load() }

// change replaces the view with a copy that f has changed.
func (c *changing) change(f func(*core.View)) {
	v := *c.view.Load()
	v.Shards, v.Members, v.Moves = slices.Clone(v.Shards), slices.Clone(v.Members), slices.Clone(v.Moves)
	f(&v)
	c.view.Store(&v)
}

type event struct {
	Full    bool
	Known   int
	Refused *uint64
	Members []tenurehttp.Member
	Owners  [][2]any
	Shards  [][5]any // if the last element is nil, the shard is not set aside
	Aside   int      `json:"quarantined"`
	Removed []string
	Moves   []tenurehttp.Move
	Notes   []tenurehttp.Note
	Lag     *tenurehttp.Lag
	Places  map[string][3]any
	Beats   map[string]int64
	Trust   int64

	MemberLoads map[string]tenurehttp.MemberShares `json:"member_loads"`
	Elsewhere   map[string]string                  `json:"elsewhere"`
	Ranges      []tenurehttp.Range
	Loads       map[string]*float64
	Effects     *tenurehttp.Effects

	size int // bytes
}

func serve(t *testing.T, h http.Handler) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(func() { s.CloseClientConnections(); s.Close() })
	return s
}

// follow opens a stream, and returns a function that waits for the next event. If its argument is
// not nil, the function waits for the next event for which the argument returns true.
func follow(t *testing.T, url string) (next func(is func(event) bool) event) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), ample.Time)
	t.Cleanup(cancel)
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/events", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	if kind := resp.Header.Get("Content-Type"); resp.StatusCode != http.StatusOK || kind != "text/event-stream" {
		t.Fatalf("status %d, type %q", resp.StatusCode, kind)
	}
	lines := bufio.NewReader(resp.Body)
	return func(is func(event) bool) event {
		t.Helper()
		for {
			line, err := lines.ReadString('\n')
			if err != nil {
				t.Fatal(err)
			}
			data, ok := strings.CutPrefix(line, "data: ")
			if !ok {
				continue
			}
			var e event
			if err := json.Unmarshal([]byte(data), &e); err != nil {
				t.Fatalf("%v: %s", err, data)
			}
			e.size = len(data)
			if is == nil || is(e) {
				return e
			}
		}
	}
}

func TestPage(t *testing.T) {
	t.Parallel()
	h := tenurehttp.Handler((*fixed)(sample()), nil)
	for path, kind := range map[string]string{"/": "text/html", "/board.js": "text/javascript", "/board.css": "text/css"} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
		if w.Code != http.StatusOK || w.Header().Get("Content-Type") != kind+"; charset=utf-8" || w.Body.Len() == 0 {
			t.Errorf("%s: status %d, %q, %d bytes", path, w.Code, w.Header().Get("Content-Type"), w.Body.Len())
		}
		policy := w.Header().Get("Content-Security-Policy")
		if !strings.HasPrefix(policy, "default-src 'none'; ") || strings.Contains(policy, "unsafe") {
			t.Errorf("%s: the policy %q does not forbid all but the page's own", path, policy)
		}
		for _, foreign := range []string{"http://", "https://", "//cdn", "style=", "onclick", "innerHTML", "<script>"} {
			if strings.Contains(w.Body.String(), foreign) {
				t.Errorf("%s has %q", path, foreign)
			}
		}
		w = httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, path, nil))
		if w.Code != http.StatusMethodNotAllowed {
			t.Errorf("POST %s: status %d", path, w.Code)
		}
	}
	get[tenurehttp.Problem](t, http.StripPrefix("/x", h), "/x/events", http.StatusInternalServerError) // no deadline
}

func TestEvents(t *testing.T) {
	t.Parallel()
	c, j := newChanging(sample()), &tenurehttp.Journal{}
	j.Add(tenurehttp.Note{Kind: tenurehttp.NoteOther, Text: "before"})
	s := serve(t, tenurehttp.Handler(c, &tenurehttp.Options{
		Journal: j, Lag: func() (int64, time.Duration) { return 7, 2 * time.Second },
		Places: map[string]tenurehttp.Place{"orders-1": {X: 0.5, Y: 0.25, Name: "Ulm"}},
	}))
	next := follow(t, s.URL)
	first := next(nil)
	if !first.Full || len(first.Shards) != 3 || len(first.Members) != 2 || len(first.Owners) != 3 || len(first.Moves) != 2 {
		t.Errorf("at first: %+v", first)
	}
	if len(first.Notes) != 1 || first.Refused == nil || *first.Refused != 0 || first.Lag == nil || first.Lag.Entries != 7 ||
		first.Places["orders-1"] != [3]any{0.5, 0.25, "Ulm"} {
		t.Errorf("at first: %+v", first)
	}

	c.change(func(v *core.View) {
		v.Shards[1].Session, v.Shards[1].Node, v.Shards[1].Token = "S1", "n1", 9
		v.Shards[2].Shard = "orders-4"
		v.Moves = append(v.Moves, core.Event{At: time.Unix(2000, 0), Fence: core.Fence{Shard: "orders-2", Session: "S1", Token: 9}, Kind: core.LeaseGranted})
	})
	e := next(func(e event) bool { return len(e.Shards) > 0 })
	want := [][5]any{{"orders-2", 1.0, 9.0}, {"orders-4", 3.0, 3.0}}
	if e.Full || !slices.Equal(e.Shards, want) || !slices.Equal(e.Removed, []string{"orders-3"}) || e.Members != nil ||
		e.Owners != nil || len(e.Moves) != 1 || e.Places != nil {
		t.Errorf("after a move: %+v, want rows %v", e, want)
	}

	j.Refused(&core.FencedError{Fence: core.Fence{Shard: "orders-2", Session: "S2", Token: 8}})
	e = next(func(e event) bool { return len(e.Notes) > 0 })
	if *e.Refused != 1 || e.Notes[0].Shard != "orders-2" || len(e.Notes) != 1 {
		t.Errorf("after a refused write: %+v", e)
	}
	c.change(func(v *core.View) { v.Members[1].Draining = true })
	if e = next(func(e event) bool { return len(e.Members) > 0 }); !e.Members[1].Draining || e.Shards != nil {
		t.Errorf("after a drain: %+v", e)
	}
	if v := get[tenurehttp.View](t, s.Config.Handler, "/view", 200); v.Refused != 1 || len(v.Notes) != 2 || v.Lag.Seconds != 2 {
		t.Errorf("the view does not say so: %+v", v)
	}
}

// TestHeartbeats: the board shows what an Elector knows about the heartbeats of other members.
func TestHeartbeats(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := &world{T: t, store: memory.New()}
		a, b := p.start("a", "eu"), p.start("b", "us")
		time.Sleep(3 * ttl)
		session := string(b.View().Session)
		of := func() tenurehttp.Member {
			for _, m := range a.view().Members {
				if m.Session == session {
					return m
				}
			}
			return tenurehttp.Member{}
		}
		age, err := time.ParseDuration(of().SinceHeartbeat)
		if err != nil || age > ttl/2 {
			t.Errorf("heartbeat of b: %v, %v ago", err, age)
		}
		if trust, err := time.ParseDuration(a.view().TrustRemaining); err != nil || trust <= 0 || trust > ttl {
			t.Errorf("trust: %v, %v", trust, err)
		}
		b.crash()
		time.Sleep(ttl / 2)
		if late, err := time.ParseDuration(of().SinceHeartbeat); err != nil || late < ttl/2 || late > ttl {
			t.Errorf("heartbeat of b, half a TTL after it was cut off: %v, %v ago", err, late)
		}
		a.link.Cut()
		time.Sleep(2 * ttl)
		if m := of(); m.SinceHeartbeat != "" {
			t.Errorf("without trust: %+v", m)
		}
	})
}

func TestStreamsAreFew(t *testing.T) {
	t.Parallel()
	inner := tenurehttp.Handler(newChanging(sample()), &tenurehttp.Options{MaxStreams: 2})
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.RemoteAddr = "192.0.2.1:1234" // all from one address
		inner.ServeHTTP(w, r)
	})
	s := serve(t, h)
	for range 2 {
		follow(t, s.URL)(nil)
	}
	get[tenurehttp.Problem](t, h, "/events", http.StatusServiceUnavailable)
	s.CloseClientConnections()
	ample.Wait(t, "the streams have ended, and there is no room for another one", func() bool {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/events", nil))
		return w.Code != http.StatusServiceUnavailable
	})
}

// TestStreamsThatAreNeverRead: one address takes all places with streams that it does not read.
// Another address immediately gets a place, and keeps it.
func TestStreamsThatAreNeverRead(t *testing.T) {
	t.Parallel()
	const most = 4
	inner := tenurehttp.Handler(newChanging(sample()), &tenurehttp.Options{MaxStreams: most})
	var from atomic.Pointer[string]
	var served atomic.Int64
	s := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.RemoteAddr = *from.Load()
		served.Add(1)
		defer served.Add(-1)
		inner.ServeHTTP(w, r)
	}))
	hold := func(address string) (status string) {
		t.Helper()
		from.Store(&address)
		c, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", s.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		if err := c.SetDeadline(time.Now().Add(ample.Time)); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Write([]byte("GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n")); err != nil {
			t.Fatal(err)
		}
		status, err = bufio.NewReader(c).ReadString('\n') // the client reads no more
		if err != nil {
			t.Fatal(err)
		}
		return status
	}
	for _, address := range []string{"[2001:db8::1]:1", "[2001:db8::2]:1", "[2001:db8::3%eth0]:1", "[2001:db8::4]:2"} {
		if status := hold(address); !strings.Contains(status, "200") {
			t.Fatalf("%s: %s", address, status)
		}
	}
	if status := hold("[2001:db8::5]:1"); !strings.Contains(status, "503") {
		t.Errorf("a fifth of one network: %s", status)
	}
	board := "192.0.2.7:1"
	from.Store(&board)
	next := follow(t, s.URL)
	next(nil)
	for range 3 {
		hold("[2001:db8::6]:1")
	}
	next(nil)
	next(nil)
	if !ample.Soon(t.Context(), func() bool { return served.Load() == most }) {
		t.Fatalf("%d streams, want %d", served.Load(), most)
	}
}

// TestAside: the board and /view show shards that are set aside temporarily or permanently. The
// size of the reasons is limited.
func TestAside(t *testing.T) {
	t.Parallel()
	source := newChanging(sample())
	h := tenurehttp.Handler(source, nil)
	next := follow(t, serve(t, h).URL)
	if e := next(nil); e.Aside != 0 || e.Shards[2] != [5]any{"orders-3", 3.0, 3.0} {
		t.Errorf("got %+v", e)
	}
	until := time.UnixMilli(1_800_000_000_000).UTC()
	source.change(func(v *core.View) {
		v.Shards[2].Aside, v.Shards[2].AsideUntil = "in quarantine", until
		v.Shards = append(v.Shards, core.Ownership{Shard: "orders-4", Token: 1, Aside: strings.Repeat("\u202e", 1000)})
	})
	e := next(func(e event) bool { return len(e.Shards) > 0 })
	if e.Aside != 1 || len(e.Shards) != 2 || e.Shards[0] != [5]any{"orders-3", 3.0, 3.0, "in quarantine", 1.8e12} || e.Shards[1][4] != 0.0 ||
		len(e.Shards[1][3].(string)) > 110 {
		t.Errorf("got %+v", e)
	}
	v := get[tenurehttp.View](t, h, "/view", 200)
	if v.Quarantined != 1 || v.Unowned != 0 || v.Shards[2].Aside != "in quarantine" || !v.Shards[2].AsideUntil.Equal(until) ||
		len(v.Shards[3].Aside) > 110 || !v.Shards[3].AsideUntil.IsZero() || v.Shards[0].Aside != "" {
		t.Errorf("got %+v", v)
	}
	source.change(func(v *core.View) { v.Shards[2].Aside, v.Shards[2].AsideUntil = "", time.Time{} })
	if e := next(func(e event) bool { return len(e.Shards) > 0 }); e.Aside != 0 || !slices.Equal(e.Shards, [][5]any{{"orders-3", 3.0, 3.0}}) {
		t.Errorf("got %+v, want the shard that is free again", e)
	}
}

// TestHost: if another site's host name points to this machine, a page of that site can read
// nothing over loopback.
func TestHost(t *testing.T) {
	t.Parallel()
	h := tenurehttp.Handler(newChanging(sample()), &tenurehttp.Options{Hosts: []string{"Board.example"}})
	checked := tenurehttp.CheckHost(http.NotFoundHandler(), "Board.example")
	loopback := &net.TCPAddr{IP: net.IPv6loopback, Port: 8080}
	for _, c := range []struct {
		local net.Addr
		host  string
		good  bool
	}{
		{loopback, "localhost:8080", true}, {loopback, "LOCALHOST", true}, {loopback, "127.0.0.1:8080", true},
		{loopback, "[::1]:8080", true}, {loopback, "[::1]", true}, {loopback, "127.1.2.3", true}, {loopback, "[::ffff:127.0.0.1]:1", true},
		{loopback, "board.example:8080", true}, {loopback, "localhost.:1", true},
		{loopback, "evil.example:8080", false}, {loopback, "", false}, {loopback, "localhost.evil.example", false},
		{loopback, "127.0.0.1.evil.example", false}, {loopback, "192.0.2.1", false}, {loopback, "0.0.0.0:8080", false},
		{loopback, "a:b:c", false}, {loopback, "\u202elocalhost", false}, {loopback, "board.example.evil", false},
		{&net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}, "evil.example", false},
		{&net.TCPAddr{IP: net.IPv4(192, 0, 2, 1)}, "orders.example", true},
		{&net.UnixAddr{Name: "/run/board.sock"}, "orders.example", true},
	} {
		for _, path := range []string{"/", "/view", "/leader?shard=orders-1", "/board.js", "/healthz", "/livez", "/readyz", "/events"} {
			r := httptest.NewRequestWithContext(context.WithValue(t.Context(), http.LocalAddrContextKey, c.local), http.MethodHead, path, nil)
			r.Host = c.host
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			beside := httptest.NewRecorder()
			checked.ServeHTTP(beside, r)
			if c.good == (beside.Code == http.StatusForbidden) {
				t.Errorf("%s beside the board, with the Host %q: status %d", path, c.host, beside.Code)
			}
			if good := c.good || path == "/healthz" || path == "/livez" || path == "/readyz"; good == (w.Code == http.StatusForbidden) {
				t.Errorf("%s at %v with the Host %q: status %d", path, c.local, c.host, w.Code)
			}
		}
	}
	s := serve(t, h)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL+"/view", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Host = "evil.example"
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusForbidden {
		t.Errorf("a server on loopback, asked as evil.example: status %d", resp.StatusCode)
	}
}

func TestStreamsAreNotForOthers(t *testing.T) {
	t.Parallel()
	s := serve(t, tenurehttp.Handler(newChanging(sample()), nil))
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL+"/events", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Sec-Fetch-Site", "cross-site")
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusForbidden {
		t.Errorf("another site's page: status %d", resp.StatusCode)
	}
}

func TestStreamsEndWithTheirServer(t *testing.T) {
	t.Parallel()
	s := serve(t, tenurehttp.Handler(newChanging(sample()), nil))
	for range 2 {
		follow(t, s.URL)(nil)
	}
	ctx, cancel := context.WithTimeout(t.Context(), ample.Time)
	defer cancel()
	if err := s.Config.Shutdown(ctx); err != nil {
		t.Errorf("the server waits for its streams: %v", err)
	}
}

// client receives a message only when the test asks for one. A write waits until then, or until its
// deadline.
type client struct {
	http.ResponseWriter
	late  time.Time
	take  chan struct{}
	taken []string
}

func (c *client) SetWriteDeadline(t time.Time) error { c.late = t; return nil }

func (c *client) Flush() {}

func (c *client) Write(b []byte) (int, error) {
	if strings.HasPrefix(string(b), "{") {
		select {
		case <-c.take:
		case <-time.After(time.Until(c.late)):
			return 0, os.ErrDeadlineExceeded
		}
		c.taken = append(c.taken, string(b))
	}
	return len(b), nil
}

func TestSlowClients(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		source := newChanging(sample())
		h := tenurehttp.Handler(source, &tenurehttp.Options{MaxStreams: 1})
		c := &client{ResponseWriter: httptest.NewRecorder(), take: make(chan struct{})}
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			h.ServeHTTP(c, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/events", nil))
		}()
		c.take <- struct{}{} // the whole
		for i := range 50 {  // for 5 s, during which the client takes one message
			source.change(func(v *core.View) { v.Shards[i%2].Token += 100 })
			time.Sleep(100 * time.Millisecond)
		}
		c.take <- struct{}{}
		c.take <- struct{}{}
		synctest.Wait()
		var e event
		if err := json.Unmarshal([]byte(c.taken[2]), &e); err != nil {
			t.Fatal(err)
		}
		if want := [][5]any{{"orders-1", 1.0, 2507.0}, {"orders-2", 2.0, 2508.0}}; !slices.Equal(e.Shards, want) {
			t.Errorf("48 changes or so came as %v, want them as one: %v", e.Shards, want)
		}
		began := time.Now()
		<-ended // the client takes no more messages
		if took := time.Since(began); took > 12*time.Second {
			t.Errorf("dropped after %v", took)
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/events", nil))
		if w.Code == http.StatusServiceUnavailable {
			t.Error("the dropped client holds its place")
		}
	})
}

func TestStreamsEndInTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := &client{ResponseWriter: httptest.NewRecorder(), take: make(chan struct{})}
		close(c.take) // the client takes all messages
		began := time.Now()
		tenurehttp.Handler(newChanging(sample()), nil).ServeHTTP(c, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/events", nil))
		if took := time.Since(began); took != 15*time.Minute {
			t.Errorf("ended after %v", took)
		}
		if n := len(c.taken); n < 900 || n > 901 {
			t.Errorf("%d messages in 15 min without news, want one a second, from the first instant on", n)
		}
	})
}

// TestManyShardsStream: the amount of data that a stream sends about a large namespace is limited.
func TestManyShardsStream(t *testing.T) {
	t.Parallel()
	v := sample()
	v.Shards = nil
	for i := range 30_000 {
		v.Shards = append(v.Shards, core.Ownership{Shard: fmt.Sprintf("s-%06d", i), Session: "S1", Node: "n1", Token: core.Token(i + 1)})
	}
	next := follow(t, serve(t, tenurehttp.Handler(newChanging(v), nil)).URL)
	if e := next(nil); len(e.Shards) != 20_000 {
		t.Errorf("%d shards, want 20,000", len(e.Shards))
	}
}

// TestOwnMemberIsShown: a member's board always shows that member and its load, even if other
// members publish a lot of data. The board explains in a sentence why leases and sessions ended.
func TestOwnMemberIsShown(t *testing.T) {
	t.Parallel()
	v := &core.View{Node: "self", Session: "T", Trusted: true}
	for i := range 5000 {
		v.Members = append(v.Members, core.Member{Session: core.SessionID(fmt.Sprintf("S%04d", i)), Node: fmt.Sprintf("n%d", i), TTL: time.Second,
			MemberState: core.MemberState{Meta: map[string]string{"about": strings.Repeat("x", 2000)}}})
	}
	v.Members = append(v.Members, core.Member{Session: "T", Node: "self", TTL: 7 * time.Second})
	v.Shards = []core.Ownership{{Shard: "_assigner", Session: "T"}, {Shard: "a", Session: "T"}, {Shard: "b", Aside: "merged"}}
	v.Moves = []core.Event{{At: time.Unix(1, 0), Fence: core.Fence{Shard: "a"}, Kind: core.LeaseEnded,
		Err: fmt.Errorf("x: %w", core.ErrDrainBudget)}}
	p := &painted{}
	p.p.Store(&sharding.Picture{Loads: map[string]float64{"a": 3}})
	h := tenurehttp.Handler(newChanging(v), &tenurehttp.Options{Sharding: p.picture})
	e := follow(t, serve(t, h).URL)(nil)
	last := e.Members[len(e.Members)-1]
	if last.Node != "self" || len(e.Members) < 40 || len(e.Members) > 1000 || e.MemberLoads["T"].Load != 3 || e.Known != 1 ||
		e.Moves[0].Reason != "the handler was asked to stop and did not stop in time" {
		t.Errorf("%d members, the last is %+v with load %v, %d shards, moves %+v", len(e.Members), last, e.MemberLoads["T"], e.Known, e.Moves)
	}
	if v := get[tenurehttp.View](t, h, "/view", 200); !v.MoreMembers || v.Members[len(v.Members)-1].Node != "self" {
		t.Errorf("%d members in the view", len(v.Members))
	}
}

func TestJournal(t *testing.T) {
	t.Parallel()
	j := &tenurehttp.Journal{}
	event := j.Hooks().OnEvent
	for i := range 100 {
		event(core.Event{Kind: core.SessionLapsed, Err: fmt.Errorf("try %d: %w", i, errors.New(strings.Repeat("x", 2000)))})
	}
	event(core.Event{Kind: core.PeerSilent, Peer: core.Member{Node: "n2"}})
	for _, unnoted := range []core.Event{
		{Kind: core.PeerUpdated, Peer: core.Member{Node: "n2"}}, {Kind: core.LeaseEnded, Fence: core.Fence{Shard: "s"}, Err: core.ErrLapsed},
		{Kind: core.RecordDamaged, Err: &core.DamagedError{}}, {Kind: core.EventsDropped, Dropped: 1},
	} {
		event(unnoted)
	}
	v := get[tenurehttp.View](t, tenurehttp.Handler((*fixed)(sample()), &tenurehttp.Options{Journal: j}), "/view", 200)
	if len(v.Notes) != 64 || v.Notes[63].Text != "n2 silent" || !strings.HasPrefix(v.Notes[0].Text, "trust lapsed: try 37: x") {
		t.Errorf("%d notes, from %.40q to %q", len(v.Notes), v.Notes[0].Text, v.Notes[len(v.Notes)-1].Text)
	}
	if n := len(v.Notes[0].Text); n > 1010 {
		t.Errorf("a note of %d bytes", n)
	}
}
