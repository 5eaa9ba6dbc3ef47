package sharding

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/tenure-go/tenure/backends/memory"
	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/core/control"
	"github.com/tenure-go/tenure/internal/proof/share"
)

func (w *world) rule(make func(*control.Rule) (core.Op, error), r control.Rule) {
	w.Helper()
	b, err := memory.Open(context.Background(), w.store, "test", nil)
	if err != nil {
		w.Fatal(err)
	}
	defer b.Close()
	op, err := make(&r)
	if err != nil {
		w.Fatal(err)
	}
	e, err := core.NewElector(b, &core.Options{Node: "tool", TTL: ttl, LockDir: "none", Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		w.Fatal(err)
	}
	asked, cancel := context.WithCancel(context.Background())
	cancel()
	_ = e.Update(asked, func(st *core.MemberState) { st.Draining = true })
	ctx, stop := context.WithCancel(context.Background())
	if err := e.Contend(func(ctx context.Context, l *core.Lease) error {
		defer stop()
		_, err := l.Commit(ctx, op)
		return err
	}, control.Shard); err != nil {
		w.Fatal(err)
	}
	if err := e.Run(ctx); err != nil {
		w.Fatal(err)
	}
}

// TestOperators: a drained node is empty after one plan, a pinned shard stays on its node after
// deaths, and rules end when they are removed or expire.
func TestOperators(t *testing.T) {
	bubble(t, func(w *world) {
		w.member("a")
		w.member("b")
		w.shares(2*ttl, map[string]int{"a": 15, "b": 15})
		const plan = 5 * interval
		w.rule(control.Put, control.Rule{Kind: control.Stop, Node: "a", Away: 1, Expires: time.Now().Add(time.Hour)})
		time.Sleep(2 * plan) // a reserved place to stop moves no shards
		w.shares(0, map[string]int{"a": 15, "b": 15})
		drain := control.Rule{Kind: control.Drain, Node: "a"}
		w.rule(control.Put, drain)
		w.shares(plan, map[string]int{"b": 30})
		time.Sleep(20 * interval)
		w.shares(0, map[string]int{"b": 30})
		w.rule(control.Remove, drain)
		w.shares(10*interval, map[string]int{"a": 15, "b": 15})

		drain.Expires = time.Now().Add(20 * interval)
		w.rule(control.Put, drain)
		w.shares(plan, map[string]int{"b": 30})
		time.Sleep(time.Until(drain.Expires) - time.Millisecond)
		w.shares(0, map[string]int{"b": 30})
		w.shares(10*interval, map[string]int{"a": 15, "b": 15})

		w.rule(control.Put, control.Rule{Kind: control.Pin, Node: "a", Shards: "orders-0*"})
		w.rule(control.Put, control.Rule{Kind: control.Exclude, Node: "a", Shards: "orders-29"})
		for round := range 5 {
			time.Sleep(20 * interval)
			owners := w.owners()
			for i := range 10 {
				if s := fmt.Sprintf("orders-%02d", i); owners[s] != "a" {
					w.Errorf("round %d: %s is pinned to a, and %q has it", round, s, owners[s])
				}
			}
			if owners["orders-29"] != "b" {
				w.Errorf("round %d: a is not to have orders-29, and %q has it", round, owners["orders-29"])
			}
			last := w.members[len(w.members)-1]
			last.crash()
			w.forget(last.node)
			time.Sleep(4 * ttl)
			w.member(last.node)
		}
	})
}

// forget records that the handlers of a process that died have ended.
func (w *world) forget(node string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for s, h := range w.holders {
		if len(h) == 1 && h[0] == node {
			w.holders[s] = nil
		}
	}
}

// TestFreeze: in a frozen namespace, only shards of members that die or leave move.
func TestFreeze(t *testing.T) {
	bubble(t, func(w *world) {
		w.member("a")
		b := w.member("b")
		w.shares(2*ttl, map[string]int{"a": 15, "b": 15})
		freeze := control.Rule{Kind: control.Freeze}
		w.rule(control.Put, freeze)
		before := w.owners()
		w.member("c")
		w.rule(control.Put, control.Rule{Kind: control.Drain, Node: "a"})
		w.rule(control.Put, control.Rule{Kind: control.Pin, Node: "b", Shards: "*"})
		time.Sleep(50 * interval)
		if n := moved(before, w.owners()); n != 0 {
			w.Errorf("%d shards were moved although the namespace is frozen", n)
		}
		if err := b.leaveNow(); err != nil {
			w.Error(err)
		}
		w.shares(10*interval, map[string]int{"a": 15, "c": 15}) // a is drained, so c gets the shards that b left
		w.rule(control.Remove, freeze)
		w.shares(20*interval, map[string]int{"c": 30})
	})
}

func (w *world) lease(shard string) (node string, token core.Token) {
	o, _ := w.members[0].e.View().Owner(shard)
	return o.Node, o.Token
}

// TestMoveOnce: a shard that a rule moves or resigns changes owners once. In exchange, the new
// owner gives away another shard, and no shard moves back.
func TestMoveOnce(t *testing.T) {
	bubble(t, func(w *world) {
		w.member("a")
		w.member("b")
		w.member("c")
		even := map[string]int{"a": 10, "b": 10, "c": 10}
		w.shares(2*ttl, even)
		w.rule(control.Put, control.Rule{Kind: control.Exclude, Node: "a", Shards: "orders-0*"})
		time.Sleep(20 * interval)
		order := func(r control.Rule, most int, arrived func(from, to string) bool) {
			w.Helper()
			before := w.owners()
			var from string
			from, r.Token = w.lease(r.Shards)
			w.rule(control.Put, r)
			time.Sleep(5 * interval)
			after := w.owners()
			if to := after[r.Shards]; !arrived(from, to) {
				w.Errorf("%s %s: it went from %s to %s", r.Kind, r.Shards, from, to)
			}
			if n := moved(before, after); n > most {
				w.Errorf("%d shards were moved for one", n)
			}
			if got := w.spread(); fmt.Sprint(got) != fmt.Sprint(even) {
				w.Errorf("the shards are shared %v, want %v", got, even)
			}
			time.Sleep(50 * interval)
			if n := moved(after, w.owners()); n != 0 {
				w.Errorf("%d shards were moved after that", n)
			}
		}
		for _, s := range []string{"orders-03", "orders-05", "orders-07"} {
			for _, to := range []string{"b", "c"} {
				order(control.Rule{Kind: control.Move, Shards: s, Node: to}, 2, func(_, now string) bool { return now == to })
			}
			order(control.Rule{Kind: control.Resign, Shards: s}, 2,
				func(from, now string) bool { return now != from && now != "a" && now != "" })
		}
		order(control.Rule{Kind: control.Move, Shards: "orders-08", Node: "nobody"}, 0,
			func(from, now string) bool { return from == now })
	})
}

// TestPinnedThroughDeaths: while random members die 50 times, a pinned shard is on its node
// whenever that node is alive.
func TestPinnedThroughDeaths(t *testing.T) {
	bubble(t, func(w *world) {
		on := map[string]*member{}
		nodes := []string{"a", "b", "c", "d"}
		for _, n := range nodes {
			on[n] = w.member(n)
		}
		time.Sleep(2 * ttl)
		w.rule(control.Put, control.Rule{Kind: control.Pin, Node: "b", Shards: "orders-11"})
		w.rule(control.Put, control.Rule{Kind: control.Drain, Node: "d"})
		r := rand.New(rand.NewPCG(1, 2))
		for death := range share.Of(w, "deaths", 50, 10) {
			time.Sleep(time.Duration(r.IntN(int(3 * ttl))))
			n := nodes[r.IntN(len(nodes))]
			on[n].crash()
			w.forget(n)
			if w.members = slices.DeleteFunc(w.members, func(m *member) bool { return m.gone }); len(w.members) != 3 {
				w.Fatalf("%d members are left", len(w.members))
			}
			time.Sleep(time.Duration(r.IntN(int(3 * ttl))))
			on[n] = w.member(n)
			// The dead member is evicted, the new member joins, and the plan is carried out.
			time.Sleep(3*ttl + 10*interval)
			if node, _ := w.lease("orders-11"); node != "b" {
				w.Errorf("after death %d, of %s, orders-11 is pinned to b, and %q has it", death, n, node)
			}
			if got := w.spread()["d"]; got != 0 {
				w.Errorf("after death %d, of %s, the drained node has %d shards", death, n, got)
			}
		}
	})
}

// TestRangesByRule: as long as an operator's rule exists, it overrides the assigner. A range begins
// where the rule requires it, and no range begins where the rule forbids it.
func TestRangesByRule(t *testing.T) {
	bubble(t, func(w *world) {
		d := &divider{}
		a := keyedMember(w, "a", d, open(nil))
		w.await("the slices", 5*ttl, func() bool { return a.slice("orders-0000") != nil && a.slice("orders-0001") != nil })
		const h, text = 1 << 60, "0x1000000000000000"
		begins := func(h uint64) bool {
			for _, r := range a.Map().All() {
				if r.From == h {
					return true
				}
			}
			return false
		}
		w.rule(control.Put, control.Rule{Kind: control.Split, Hash: text})
		w.await("the split", 5*ttl, func() bool { return begins(h) && a.slice("orders-0002") != nil })
		d.ask(nil, map[string]string{"orders-0002": "orders-0000"})
		time.Sleep(5 * ttl)
		if !begins(h) || a.slice("orders-0002") == nil {
			w.Error("the assigner merged what an operator split")
		}
		d.ask(map[string][]uint64{"orders-0001": {3 << 62}}, nil)
		w.rule(control.Put, control.Rule{Kind: control.Merge, Hash: "0xc000000000000000"})
		time.Sleep(3 * ttl)
		d.ask(map[string][]uint64{"orders-0001": {3 << 62}}, nil)
		w.await("the assigner's split, or its merge again", 5*ttl, func() bool { return !begins(3 << 62) })
		w.rule(control.Put, control.Rule{Kind: control.Merge, Hash: text}) // instead of the split
		w.await("the merge", 5*ttl, func() bool { return !begins(h) && a.slice("orders-0002") == nil })
		if at, _ := a.e.View().Owner("orders-0002"); at.Aside == "" {
			w.Error("the shard that ended is not set aside")
		}
	})
}
