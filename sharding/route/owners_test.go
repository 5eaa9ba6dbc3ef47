package route_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tenure-go/tenure/backends/memory"
	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/internal/keyspace"
	"github.com/tenure-go/tenure/internal/proof/ample"
	"github.com/tenure-go/tenure/sharding"
	"github.com/tenure-go/tenure/sharding/assign"
	"github.com/tenure-go/tenure/sharding/route"
)

type ownerMap struct {
	Version  string
	Full     bool
	Number   int64
	Keyspace *struct {
		Name, Hash string
		Digits     int
	}
	Members map[string]map[string]string
	Shards  []struct {
		Shard string
		Range []string
		Node  string
		Token int64
	}
}

func get(t *testing.T, h http.Handler, method, query string, header ...string) (*httptest.ResponseRecorder, *ownerMap) {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, "/owners"+query, nil)
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	m := new(ownerMap)
	if w.Code == http.StatusOK && w.Body.Len() > 0 && w.Header().Get("Content-Encoding") == "" {
		if err := json.Unmarshal(w.Body.Bytes(), m); err != nil {
			t.Fatalf("%v: %s", err, w.Body)
		}
	}
	return w, m
}

// owners returns a member's handler of the map, once the member knows an owner of each shard.
func (x *ship) owners(o *route.OwnersOptions) http.Handler {
	x.f.Helper()
	r, err := sharding.NewRouter(x.e, x.m)
	if err != nil {
		x.f.Fatal(err)
	}
	h, err := route.NewOwners(x.e, r, o)
	if err != nil {
		x.f.Fatal(err)
	}
	await(x.f.T, "owners of all shards", func() bool {
		_, m := get(x.f.T, h, "GET", "")
		for _, s := range m.Shards {
			if s.Node == "" {
				return false
			}
		}
		return len(m.Shards) == x.f.shards
	})
	return h
}

// TestOwners: the answer contains every range and owner, and only the addresses in the metadata. A
// waiting request is answered after a change, with only that change.
func TestOwners(t *testing.T) {
	t.Parallel()
	f := &fleet{T: t, store: memory.New(), shards: 8}
	a := f.launch("a", "127.0.0.1:0")
	f.even(a)
	h := a.owners(nil)
	w, full := get(t, h, "GET", "")
	if !full.Full || full.Keyspace == nil || full.Keyspace.Name != "orders" || full.Keyspace.Hash != keyspace.HashMixed || full.Keyspace.Digits != 4 ||
		full.Number == 0 || len(full.Members) != 1 || len(full.Members["a"]) != 1 || full.Members["a"]["http"] != "http://"+a.address ||
		strings.Contains(w.Body.String(), "hidden") || w.Header().Get("Cache-Control") != "no-store" {
		t.Errorf("%v %s", w.Header(), w.Body)
	}
	for i, s := range full.Shards {
		if s.Shard != fmt.Sprintf("orders-%04d", i) || s.Range[0] != fmt.Sprintf("0x%016x", uint64(i)<<61) || s.Node != "a" || s.Token == 0 {
			t.Errorf("%+v", s)
		}
	}
	etag := w.Header().Get("ETag")
	if w, _ := get(t, h, "GET", "", "If-None-Match", etag); w.Code != http.StatusNotModified || w.Body.Len() > 0 {
		t.Errorf("with its ETag: %d %s", w.Code, w.Body)
	}
	if w, _ := get(t, h, "GET", "?wait=50ms&after="+full.Version); w.Code != http.StatusNoContent || w.Body.Len() > 0 {
		t.Errorf("with its version: %d %s", w.Code, w.Body)
	}
	for _, other := range []string{"x.0", "x", strings.TrimSuffix(full.Version, "0") + "99999"} {
		if _, m := get(t, h, "GET", "?wait=30s&after="+other); !m.Full || len(m.Shards) != 8 {
			t.Errorf("after the version %s of another process: %+v", other, m)
		}
	}
	type result struct {
		w *httptest.ResponseRecorder
		m *ownerMap
	}
	changes := make(chan result, 3)
	var all sync.WaitGroup
	for range cap(changes) { // one request looks, and the others wait for it
		all.Go(func() {
			w, m := get(t, h, "GET", "?wait=30s&after="+full.Version)
			changes <- result{w, m}
		})
	}
	b := f.launch("b", "127.0.0.1:0")
	all.Wait()
	for range cap(changes) {
		if r := <-changes; r.w.Code != 200 || r.m.Full || r.m.Version == full.Version || len(r.m.Shards) == 8 {
			t.Errorf("what changed: %d %+v", r.w.Code, r.m)
		}
	}
	f.even(a, b)
	// Together, the changes since then result in the current map.
	await(t, "the shares", func() bool {
		_, now := get(t, h, "GET", "")
		_, delta := get(t, h, "GET", "?after="+full.Version)
		if now.Version != delta.Version {
			return false
		}
		at := map[string]string{}
		for _, s := range append(full.Shards, delta.Shards...) {
			at[s.Shard] = fmt.Sprint(s)
		}
		owned := 0
		for _, s := range now.Shards {
			if at[s.Shard] != fmt.Sprint(s) || delta.Full || len(delta.Members) != 2 {
				t.Errorf("%+v, by changes %s", s, at[s.Shard])
			}
			if s.Node == "b" {
				owned++
			}
		}
		return owned == 4
	})
	b.leave(func() {})
	if w, _ := get(t, b.handler(t), "GET", ""); w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") == "" {
		t.Errorf("a member that has stopped: %d %s", w.Code, w.Body)
	}
}

// handler returns a member's handler of the map, even if the member does not know the owners yet.
func (x *ship) handler(t *testing.T) http.Handler {
	t.Helper()
	r, err := sharding.NewRouter(x.e, x.m)
	if err != nil {
		t.Fatal(err)
	}
	h, err := route.NewOwners(x.e, r, nil)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// TestOwnersRefuses: other methods, pages of other sites, callers that Authorize does not allow,
// and invalid queries get no map.
func TestOwnersRefuses(t *testing.T) {
	t.Parallel()
	f := &fleet{T: t, store: memory.New(), shards: 200}
	a := f.launch("a", "127.0.0.1:0")
	h := a.owners(&route.OwnersOptions{AddressKeys: []string{"secret"}})
	for _, c := range []struct {
		method, query string
		header        []string
		status        int
	}{
		{"POST", "", nil, 405}, {"DELETE", "", nil, 405}, {"OPTIONS", "", nil, 405},
		{"GET", "", []string{"Sec-Fetch-Site", "cross-site"}, 403},
		{"GET", "?wait=x", nil, 400}, {"GET", "?wait=-1s", nil, 400}, {"GET", "?wait=99999999999999999999h", nil, 400},
		{"GET", "?after=" + strings.Repeat("x", 81), nil, 400}, {"GET", "?after=a%0Ab", nil, 400}, {"GET", "?after=%22", nil, 400},
		{"GET", "?after=x.-1&wait=1h", nil, 200}, {"GET", "?after=x.99999999999999999999", nil, 200}, {"HEAD", "?wait=1h", nil, 200},
	} {
		w, _ := get(t, h, c.method, c.query, c.header...)
		if w.Code != c.status || c.status != 200 && strings.Contains(w.Body.String(), a.address) {
			t.Errorf("%s %s %v: %d %s", c.method, c.query, c.header, w.Code, w.Body)
		}
	}
	if w, m := get(t, h, "GET", ""); m.Members["a"]["secret"] != "hidden" || len(m.Members["a"]) != 1 {
		t.Errorf("the keys that were named: %s", w.Body)
	}
	guarded := a.owners(&route.OwnersOptions{Authorize: func(r *http.Request) bool { return r.Header.Get("Authorization") != "Bearer bad" }})
	if w, _ := get(t, guarded, "GET", "", "Authorization", "Bearer bad"); w.Code != 403 || strings.Contains(w.Body.String(), "orders-") {
		t.Errorf("not authorized: %d %s", w.Code, w.Body)
	}
	w, _ := get(t, h, "GET", "", "Accept-Encoding", "gzip")
	if plain, _ := get(t, h, "GET", ""); w.Header().Get("Content-Encoding") != "gzip" || w.Body.Len() > plain.Body.Len()/2 {
		t.Errorf("%d bytes of %d, %v", w.Body.Len(), plain.Body.Len(), w.Header())
	}
	for _, o := range []*route.OwnersOptions{{MaxWaiting: -1}, {MaxWaiting: 1 << 30}} {
		if _, err := route.NewOwners(a.e, new(sharding.Router), o); !errors.Is(err, core.ErrInvalid) {
			t.Errorf("%+v: %v", o, err)
		}
	}
	if _, err := route.NewOwners(nil, nil, nil); !errors.Is(err, core.ErrInvalid) {
		t.Error(err)
	}
}

// TestOwnersWaitingIsBounded: requests above the limit are answered immediately. A client that
// disconnects frees its place. A server that shuts down ends all waiting requests.
func TestOwnersWaitingIsBounded(t *testing.T) {
	t.Parallel()
	f := &fleet{T: t, store: memory.New(), shards: 4}
	a := f.launch("a", "127.0.0.1:0")
	f.even(a)
	h := a.owners(&route.OwnersOptions{MaxWaiting: 2})
	_, full := get(t, h, "GET", "")
	s := httptest.NewUnstartedServer(h)
	s.Start()
	defer s.Close()
	ask := func(ctx context.Context) (int, string, error) {
		r, err := http.NewRequestWithContext(ctx, "GET", s.URL+"?wait=24h&after="+full.Version, nil)
		if err != nil {
			return 0, "", err
		}
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			return 0, "", err
		}
		defer resp.Body.Close()
		_, err = io.Copy(io.Discard, resp.Body)
		return resp.StatusCode, resp.Header.Get("Retry-After"), err
	}
	ctx, leave := context.WithCancel(t.Context())
	var ended atomic.Int64
	var all sync.WaitGroup
	for i := range 2 {
		all.Go(func() {
			c := ctx
			if i == 0 {
				c = t.Context()
			}
			code, later, err := ask(c)
			for ; later != "" && err == nil; code, later, err = ask(c) { // the probe below had taken the place
				time.Sleep(time.Millisecond)
			}
			ended.Add(1)
			if i == 0 && (code != http.StatusNoContent || err != nil) {
				t.Errorf("a request that waits as the server shuts down: %d %v", code, err)
			}
		})
	}
	crowded := func() bool {
		limit, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		code, later, err := ask(limit)
		return err == nil && code == http.StatusNoContent && later == "1"
	}
	await(t, "an answer at once, beyond the bound", crowded)
	if n := ended.Load(); n != 0 {
		t.Errorf("%d of 2 requests did not wait", n)
	}
	leave()
	await(t, "a free place", func() bool { return !crowded() })
	began := time.Now()
	limit, cancel := context.WithTimeout(t.Context(), ample.Time)
	defer cancel()
	if err := s.Config.Shutdown(limit); err != nil {
		t.Errorf("shutdown took %v: %v", time.Since(began), err)
	}
	all.Wait()
}

type splitting struct{ armed *atomic.Bool }

func (s splitting) Plan(c *assign.Cluster) *assign.Plan {
	p := assign.Balance{}.Plan(c)
	for i, x := range c.Shards {
		if s.armed.Load() && len(p.Moves) == 0 && !x.Busy && x.Range.To-x.Range.From > 1<<60 {
			at := x.Range.From + (x.Range.To-x.Range.From)/2
			p.Splits, p.Merges = append(p.Splits, assign.Split{Shard: int32(i), At: []uint64{at}}), nil
			break
		}
	}
	return p
}

// TestClientFollowsRanges: after a split, a client's requests go to the shards that got the keys.
func TestClientFollowsRanges(t *testing.T) {
	t.Parallel()
	armed := new(atomic.Bool)
	f := &fleet{T: t, store: memory.New(), shards: 4, assigner: splitting{armed}}
	a := f.launch("a", "127.0.0.1:0")
	f.even(a)
	c := client(t, nil, a)
	known(t, c)
	before := map[string]string{}
	for i := range 100 {
		key := fmt.Sprint(i)
		o, err := c.Owner(key)
		if err != nil {
			t.Fatal(err)
		}
		before[key] = o.Shard
	}
	armed.Store(true)
	f.launch("b", "127.0.0.1:0") // so that a new plan is made
	var moved atomic.Int64
	await(t, "ranges that were split, at the client", func() bool {
		moved.Store(0)
		for key, shard := range before {
			if o, err := c.Owner(key); err == nil && o.Shard != shard {
				moved.Add(1)
			}
		}
		return moved.Load() > 20
	})
	ctx, cancel := context.WithTimeout(t.Context(), ample.Time)
	defer cancel()
	n := uint64(0)
	for key := range before {
		n++
		if err := place(ctx, c, key, n); err != nil {
			t.Errorf("%s: %v", key, err)
		}
	}
	if age, ok := c.Age(); !ok || age < 0 || age > ample.Time {
		t.Errorf("the map is %v old, %v", age, ok)
	}
}
