package tenurehttp_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/tenure-go/tenure/backends/memory"
	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/internal/proof/ample"
	"github.com/tenure-go/tenure/observe/tenurehttp"
)

type fixed core.View

func (f *fixed) View() *core.View { return (*core.View)(f) }

func get[T any](t *testing.T, h http.Handler, path string, want int) T {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
	if w.Code != want {
		t.Fatalf("%s: status %d, want %d: %s", path, w.Code, want, w.Body)
	}
	var body T
	if err := json.Unmarshal(w.Body.Bytes(), &body); err != nil {
		t.Fatalf("%s: %v: %s", path, err, w.Body)
	}
	return body
}

func sample() *core.View {
	own := core.Fence{Shard: "orders-1", Session: "S1", Token: 7}
	return &core.View{
		Node: "n1", Session: "S1", Trusted: true, Contended: 3,
		Members: []core.Member{{Session: "S1", Node: "n1", TTL: 10 * time.Second}, {Session: "S2", Node: "n2", TTL: 10 * time.Second, MemberState: core.MemberState{Meta: map[string]string{"addr": "n2:80"}}}},
		Shards: []core.Ownership{
			{Shard: "orders-1", Session: "S1", Token: 7, Node: "n1"},
			{Shard: "orders-2", Session: "S2", Token: 8, Node: "n2"},
			{Shard: "orders-3", Session: "S0", Token: 3},
		},
		Leases: []core.LeaseInfo{{Fence: own, State: core.LeaseHeld, Since: time.Unix(1000, 0)}},
		Moves: []core.Event{
			{Fence: core.Fence{Shard: "orders-2", Session: "S1", Token: 5}, Kind: core.LeaseEnded, Err: core.ErrLapsed},
			{Fence: own, Kind: core.LeaseGranted},
		},
	}
}

func TestLeader(t *testing.T) {
	t.Parallel()
	v := sample()
	h := tenurehttp.Handler((*fixed)(v), nil)
	want := tenurehttp.LeaderOf(true, tenurehttp.Shard{Shard: "orders-1", Node: "n1", Session: "S1", Token: 7})
	if got := get[tenurehttp.Leader](t, h, "/leader?shard=orders-1", 200); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	want = tenurehttp.LeaderOf(false, tenurehttp.Shard{Shard: "orders-2", Node: "n2", Session: "S2", Token: 8})
	if got := get[tenurehttp.Leader](t, h, "/leader?shard=orders-2", 503); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if got := get[tenurehttp.Leader](t, h, "/leader?shard=orders-3", 503); got.Node != "" {
		t.Errorf("nobody lives who owns it: %+v", got)
	}
	get[tenurehttp.Problem](t, h, "/leader?shard=orders-4", 404)
	get[tenurehttp.Problem](t, h, "/leader", 400)
	get[tenurehttp.Problem](t, h, "/leader?shard=a/b", 400)

	for _, state := range []core.LeaseState{core.LeaseDraining, core.LeaseRevoked, core.LeaseStuck, core.LeaseReturned} {
		v.Leases[0].State = state
		get[tenurehttp.Leader](t, h, "/leader?shard=orders-1", 503)
	}
	v.Leases[0].State = core.LeaseHeld
	v.Trusted = false
	get[tenurehttp.Leader](t, h, "/leader?shard=orders-1", 503)
}

func TestHealth(t *testing.T) {
	t.Parallel()
	v := sample()
	h := tenurehttp.Handler((*fixed)(v), nil)
	get[tenurehttp.Status](t, h, "/healthz", 200)
	get[tenurehttp.Status](t, h, "/readyz", 200)
	v.Leases[0].State = core.LeaseStuck
	if s := get[tenurehttp.Status](t, h, "/healthz", 503); s.OK || len(s.Reasons) != 1 {
		t.Errorf("got %+v", s)
	}
	get[tenurehttp.Status](t, h, "/livez", 503)
	v.Trusted = false // an outage alone makes a member unready only with NeedsStore
	if s := get[tenurehttp.Status](t, h, "/readyz", 200); !s.OK || len(s.Reasons) != 1 {
		t.Errorf("got %+v", s)
	}
	get[tenurehttp.Status](t, tenurehttp.Handler((*fixed)(v), &tenurehttp.Options{NeedsStore: true}), "/readyz", 503)
	v.Session = ""
	get[tenurehttp.Status](t, h, "/readyz", 503)
	v.Session, v.Trusted = "S1", true
	v.Members[0].Draining = true
	get[tenurehttp.Status](t, h, "/readyz", 503)
	v.Members[0].Draining, v.Ineligible = false, "ill"
	if s := get[tenurehttp.Status](t, h, "/readyz", 200); !s.OK || len(s.Reasons) != 1 || !strings.Contains(s.Reasons[0], "ill") {
		t.Errorf("got %+v", s)
	}
	v.Ineligible, v.Leaving = "", true
	get[tenurehttp.Status](t, h, "/readyz", 503)
	v.Leaving = false
	get[tenurehttp.Status](t, h, "/readyz", 200)
	v.Trusted, v.Err = true, core.ErrStoreChanged
	if s := get[tenurehttp.Status](t, h, "/readyz", 503); len(s.Reasons) != 1 {
		t.Errorf("got %+v", s)
	}
	v.Err, v.Stopped = nil, true
	get[tenurehttp.Status](t, h, "/readyz", 503)
	*v = core.View{Node: "n1"}
	get[tenurehttp.Status](t, h, "/readyz", 503)
}

func TestView(t *testing.T) {
	t.Parallel()
	v := sample()
	h := tenurehttp.Handler((*fixed)(v), &tenurehttp.Options{MaxShards: 2})
	got := get[tenurehttp.View](t, h, "/view", 200)
	if len(got.Members) != 2 || got.Members[1].Meta["addr"] != "n2:80" || got.Members[0].TTL != "10s" ||
		len(got.Shards) != 2 || !got.More || got.Unowned != 1 || len(got.Leases) != 1 || got.Leases[0].State != "held" {
		t.Errorf("got %+v", got)
	}
	if len(got.LastMoves) != 2 || got.LastMoves[0].Reason != core.ErrLapsed.Error() || got.LastMoves[0].Kind != "revoked" {
		t.Errorf("got moves %+v", got.LastMoves)
	}
	got = get[tenurehttp.View](t, h, "/view?after=orders-2", 200)
	if len(got.Shards) != 1 || got.Shards[0].Shard != "orders-3" || got.More {
		t.Errorf("got %+v", got.Shards)
	}
	got = get[tenurehttp.View](t, h, "/view?shard=orders-2", 200)
	if len(got.Shards) != 1 || got.Shards[0].Node != "n2" || len(got.Leases) != 0 || len(v.Shards) != 3 {
		t.Errorf("got %+v", got)
	}
	v.Ineligible = "ill"
	v.Members[1].Meta["_ineligible"] = "late"
	got = get[tenurehttp.View](t, h, "/view", 200)
	if m := got.Members[1]; got.Ineligible != "ill" || m.Ineligible != "late" || len(m.Meta) != 1 || len(v.Members[1].Meta) != 2 {
		t.Errorf("got %+v", got)
	}
	get[tenurehttp.Problem](t, h, "/view?limit=3", 400)
	get[tenurehttp.Problem](t, h, "/view?limit=x", 400)
}

// TestBounded: regardless of the namespace, no answer exceeds the size in the package comment, or
// costs more memory than the data that it shows. The test measures the process's allocations, so no
// other test runs at the same time.
func TestBounded(t *testing.T) {
	const many = 20_000
	long := strings.Repeat("n", 128)
	v := &core.View{Node: "n1", Session: "S1", Trusted: true, Contended: many, Err: errors.New(strings.Repeat("\x00", 1<<20))}
	for i := range many {
		name := fmt.Sprintf("%s%06d", long[:122], i)
		v.Shards = append(v.Shards, core.Ownership{Shard: name, Session: "S1", Token: core.Token(math.MaxInt64 - many + i), Node: long})
		v.Leases = append(v.Leases, core.LeaseInfo{Fence: core.Fence{Shard: core.ShardID(name), Session: "S1", Token: 7}, State: core.LeaseStuck, Since: time.Now()})
		v.Members = append(v.Members, core.Member{Session: core.SessionID(long[:64]), Node: long, TTL: time.Second,
			MemberState: core.MemberState{Meta: map[string]string{"a": strings.Repeat("\x00", 2000)}}})
	}
	for range 64 {
		v.Moves = append(v.Moves, core.Event{Fence: v.Leases[0].Fence, Kind: core.HandlerReturned, Err: v.Err})
	}
	h := tenurehttp.Handler((*fixed)(v), &tenurehttp.Options{MaxShards: many})
	for _, path := range []string{"/view", "/view?limit=1000", "/view?limit=100000", "/view?after=n", "/view?shard=" + v.Shards[many/2].Shard, "/healthz", "/readyz", "/leader?shard=" + v.Shards[7].Shard} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
		if w.Body.Len() > 2<<20 {
			t.Errorf("%.40s: an answer of %d bytes", path, w.Body.Len())
		}
	}
	got := get[tenurehttp.View](t, h, "/view", 200)
	if !got.More || !got.MoreMembers || len(got.Members) == 0 || len(got.Shards) != 1000 || got.Unowned != many {
		t.Errorf("got %d members, %d shards, more %v, %v, %d unowned", len(got.Members), len(got.Shards), got.More, got.MoreMembers, got.Unowned)
	}
	v.Leases, v.Moves, v.Err = nil, nil, nil
	v.Members = v.Members[:1]
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	one := get[tenurehttp.View](t, h, "/view?shard="+v.Shards[many/2].Shard, 200)
	runtime.ReadMemStats(&after)
	if allocated := after.TotalAlloc - before.TotalAlloc; len(one.Shards) != 1 || allocated > 512<<10 {
		t.Errorf("showing %d shard of %d allocated %d bytes", len(one.Shards), many, allocated)
	}
}

func TestReadOnly(t *testing.T) {
	t.Parallel()
	h := tenurehttp.Handler((*fixed)(sample()), nil)
	for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodDelete, http.MethodPatch} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), method, "/view", nil))
		if w.Code != http.StatusMethodNotAllowed || w.Header().Get("Allow") == "" {
			t.Errorf("%s: status %d", method, w.Code)
		}
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/debug/pprof", nil))
	if w.Code != http.StatusNotFound {
		t.Errorf("a path that is not there: %d", w.Code)
	}
}

// TestElector requests /leader from the handlers of two real Electors.
func TestElector(t *testing.T) {
	t.Parallel()
	store := memory.New()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var handlers []http.Handler
	ended := make(chan error)
	for i := range 2 {
		b, err := memory.Open(ctx, store, "web", nil)
		if err != nil {
			t.Fatal(err)
		}
		e, err := core.NewElector(b, &core.Options{Node: fmt.Sprint("n", i), TTL: 5 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		if err := e.Contend(func(ctx context.Context, _ *core.Lease) error { <-ctx.Done(); return nil }, "only"); err != nil {
			t.Fatal(err)
		}
		handlers = append(handlers, tenurehttp.Handler(e, nil))
		go func() { ended <- errors.Join(e.Run(ctx), b.Close()) }()
	}
	leaders := func() (n int) {
		for _, h := range handlers {
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/leader?shard=only", nil))
			if w.Code == 200 {
				n++
			}
		}
		return n
	}
	ample.Wait(t, "nobody leads", func() bool { return leaders() == 1 })
	cancel()
	for range handlers {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	if n := leaders(); n != 0 {
		t.Errorf("%d lead after the end", n)
	}
}
