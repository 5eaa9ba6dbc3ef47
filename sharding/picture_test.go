package sharding

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/core/control"
	"github.com/tenure-go/tenure/internal/proof/kvfault"
	"github.com/tenure-go/tenure/sharding/assign"
)

// On every member, an open board shows all loads and ranges at the cost of a few reads per second.
// Without load, or without a viewer, no member reads.
func TestPicture(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: .ci/run runs it")
	}
	bubble(t, func(w *world) {
		rate := 0.0
		var mu sync.Mutex
		l := newLoaded(w, 3, 6, 60, func(int) float64 { mu.Lock(); defer mu.Unlock(); return rate })
		defer l.end()
		watched := func(m *member, during time.Duration) (p Picture, calls int) {
			calls = -m.link.Count(kvfault.All)
			for end := time.Now().Add(during); time.Now().Before(end); time.Sleep(interval / 20) {
				p = m.Picture()
			}
			return p, calls + m.link.Count(kvfault.All)
		}
		quiet := func(m *member, during time.Duration) int {
			calls := -m.link.Count(kvfault.All)
			time.Sleep(during)
			return calls + m.link.Count(kvfault.All)
		}
		for _, m := range w.members {
			before := quiet(m, time.Minute)
			p, calls := watched(m, time.Minute)
			if len(p.Loads) > 0 || len(p.Capacity) > 0 || calls > before+before/20+1 {
				w.Errorf("%s without load: %+v, %d calls, %d when nobody watches", m.node, p, calls, before)
			}
		}
		mu.Lock()
		rate = 2
		mu.Unlock()
		time.Sleep(time.Minute)
		for _, m := range w.members {
			if p := m.Picture(); len(p.Loads) > 0 && !m.reads.Load() {
				w.Errorf("%s, where nobody watched: %v", m.node, p.Loads)
			}
			before := quiet(m, time.Minute)
			p, calls := watched(m, time.Minute)
			sum, ranges := 0.0, 0
			for shard, r := range p.Ranges {
				ranges++
				if x, known := p.Loads[shard]; r.Empty() || !known || x < 0 {
					w.Errorf("%s: %s has %v and load %v", m.node, shard, r, x)
				}
			}
			for _, x := range p.Loads {
				sum += x
			}
			if sum < 108 || sum > 132 || ranges != m.Map().Len() {
				w.Errorf("%s: %d ranges, and load %v, want about 120: %v", m.node, ranges, sum, p.Loads)
			}
			most := before + int(time.Minute/interval)*len(w.members) + 20
			if m.reads.Load() {
				most = before + before/20 + 1 // the assigner has read them
			}
			if calls > most {
				w.Errorf("%s: %d calls in a minute, %d when nobody watches", m.node, calls, before)
			}
			w.Logf("%s: %d calls in a minute of fake time, %d when nobody watches; it plans: %v", m.node, calls, before, m.reads.Load())
		}
		time.Sleep(time.Minute)
		for _, m := range w.members {
			if p := m.Picture(); len(p.Loads) > 0 && !m.reads.Load() {
				w.Errorf("%s shows loads of a minute ago: %v", m.node, p.Loads)
			}
		}
	})
}

// The capacity of members that report load is shown, if it is a number.
func TestPictureCapacity(t *testing.T) {
	bubble(t, func(w *world) {
		m := w.member("a", func(_ *member, o *Options) { o.Capacity = 40 })
		w.shares(5*ttl, map[string]int{"a": 30})
		for range 20 {
			m.Add("orders-00", 5)
			time.Sleep(interval)
		}
		session := m.e.View().Session
		m.Picture()
		time.Sleep(2 * interval)
		if p := m.Picture(); p.Capacity[session] != 40 || p.Loads["orders-00"] <= 0 {
			w.Errorf("got %+v", p)
		}
		for p := range m.Picture().Ranges {
			w.Errorf("%s has a range, and there is no keyspace", p)
		}
		for _, text := range []string{"NaN", "+Inf", "-1", "1e999", "", "<script>"} {
			for said := false; !said; { // until the member has not reported its own load in between
				if err := m.e.Update(w.Context(), func(st *core.MemberState) { st.Meta = map[string]string{metaKey: text} }); err != nil {
					w.Fatal(err)
				}
				p := m.Picture()
				self, _ := m.e.View().Member(session)
				if said = self.Meta[metaKey] == text; said && len(p.Capacity) != 0 {
					w.Errorf("the capacity %q is read as %v", text, p.Capacity)
				}
			}
		}
	})
}

// On all members, each split and merge is reported once when it begins, with its rule, and once
// when it ends. Changes from before a member's start are not reported.
func TestOnRange(t *testing.T) {
	bubble(t, func(w *world) {
		var mu sync.Mutex
		told := map[string][]string{}
		d := &divider{}
		join := func(node string) {
			w.member(node, func(m *member, o *Options) {
				o.Shards, o.Keyspace, o.Assigner, o.Logger = nil, Keyspace{Name: "orders", Shards: 2}, d, nil
				o.Loads = func(context.Context) (map[string]float64, error) { return nil, nil } // the assigner plans in each interval
				o.OnRange = func(events []RangeEvent) {
					mu.Lock()
					defer mu.Unlock()
					for _, e := range events {
						told[node] = append(told[node], fmt.Sprintf("%s %v, into %s", e.From, e, strings.Join(e.To, ", ")))
					}
				}
				m.handler = func(ctx context.Context, l *core.Lease) error { return open(nil)(m, ctx, l) }
			})
		}
		join("a")
		time.Sleep(3 * ttl)
		join("b")
		time.Sleep(3 * ttl)
		w.rule(control.Put, control.Rule{Kind: control.Split, Hash: "0x1000000000000000", Author: "ann", Reason: "hot"})
		time.Sleep(5 * ttl)
		w.rule(control.Put, control.Rule{Kind: control.Merge, Hash: "0x1000000000000000", Author: "ann", Reason: "cold"})
		time.Sleep(5 * ttl)
		d.ask(map[string][]uint64{"orders-0001": {3 << 62}}, nil)
		time.Sleep(5 * ttl)
		join("c")
		time.Sleep(5 * ttl)
		d.ask(nil, map[string]string{"orders-0001": "orders-0003"})
		time.Sleep(5 * ttl)
		want := []string{
			`orders-0000 split begun by a rule of ann, "hot", into orders-0002`, "orders-0000 split ended, into orders-0002",
			`orders-0002 merge begun by a rule of ann, "cold", into orders-0000`, "orders-0002 merge ended, into orders-0000",
			"orders-0001 split begun by the assigner, into orders-0003", "orders-0001 split ended, into orders-0003",
			"orders-0001 merge begun by the assigner, into orders-0003", "orders-0001 merge ended, into orders-0003",
		}
		mu.Lock()
		defer mu.Unlock()
		for node, n := range map[string]int{"a": 0, "b": 0, "c": 6} {
			if !slices.Equal(told[node], want[n:]) {
				w.Errorf("%s was told\n%s\nwant\n%s", node, strings.Join(told[node], "\n"), strings.Join(want[n:], "\n"))
			}
		}
	})
}

// Changes that no valid plan can contain, as in a log that was tampered with, are also reported.
func TestRangeEventOfHostileLog(t *testing.T) {
	t.Parallel()
	before := &assignments{names: []string{"x"}}
	for _, c := range []rangeChange{{From: "x"}, {From: "x", Rest: empty}, {From: "x", Rest: empty, Gifts: make([]gift, 3)}} {
		if r := ruleOf(before, c, []control.Rule{{Kind: control.Merge, Hash: "nonsense"}, {Kind: control.Split, Hash: ""}}); r != nil {
			t.Errorf("%+v is asked for by %+v", c, r)
		}
		_ = fmt.Sprint(RangeEvent{From: c.From, To: named(c.Gifts), Merge: c.Rest.Empty()})
	}
}

// A picture names the shards whose owner is outside the shard's preferred zone.
func TestPictureElsewhere(t *testing.T) {
	bubble(t, func(w *world) {
		change := func(_ *member, o *Options) {
			o.ZoneKey = "version" // which these members have
			o.Assigner = assign.Balance{Rules: assign.Rules{Prefer: map[string]string{"orders-0*": "eu", "orders-1*": "us"}}}
		}
		w.member("a", change, func(m *member, _ *Options) { m.version = "eu" })
		w.shares(2*ttl, map[string]int{"a": 30})
		p := w.members[0].Picture()
		if len(p.Elsewhere) != 10 || p.Elsewhere["orders-12"] != "us" {
			w.Errorf("got %v, want the 10 shards that prefer zone us", p.Elsewhere)
		}
		w.member("b", change, func(m *member, _ *Options) { m.version = "us" })
		w.shares(5*ttl, map[string]int{"a": 15, "b": 15})
		if p := w.members[0].Picture(); len(p.Elsewhere) > 0 {
			w.Errorf("got %v, want none", p.Elsewhere)
		}
	})
}
