package tenurehttp_test

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"math"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/core/control"
	"github.com/tenure-go/tenure/effect"
	"github.com/tenure-go/tenure/observe/tenurehttp"
	"github.com/tenure-go/tenure/sharding"
	"github.com/tenure-go/tenure/sharding/assign"
)

func equal(n int, name func(i int) string) iter.Seq2[string, assign.Range] {
	step := math.MaxUint64/uint64(n) + 1
	return func(yield func(string, assign.Range) bool) {
		for i := range n {
			r := assign.Range{From: uint64(i) * step, To: uint64(i+1) * step}
			if i == n-1 {
				r.To = 0
			}
			if !yield(name(i), r) {
				return
			}
		}
	}
}

func named(i int) string { return fmt.Sprintf("orders-%d", i+1) }

type painted struct {
	p     atomic.Pointer[sharding.Picture]
	asked atomic.Int64
}

func (p *painted) picture() sharding.Picture { p.asked.Add(1); return *p.p.Load() }

func TestShares(t *testing.T) {
	t.Parallel()
	source, p := newChanging(sample()), &painted{}
	p.p.Store(&sharding.Picture{Ranges: equal(3, named)})
	h := tenurehttp.Handler(source, &tenurehttp.Options{Sharding: p.picture})
	if n := p.asked.Load(); n != 0 {
		t.Errorf("asked %d times before anybody watched", n)
	}
	s := serve(t, h)
	next := follow(t, s.URL)
	e := next(nil)
	if len(e.Ranges) != 3 || len(e.MemberLoads) != 0 || len(e.Loads) != 0 || e.Ranges[0].Load != nil || e.Ranges[1].Session != "S2" ||
		e.Ranges[2].Session != "" || math.Abs(e.Ranges[2].Part-1.0/3) > 1e-9 ||
		e.Ranges[1].Range != (assign.Range{From: 0x5555555555555556, To: 0xaaaaaaaaaaaaaaac}) {
		t.Errorf("at first: %+v", e)
	}
	p.p.Store(&sharding.Picture{
		Ranges: equal(3, named), Loads: map[string]float64{"orders-1": 10.0004, "orders-2": 0, "elsewhere": 5},
		Capacity: map[core.SessionID]float64{"S1": 20}, Elsewhere: map[string]string{"orders-1": "eu"},
	})
	e = next(func(e event) bool { return len(e.Loads) > 0 })
	if len(e.Loads) != 2 || e.Elsewhere["orders-1"] != "eu" ||
		*e.Loads["orders-1"] != 10 || *e.Loads["orders-2"] != 0 || len(e.Ranges) != 3 || *e.Ranges[0].Load != 10 ||
		e.Ranges[2].Load != nil || e.MemberLoads["S1"] != (tenurehttp.MemberShares{Load: 10, Capacity: 20}) ||
		e.MemberLoads["S2"] != (tenurehttp.MemberShares{}) || len(e.MemberLoads) != 2 {
		t.Errorf("with loads: %+v", e)
	}
	v := get[tenurehttp.View](t, h, "/view", 200)
	if len(v.Ranges) != 3 || v.Shards[0].Elsewhere != "eu" || v.Shards[1].Elsewhere != "" ||
		*v.Shards[0].Load != 10 || *v.Shards[1].Load != 0 || v.Shards[2].Load != nil || v.Members[0].Load.Capacity != 20 {
		t.Errorf("the view: %+v", v)
	}
	v = get[tenurehttp.View](t, tenurehttp.Handler(source, nil), "/view", 200)
	if v.Ranges != nil || v.Members[0].Load != nil || v.Shards[0].Load != nil {
		t.Errorf("the view without Options.Sharding: %+v", v)
	}

	p.p.Store(&sharding.Picture{Ranges: equal(3, named), Loads: map[string]float64{"orders-1": 10.0001, "orders-2": 3}})
	e = next(func(e event) bool { return e.Loads != nil })
	if len(e.Loads) != 1 || e.Elsewhere == nil || len(e.Elsewhere) != 0 ||
		*e.Loads["orders-2"] != 3 || e.MemberLoads["S1"] != (tenurehttp.MemberShares{Load: 10}) {
		t.Errorf("after a change: %+v", e)
	}
	source.change(func(v *core.View) { v.Shards[0].Session, v.Shards[0].Node = "S2", "n2" })
	e = next(func(e event) bool { return e.Ranges != nil })
	if e.Ranges[0].Session != "S2" || e.MemberLoads["S2"].Load != 13 || e.Loads != nil {
		t.Errorf("after a move: %+v", e)
	}
	p.p.Store(&sharding.Picture{Ranges: equal(2, named)})
	e = next(func(e event) bool { return e.Ranges != nil })
	if x, told := e.Loads["orders-1"]; !told || x != nil || len(e.Ranges) != 2 || e.MemberLoads == nil || len(e.MemberLoads) != 0 {
		t.Errorf("when nobody reports load any more: %+v", e)
	}
}

// TestAskedSeldom: even if many boards are open, each source is called once a second. While no
// board is open, sources are not called.
func TestAskedSeldom(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p, c := &painted{}, &counted{}
		p.p.Store(&sharding.Picture{Ranges: equal(3, named)})
		c.c.Store(&effect.Counts{})
		h := tenurehttp.Handler(newChanging(sample()), &tenurehttp.Options{Sharding: p.picture, Effects: c.counts})
		asked := func(d time.Duration, meanwhile func()) [2]int64 {
			a, b := p.asked.Load(), c.asked.Load()
			for range d / (100 * time.Millisecond) {
				time.Sleep(100 * time.Millisecond)
				meanwhile()
			}
			return [2]int64{p.asked.Load() - a, c.asked.Load() - b}
		}
		ctx, leave := context.WithCancel(t.Context())
		var streams sync.WaitGroup
		for range 3 {
			board := &client{ResponseWriter: httptest.NewRecorder(), take: make(chan struct{})}
			close(board.take) // the client takes all messages
			streams.Go(func() { h.ServeHTTP(board, httptest.NewRequestWithContext(ctx, http.MethodGet, "/events", nil)) })
		}
		for _, n := range asked(10*time.Second, func() { get[tenurehttp.View](t, h, "/view", 200) }) {
			if n < 8 || n > 11 {
				t.Errorf("three boards and 100 views had a source asked %d times in 10 s, want once a second", n)
			}
		}
		leave()
		streams.Wait()
		if n := asked(10*time.Second, func() {}); n != [2]int64{} {
			t.Errorf("asked %d times after the last board was closed", n)
		}
	})
}

// TestSharesBounded: despite 100,000 ranges, long names, and numbers that are not loads, a message
// stays short and valid.
func TestSharesBounded(t *testing.T) {
	t.Parallel()
	const many = 100_000
	v := &core.View{Node: "n1", Session: "S0", Trusted: true}
	for i := range 10_000 {
		v.Members = append(v.Members, core.Member{Session: core.SessionID(fmt.Sprintf("S%d", i)), Node: fmt.Sprintf("n%d", i), TTL: time.Second})
	}
	name := func(i int) string { return fmt.Sprintf("%s-%06d", strings.Repeat("x", 120), i) }
	for i := range many {
		m := &v.Members[i*7/many]
		v.Shards = append(v.Shards, core.Ownership{Shard: name(i), Session: m.Session, Node: m.Node, Token: 1})
	}
	loads, zones := make(map[string]float64, many), make(map[string]string, many)
	odd := []float64{math.NaN(), math.Inf(1), math.Inf(-1), -1, math.MaxFloat64, math.MaxFloat64, math.SmallestNonzeroFloat64, 0}
	for i := range many {
		loads[name(i)], zones[name(i)] = odd[i%len(odd)], strings.Repeat("\u202e", 1<<10)
	}
	p := &painted{}
	p.p.Store(&sharding.Picture{Ranges: equal(many, name), Loads: loads, Elsewhere: zones, Capacity: map[core.SessionID]float64{
		"S0": math.NaN(), "S1": math.Inf(1), "S2": -5, "S3": math.MaxFloat64}})
	h := tenurehttp.Handler(newChanging(v), &tenurehttp.Options{Sharding: p.picture})
	e := follow(t, serve(t, h).URL)(nil)
	if len(e.Ranges) == 0 || len(e.Ranges) > 256 || len(e.Elsewhere) > 256 || e.size > 6<<20 || len(e.MemberLoads) > 4096 {
		t.Errorf("%d ranges, %d members with load, %d bytes", len(e.Ranges), len(e.MemberLoads), e.size)
	}
	part, shards := 0.0, 0
	last := assign.Range{}
	for i, r := range e.Ranges {
		part += r.Part
		shards += r.Shards
		if r.Range.From != last.To && i > 0 || r.Owners < 1 || r.Owners > 2 || r.Session == "" || len(r.Shard) > 250 || *r.Load < 0 {
			t.Errorf("range %d is %+v", i, r)
		}
		last = r.Range
	}
	if math.Abs(part-1) > 1e-9 || shards != many || last.To != 0 {
		t.Errorf("the ranges shown are %v of the keyspace, and of %d shards", part, shards)
	}
	for shard, x := range e.Loads {
		if y := loads[shard]; x == nil || !(y >= 0) || math.IsInf(y, 0) {
			t.Fatalf("%s has load %v, which is shown", shard, y)
		}
	}
	for _, session := range []string{"S0", "S1", "S2"} {
		if c := e.MemberLoads[session].Capacity; c != 0 {
			t.Errorf("%s has capacity %v", session, c)
		}
	}
	if got := get[json.RawMessage](t, h, "/view", 200); len(got) > 2<<20 {
		t.Errorf("/view has %d bytes", len(got))
	}
	t.Logf("the first message has %d bytes, of which the ranges are %d", e.size, len(e.Ranges))
}

// TestSharesHostile: unknown shards, missing ranges, and ranges that do not form a map do no harm.
func TestSharesHostile(t *testing.T) {
	t.Parallel()
	for name, ranges := range map[string]iter.Seq2[string, assign.Range]{
		"none":      nil,
		"huge name": equal(300, func(int) string { return strings.Repeat("\u202e</script>", 1<<10) }),
		"no text":   equal(2, func(int) string { return "\xff\x00__proto__" }),
		"empty":     func(yield func(string, assign.Range) bool) { yield("x", assign.Range{From: 1, To: 1}) },
		"backwards": func(yield func(string, assign.Range) bool) {
			for i := range 1000 {
				if !yield("x", assign.Range{From: uint64(1000-i) << 54, To: uint64(1001-i) << 54}) {
					return
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := &painted{}
			p.p.Store(&sharding.Picture{Ranges: ranges, Loads: map[string]float64{"": 1, "__proto__": 2, "orders-1": 3}})
			h := tenurehttp.Handler(newChanging(sample()), &tenurehttp.Options{Sharding: p.picture})
			if e := follow(t, serve(t, h).URL)(nil); len(e.Ranges) > 256 || e.size > 256<<10 || len(e.Loads) != 1 {
				t.Errorf("%d ranges in %d bytes, loads %v", len(e.Ranges), e.size, e.Loads)
			}
			get[json.RawMessage](t, h, "/view", 200)
		})
	}
}

// TestSharesAreNotForOthers: a page of another site cannot make a member read loads.
func TestSharesAreNotForOthers(t *testing.T) {
	t.Parallel()
	p := &painted{}
	p.p.Store(&sharding.Picture{Ranges: equal(3, named)})
	h := tenurehttp.Handler((*fixed)(sample()), &tenurehttp.Options{Sharding: p.picture})
	for _, path := range []string{"/view", "/events", "/healthz", "/leader?shard=orders-1"} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil)
		r.Header.Set("Sec-Fetch-Site", "cross-site")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if n := p.asked.Load(); n != 0 || strings.Contains(w.Body.String(), `"ranges"`) {
			t.Errorf("%s: asked %d times, answered %.200s", path, n, w.Body)
		}
	}
}

// TestRanged: splits and merges become notes, and equal events become one note. The size of a
// rule's text is limited.
func TestRanged(t *testing.T) {
	t.Parallel()
	j := &tenurehttp.Journal{}
	h := tenurehttp.Handler(newChanging(sample()), &tenurehttp.Options{Journal: j})
	next := follow(t, serve(t, h).URL)
	next(nil)
	rule := &control.Rule{Kind: control.Split, Author: "ann", Reason: strings.Repeat("<b>\u202e", 1000)}
	events := []sharding.RangeEvent{
		{From: "orders-0", To: []string{"orders-4", "orders-5"}, Rule: rule},
		{From: "orders-1", To: []string{"orders-2"}, Merge: true, Ended: true},
		{From: "orders-7", To: []string{"orders-7"}, Why: "not taken: no room"},
	}
	for i := range 10_000 {
		events = append(events, sharding.RangeEvent{From: named(i), To: []string{"orders-0"}, Merge: true})
	}
	j.Ranged(events)
	e := next(func(e event) bool { return len(e.Notes) > 0 })
	var got []string
	for _, n := range e.Notes {
		if n.Kind != tenurehttp.NoteRange || len(n.Text) > 1010 {
			t.Errorf("%s: %d bytes", n.Kind, len(n.Text))
		}
		got = append(got, n.Shard+": "+n.Text[:min(len(n.Text), 34)])
	}
	if all := e.Notes[0].Text; !strings.Contains(all, "; orders-2, into orders-0; orders-3, into orders-0; ") ||
		!strings.HasSuffix(all, " more, of other shards") {
		t.Errorf("events that are alike: %q", all)
	}
	want := []string{"orders-1: merge begun by the assigner, into ",
		"orders-1: merge ended, into orders-2", "orders-7: return of a range begun: not taken", "orders-0: split begun by a rule of ann, \"<b>"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
