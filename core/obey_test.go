package core

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenure-go/tenure/core/control"
	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/proof/kvfault"
)

// rule writes or removes an operator's rule, as the command tenure does.
func (w *world) rule(build func(*control.Rule) (Op, error), r control.Rule) {
	w.Helper()
	op, err := build(&r)
	w.must(err)
	w.writeRules(op)
}

func (w *world) writeRules(ops ...Op) {
	w.Helper()
	tool := w.newMember("tool")
	asked, cancel := context.WithCancel(context.Background())
	cancel()
	_ = tool.Update(asked, func(st *MemberState) { st.Draining = true })
	ctx, done := context.WithCancel(context.Background())
	// done is not called when the handler returns. Otherwise, the lease could be handed over to the
	// only other member, which is a further change. Writer of internal/operator does the same.
	onEvent(tool.o, func(Event) { done() }, leaseOutcomes[:]...)
	tool.note.h = tool.o.Hooks
	w.must(tool.Contend(func(ctx context.Context, l *Lease) error {
		_, err := l.Commit(ctx, ops...)
		return err
	}, control.Shard))
	w.must(tool.Run(ctx))
	w.must(tool.tap.Backend.Close())
}

func (h *leases) last() *Lease {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.all) == 0 {
		return nil
	}
	return h.all[len(h.all)-1]
}

// cluster has members that contend for the same shards.
type cluster struct {
	w     *world
	nodes []string
	on    map[string]*member
	h     map[string]*leases
}

func (w *world) cluster(shards []string, nodes ...string) *cluster {
	c := &cluster{w: w, nodes: nodes, on: map[string]*member{}, h: map[string]*leases{}}
	for _, n := range nodes {
		c.h[n], c.on[n] = &leases{}, w.member(n)
		w.must(c.on[n].Contend(c.h[n].hold, shards...))
		w.eventually("member "+n, func() bool { return c.on[n].View().Session != "" })
	}
	return c
}

// owner returns the node that serves the shard.
func (c *cluster) owner(shard string) (node string, l *Lease) {
	for _, n := range c.nodes {
		h := c.h[n]
		h.mu.Lock()
		for _, x := range h.all {
			if x.Shard() == shard && x.Err() == nil && (l == nil || x.Token() > l.Token()) {
				node, l = n, x
			}
		}
		h.mu.Unlock()
	}
	return node, l
}

func (c *cluster) isWith(shard, node string) {
	c.w.Helper()
	c.w.eventually(shard+" with "+node, func() bool { n, _ := c.owner(shard); return n == node })
}

// unmoved checks that no lease is granted while rules are written, and for some time afterwards.
func (c *cluster) unmoved(rules ...control.Rule) {
	c.w.Helper()
	count := func() (n int) {
		for _, h := range c.h {
			n += h.count()
		}
		return n
	}
	synctest.Wait()
	before := count()
	for _, r := range rules {
		c.w.rule(control.Put, r)
	}
	time.Sleep(10 * ttl)
	if n := count(); n != before {
		c.w.Errorf("%+v: %d leases were granted although nothing was to move", rules, n-before)
	}
}

// TestMoveAndResign: an Elector without an assigner gives up the lease that the rule names, to the
// named node or to another node. It does not give up a later lease.
func TestMoveAndResign(t *testing.T) {
	bubble(t, func(w *world) {
		c := w.cluster([]string{"s", "t"}, "a", "b", "c")
		for range 3 {
			for _, to := range c.nodes {
				from, l := c.owner("s")
				if to == from {
					continue
				}
				w.rule(control.Put, control.Rule{Kind: control.Move, Shards: "s", Node: to, Token: l.Token(), Author: "me", Reason: "why"})
				c.isWith("s", to)
				if err := l.Err(); !errors.Is(err, ErrReleased) {
					w.Errorf("the lease that was moved ended with %v", err)
				}
			}
			from, l := c.owner("s")
			w.rule(control.Put, control.Rule{Kind: control.Resign, Shards: "s", Token: l.Token()})
			w.eventually("a successor", func() bool { n, _ := c.owner("s"); return n != "" })
			if to, _ := c.owner("s"); to == from {
				w.Errorf("%s has the shard that it was to resign", to)
			}
		}
		c.unmoved()
		_, l := c.owner("t")
		for _, spent := range []control.Rule{
			{Kind: control.Move, Shards: "t", Node: "a", Token: l.Token() - 1},
			{Kind: control.Resign, Shards: "t", Token: l.Token() + 1},
			{Kind: control.Resign, Shards: "t", Token: l.Token(), Expires: time.Now().Add(-time.Second)},
			{Kind: control.Move, Shards: "t", Node: "nobody", Token: l.Token()},
			{Kind: control.Drain, Node: "nobody"},
		} {
			c.unmoved(spent)
		}
	})
}

// TestSlowSuccessor: a shard that a rule makes its owner give up goes to another member, even if
// that member claims it late.
func TestSlowSuccessor(t *testing.T) {
	// The order of turns after a release is random. If the former leader does not wait, it is
	// therefore early in some rounds.
	for i := range 20 {
		kind := []control.Kind{control.Resign, control.Drain}[i%2]
		t.Run(string(kind), func(t *testing.T) {
			bubble(t, func(w *world) {
				c := w.cluster([]string{"s"}, "a", "b")
				w.member("c") // contends for no shard
				c.isWith("s", "a")
				_, l := c.owner("s")
				r := control.Rule{Kind: kind, Shards: "s", Token: l.Token()}
				if kind == control.Drain {
					r = control.Rule{Kind: kind, Node: "a"}
				}
				c.on["b"].link.Set(kvfault.Write, kvfault.Fail)
				w.rule(control.Put, r)
				w.eventually("the end of the lease", func() bool { return l.Err() != nil })
				time.Sleep(ttl / 4)
				c.on["b"].link.Heal()
				c.isWith("s", "b")
				c.unmoved()
			})
		})
	}
}

// TestMoveWaits: a move to a node without a member happens once the node has a member.
func TestMoveWaits(t *testing.T) {
	bubble(t, func(w *world) {
		c := w.cluster([]string{"s"}, "a", "b")
		_, l := c.owner("s")
		c.unmoved(control.Rule{Kind: control.Move, Shards: "s", Node: "c", Token: l.Token()})
		late := w.member("c")
		c.nodes, c.on["c"], c.h["c"] = append(c.nodes, "c"), late, &leases{}
		w.must(late.Contend(c.h["c"].hold, "s"))
		c.isWith("s", "c")
	})
}

// TestDrainedElector: a drained node gives up all its shards, except those that no other member
// takes. As the last member, it serves the shards that come back.
func TestDrainedElector(t *testing.T) {
	bubble(t, func(w *world) {
		c := w.cluster(shardNames(10), "a", "b")
		var own leases
		w.must(c.on["a"].Contend(own.hold, "only-a"))
		own.await(w, 1)
		drain := control.Rule{Kind: control.Drain, Node: "a"}
		w.rule(control.Put, drain)
		for _, s := range shardNames(10) {
			c.isWith(s, "b")
		}
		w.eventually("what nobody else takes", func() bool { l := own.last(); return l.Err() == nil && own.count() == 2 })
		time.Sleep(10 * ttl)
		if n := own.count(); n != 2 {
			w.Errorf("a shard that nobody else takes was given up %d times", n-1)
		}
		c.unmoved()
		c.on["b"].link.Cut()
		for _, s := range shardNames(10) {
			c.isWith(s, "a")
		}
		c.on["b"].link.Heal()
		for _, s := range shardNames(10) {
			c.isWith(s, "b")
		}
		c.unmoved(control.Rule{Kind: control.Freeze})
		w.rule(control.Remove, drain)
		c.unmoved(control.Rule{Kind: control.Drain, Node: "b"})
	})
}

// TestRulesYieldToCallers: Withdraw and the end of Run work while a rule makes a handler stop.
func TestRulesYieldToCallers(t *testing.T) {
	bubble(t, func(w *world) {
		m := w.member("a")
		slow := func(ctx context.Context, _ *Lease) error { <-ctx.Done(); time.Sleep(ttl); return nil }
		w.must(m.Contend(slow, "s", "u"))
		w.eventually("leases", func() bool { return len(m.View().Leases) == 2 })
		for _, l := range m.View().Leases {
			w.rule(control.Put, control.Rule{Kind: control.Resign, Shards: string(l.Fence.Shard), Token: l.Fence.Token})
		}
		w.eventually("asked to stop", func() bool {
			v := m.View()
			return v.Leases[0].State == LeaseDraining && v.Leases[1].State == LeaseDraining
		})
		if err := m.Contend(slow, "s"); !errors.Is(err, ErrContended) {
			w.Errorf("contended for twice: %v", err)
		}
		w.must(m.Withdraw(w.Context(), "s"))
		time.Sleep(5 * ttl)
		v := m.View()
		if grants := m.said("grant s"); len(grants) != 1 || len(v.Leases) != 1 || v.Leases[0].Fence.Shard != "u" || v.Contended != 1 {
			w.Errorf("got the leases %+v, and %d contended, want u alone; granted: %q", v.Leases, v.Contended, grants)
		}
	})
}

// TestRulesCostNothing: rules are read once for each change, regardless of the number of shards.
func TestRulesCostNothing(t *testing.T) {
	bubble(t, func(w *world) {
		m := w.newMember("a")
		reads := 0
		m.o.Hooks.OnCall = func(c Call) {
			if c.Kind == callList {
				reads++
			}
		}
		m.note.h = m.o.Hooks
		m.run()
		var h leases
		w.must(m.Contend(h.hold, shardNames(100)...))
		h.await(w, 100)
		time.Sleep(100 * ttl)
		synctest.Wait()
		if reads != 0 {
			w.Errorf("%d reads in a namespace without rules", reads)
		}
		for n := range 3 {
			w.rule(control.Put, control.Rule{Kind: control.Drain, Node: "nobody"})
			time.Sleep(100 * ttl)
			synctest.Wait()
			// A change is a claim and a release, and a read may see both.
			if reads < n+1 || reads > 2*(n+1) {
				w.Errorf("%d reads after %d changes", reads, n+1)
			}
		}
		// A tool that died while it held its lease may have written after its record was seen.
		b := w.newMember("tool")
		s, err := b.tap.Join(w.Context(), driver.Member{Session: "dead", Node: "tool", TTL: ttl})
		w.must(err)
		before := m.View()
		o, _ := before.Owner(control.Shard)
		got, err := s.Acquire(w.Context(), []driver.Claim{{Shard: control.Shard, Seen: driver.Owner{Token: o.Token}}})
		if err != nil || got[0].Err != nil {
			w.Fatal(err, got)
		}
		time.Sleep(5 * ttl)
		op, err := control.Put(&control.Rule{Kind: control.Resign, Shards: "shard-00000", Token: m.View().Leases[0].Fence.Token})
		w.must(err)
		res, err := s.Commit(w.Context(), []driver.Write{{Fence: got[0].Fence, Number: got[0].Head.Number + 1, Nonce: newNonce(), Ops: []Op{op}}})
		if err != nil || res[0].Err != nil {
			w.Fatal(err, res)
		}
		w.eventually("the rule of a tool that died", func() bool { return h.count() == 101 })
		w.must(b.tap.Backend.Close())
	})
}

// TestRulesOfADeadTool: if a tool died before it released its lease, its rule is obeyed as soon as
// its session has ended. Every View then contains the rule.
func TestRulesOfADeadTool(t *testing.T) {
	bubble(t, func(w *world) {
		m := w.member("a")
		var h leases
		w.must(m.Contend(h.hold, "s"))
		l := h.await(w, 1)
		if rules := m.View().Rules; rules == nil || len(rules) > 0 {
			w.Errorf("the rules of a namespace without any are %v, want none", rules)
		}
		b := w.newMember("tool")
		s, err := b.tap.Join(w.Context(), driver.Member{Session: "dead", Node: "tool", TTL: ttl})
		w.must(err)
		got, err := s.Acquire(w.Context(), []driver.Claim{{Shard: control.Shard}})
		if err != nil || got[0].Err != nil {
			w.Fatal(err, got)
		}
		time.Sleep(ttl / 2)
		op, err := control.Put(&control.Rule{Kind: control.Resign, Shards: "s", Token: l.Token()})
		w.must(err)
		res, err := s.Commit(w.Context(), []driver.Write{{Fence: got[0].Fence, Number: 1, Nonce: newNonce(), Ops: []Op{op}}})
		if err != nil || res[0].Err != nil {
			w.Fatal(err, res)
		}
		time.Sleep(2 * ttl)
		synctest.Wait()
		if h.count() != 2 {
			w.Errorf("%d leases, want the one that the rule ended and another", h.count())
		}
		if rules := m.View().Rules; len(rules) != 1 || rules[0].Kind != control.Resign {
			w.Errorf("the View has the rules %+v", rules)
		}
		w.must(b.tap.Backend.Close())
	})
}

// TestJunkAmongRules: junk among the rules is logged at a limited rate, in a short line, and the
// other rules are obeyed.
func TestJunkAmongRules(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: .ci/run runs it")
	}
	bubble(t, func(w *world) {
		var log strings.Builder
		m := w.member("a", func(o *Options) {
			o.Logger = slog.New(slog.NewTextHandler(&log, nil)) // called by one goroutine
		})
		w.member("b")
		var h leases
		w.must(m.Contend(h.hold, "s"))
		l := h.await(w, 1)
		const minutes = 3
		for n := range 10 * minutes {
			var ops []Op
			for i := range 50 {
				ops = append(ops, Put(fmt.Sprintf("rule/%s%d-%d", strings.Repeat("x", 300), n, i), bytes.Repeat([]byte("\x01"), 3000)))
			}
			w.writeRules(ops...)
			time.Sleep(6 * time.Second)
		}
		w.rule(control.Put, control.Rule{Kind: control.Resign, Shards: "s", Token: l.Token(), Author: "ann",
			Writer: "root@host"})
		w.eventually("the rule is obeyed", func() bool { return l.Err() != nil })
		w.must(m.end())
		lines, longest := 0, 0
		for line := range strings.Lines(log.String()) {
			if strings.Contains(line, "rules cannot be read") {
				lines++
			}
			longest = max(longest, len(line))
		}
		if !strings.Contains(log.String(), "author=ann writer=root@host") {
			w.Error("no line names the writer of the rule that was obeyed")
		}
		if lines == 0 || lines > 3 || longest > 16<<10 {
			w.Errorf("%d lines in %d minutes, the longest of %d bytes", lines, minutes, longest)
		}
	})
}
