package sharding

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/internal/mark"
	"github.com/tenure-go/tenure/sharding/assign"
)

// TestIneligibleMemberIsEmptied: if a member is not eligible, a plan moves all its shards,
// including the assigner's shard, to other members. When the member is eligible again, shards move
// back.
func TestIneligibleMemberIsEmptied(t *testing.T) {
	bubble(t, func(w *world) {
		health := map[string]chan error{}
		for _, n := range []string{"a", "b", "c"} {
			answers := make(chan error, 1)
			answers <- nil
			health[n] = answers
			w.member(n, func(m *member, _ *Options) {
				m.healthy = func(context.Context) error { err := <-answers; answers <- err; return err }
			})
		}
		set := func(n string, err error) { <-health[n]; health[n] <- err }
		w.shares(2*ttl, map[string]int{"a": 10, "b": 10, "c": 10})
		set("a", errors.New("ill"))
		w.shares(ttl, map[string]int{"b": 15, "c": 15})
		v := w.members[0].e.View()
		if o, _ := v.Owner(assigner); v.Ineligible != "ill" || o.Session == v.Session {
			w.Errorf("a is %q, and the assigner is %s", v.Ineligible, o.Node)
		}
		for _, n := range []string{"b", "c"} {
			set(n, errors.New("ill as well"))
		}
		// The member that is the first to be ineligible may hand its shards to the other member.
		time.Sleep(2 * ttl)
		kept := w.spread()
		if kept["b"]+kept["c"] != 30 {
			w.Errorf("with nobody eligible the shards are shared %v", kept)
		}
		time.Sleep(5 * ttl)
		w.shares(0, kept)
		for _, n := range []string{"a", "b", "c"} {
			set(n, nil)
		}
		w.shares(5*ttl, map[string]int{"a": 10, "b": 10, "c": 10})
	})
}

// replay is a planner with a table and a view of members, which own the planned shards.
type replay struct {
	*planner
	table *assignments
	view  *core.View
	last  *Outcome
}

func newReplay(members ...string) *replay {
	p := &replay{&planner{Assigner: assign.Balance{}, Specs: []string{"s-00..29"}, Penalty: time.Second}, &assignments{}, &core.View{}, nil}
	for _, n := range members {
		p.view.Members = append(p.view.Members, core.Member{Session: core.SessionID(n), Node: n, MemberState: core.MemberState{Weight: 1}})
	}
	return p
}

func (p *replay) judge(i int, why string) {
	p.view.Members[i].Meta = map[string]string{mark.IneligibleKey: why}
}

// plan makes the next plan, carries it out, and returns the number of moved shards and each
// member's number of shards.
func (p *replay) plan(t *testing.T, now time.Duration) (moved int, have map[string]int) {
	t.Helper()
	out, err := p.next(now, p.table, p.view, measured{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	p.last = out
	if out.change != nil {
		if p.table, err = p.table.apply(out.change); err != nil {
			t.Fatal(err)
		}
	}
	p.view.Shards, have = p.view.Shards[:0], map[string]int{}
	for i, name := range p.table.names {
		owner := p.table.at(i).Owner
		have[owner.Node]++
		p.view.Shards = append(p.view.Shards, core.Ownership{Shard: name, Session: owner.ID, Node: owner.Node, Token: core.Token(p.table.number)})
	}
	return len(out.Moves), have
}

// TestPlanWithoutTheIneligible: members that are not eligible get and keep no shards. If no member
// is eligible, all members keep their shards.
func TestPlanWithoutTheIneligible(t *testing.T) {
	t.Parallel()
	p := newReplay("a", "b", "c")
	p.plan(t, 0)
	p.judge(0, "ill")
	if _, have := p.plan(t, time.Minute); have["a"] != 0 || have["b"] != 15 {
		t.Errorf("with a not eligible: %v", have)
	}
	p.judge(1, "ill")
	p.judge(2, "ill")
	if out := p.last; len(out.Moves) != 10 || out.Moves[0].Why != assign.Barred {
		t.Errorf("with a not eligible: moves %+v, want ten that say so", out.Moves)
	} else if got := out.Plan.Explain(out.Cluster, out.Moves[0]); !strings.HasSuffix(got, ": its owner is not eligible: ill") {
		t.Errorf("explained as %q", got)
	}
	if n, have := p.plan(t, 2*time.Minute); n != 0 {
		t.Errorf("with nobody eligible: %d moves, %v", n, have)
	}
	p.judge(2, "")
	if _, have := p.plan(t, 3*time.Minute); have["c"] != 30 {
		t.Errorf("with c eligible alone: %v", have)
	}
	p.view.Members[2].Draining = true // on request, although it is the only eligible member
	if _, have := p.plan(t, 4*time.Minute); have["c"] != 0 || p.last.Moves[0].Why != assign.Drained {
		t.Errorf("with c eligible alone, and draining: %v, %+v", have, p.last.Moves)
	}
	p.view.Members[2].Draining = false
	p.judge(0, "")
	p.judge(1, "")
	if _, have := p.plan(t, time.Hour); have["a"] != 10 || have["b"] != 10 {
		t.Errorf("with all eligible again: %v", have)
	}
}

// TestEligibilityMovesFew: members whose eligibility changes at random lose their shards, and get
// shards back later each time.
func TestEligibilityMovesFew(t *testing.T) {
	t.Parallel()
	for seed := range uint64(20) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			rng := rand.New(rand.NewPCG(seed, 1))
			p := newReplay("a", "b", "c")
			p.plan(t, 0)
			moved := 0
			const steps = 1000 // a third of the penalty each
			for i := range steps {
				p.judge(rng.IntN(2), [...]string{"", "ill"}[rng.IntN(2)])
				n, have := p.plan(t, time.Duration(i+1)*p.Penalty/3)
				moved += n
				if p.view.Members[2].Ineligible() == "" && have["c"] == 0 {
					t.Fatalf("c, which is always eligible, has nothing: %v", have)
				}
			}
			if moved > 400 {
				t.Errorf("%d moves of 30 shards in %d plans", moved, steps)
			}
			t.Logf("%d moves", moved)
		})
	}
}

type assigning func(*assign.Cluster) *assign.Plan

// Plan implements assign.Assigner.
func (f assigning) Plan(c *assign.Cluster) *assign.Plan { return f(c) }

// TestImpossiblePlan: a plan that the cluster does not allow ends the assigner with an error that
// names the application's type, and changes nothing.
func TestImpossiblePlan(t *testing.T) {
	t.Parallel()
	p := newReplay("a", "b")
	p.plan(t, 0)
	before := p.table.number
	for _, owner := range [][]int32{nil, make([]int32, 29), slices.Repeat([]int32{2}, 30)} {
		p.Assigner = assigning(func(*assign.Cluster) *assign.Plan { return &assign.Plan{Owner: owner} })
		_, err := p.next(time.Minute, p.table, p.view, measured{}, nil)
		if !errors.Is(err, core.ErrInvalid) || !strings.Contains(err.Error(), "correct the Assigner (sharding.assigning)") {
			t.Errorf("%d owners: %v", len(owner), err)
		}
	}
	if p.table.number != before {
		t.Error("the table changed")
	}
}
