package sharding

import (
	"testing"
	"time"

	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/internal/keyspace"
	"github.com/tenure-go/tenure/sharding/assign"
)

// Only a move that does not happen is written again. The shard's owner then sees a plan that is
// newer than its lease (W4).
func TestLostMoveIsWrittenAgain(t *testing.T) {
	t.Parallel()
	p := &planner{Assigner: assign.Balance{}, Specs: []string{"s-0..3"}, Penalty: time.Second}
	table := &assignments{}
	v := &core.View{Members: []core.Member{{Session: "a", Node: "a", MemberState: core.MemberState{Weight: 1}}}}
	for _, s := range []string{"s-0", "s-1", "s-2", "s-3"} {
		v.Shards = append(v.Shards, core.Ownership{Shard: s, Session: "a", Token: 1})
	}
	next := func(now time.Duration) *planChange {
		out, err := p.next(now, table, v, measured{}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if out.change != nil {
			if table, err = table.apply(out.change); err != nil {
				t.Fatal(err)
			}
		}
		return out.change
	}
	next(0)
	v.Members = append(v.Members, core.Member{Session: "b", Node: "b", MemberState: core.MemberState{Weight: 1}})
	if c := next(time.Second); c == nil || len(c.Moves) != 2 {
		t.Fatalf("%+v, want two moves to b", c)
	}
	if c := next(2 * time.Second); c != nil {
		t.Fatalf("%+v while the moves are under way", c)
	}
	before := table
	c := next(6 * time.Second)
	if c == nil || len(c.Moves) != 2 || table.number != before.number+1 {
		t.Fatalf("%+v, want the two moves again", c)
	}
	for i := range len(table.names) {
		if a, b := before.at(i), table.at(i); a.Owner != b.Owner || a.Why != b.Why {
			t.Errorf("%+v became %+v", a, b)
		}
	}
	if c := next(7 * time.Second); c != nil {
		t.Fatalf("%+v right after that", c)
	}
}

// The plan after a death does not depend on how many heirs have already claimed their shards. Each
// of these shards belongs to its heir, and no other shard moves.
func TestPlanAmongHeirs(t *testing.T) {
	t.Parallel()
	names, err := keyspace.Expand("s-00..29")
	if err != nil {
		t.Fatal(err)
	}
	for claimed := range len(names) + 1 {
		p := &planner{Assigner: assign.Balance{}, Specs: []string{"s-00..29"}, Penalty: time.Second}
		table := &assignments{}
		v := &core.View{}
		for _, n := range []string{"a", "b", "c", "d"} {
			v.Members = append(v.Members, core.Member{Session: core.SessionID(n), Node: n, MemberState: core.MemberState{Weight: 1}})
		}
		plan := func(now time.Duration) *planChange {
			out, err := p.next(now, table, v, measured{}, nil)
			if err != nil {
				t.Fatal(err)
			}
			if out.change != nil {
				if table, err = table.apply(out.change); err != nil {
					t.Fatal(err)
				}
			}
			return out.change
		}
		plan(0)
		want := make([]core.SessionID, len(names))
		next := assign.Heirs(table.members, table.owner)
		v.Members = v.Members[1:]
		for i, s := range names {
			at := table.at(i)
			if want[i] = at.Owner.ID; at.Owner.ID != "a" {
				v.Shards = append(v.Shards, core.Ownership{Shard: s, Session: want[i], Token: 1})
				continue
			}
			want[i] = table.members[next[i]].ID
			if i < claimed {
				v.Shards = append(v.Shards, core.Ownership{Shard: s, Session: want[i], Token: 2})
			}
		}
		have := map[core.SessionID]int{}
		plan(time.Second)
		for i, s := range names {
			if got := table.at(i).Owner.ID; got != want[i] {
				t.Errorf("with %d claimed %s is planned to %s, want %s", claimed, s, got, want[i])
			}
			have[want[i]]++
		}
		if have["b"] != 10 || have["c"] != 10 || have["d"] != 10 {
			t.Fatalf("the heirs have %v", have)
		}
		if c := plan(2 * time.Second); c != nil {
			t.Errorf("with %d claimed, the next plan says %+v", claimed, c)
		}
	}
}
