package assign

import (
	"errors"
	"fmt"
	"math/bits"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/internal/proof/ample"
)

// leastMoves computes the minimum number of moves in a simple way. It tries every distribution of
// the larger shares, and counts each member's excess and the shards without an owner.
func leastMoves(c *Cluster) int {
	total, orphans := int64(0), 0
	have := make([]int, len(c.Members))
	for _, m := range c.Members {
		total += int64(m.Weight)
	}
	for _, s := range c.Shards {
		if s.Owner == None {
			orphans++
		} else {
			have[s.Owner]++
		}
	}
	n := int64(len(c.Shards))
	rest, floors, broken := int(n), make([]int, len(c.Members)), uint(0)
	for i, m := range c.Members {
		floors[i] = int(n * int64(m.Weight) / total)
		rest -= floors[i]
		if n*int64(m.Weight)%total != 0 {
			broken |= 1 << i
		}
	}
	least := len(c.Shards) + 1
	for set := uint(0); set < 1<<len(c.Members); set++ {
		if set&^broken != 0 || bits.OnesCount(set) != rest {
			continue
		}
		moves := orphans
		for i := range c.Members {
			moves += max(0, have[i]-floors[i]-int(set>>i&1))
		}
		least = min(least, moves)
	}
	return least
}

// randomCluster returns a cluster after joins, leaves and changes of weight. Owners are random,
// some members are empty, and some shards have no owner.
func randomCluster(rng *rand.Rand, weighted bool) *Cluster {
	c := &Cluster{}
	for i := range 1 + rng.IntN(8) {
		m := Member{ID: core.SessionID(fmt.Sprintf("s%d", i)), Node: fmt.Sprintf("n%d", i), Weight: 1}
		if weighted {
			m.Weight = int32(1 + rng.IntN(5))
		}
		c.Members = append(c.Members, m)
	}
	owners := 1 + rng.IntN(len(c.Members))
	for i := range rng.IntN(60) {
		s := Shard{Name: fmt.Sprintf("orders-%04d", i), Owner: int32(rng.IntN(owners)), Moved: int64(rng.IntN(4))}
		if rng.IntN(6) == 0 {
			s.Owner = None
		}
		c.Shards = append(c.Shards, s)
	}
	return c
}

// checkPlan checks that a plan is complete and consistent, and keeps to its shares.
func checkPlan(t *testing.T, c *Cluster, p *Plan) {
	t.Helper()
	have := make([]int, len(c.Members))
	moved := map[int32]Move{}
	for _, m := range p.Moves {
		moved[m.Shard] = m
	}
	for s, o := range p.Owner {
		if o == None {
			t.Fatalf("shard %d has no owner", s)
		}
		have[o]++
		from := c.Shards[s].Owner
		m, ok := moved[int32(s)]
		if ok != (from != o) || ok && (m.From != from || m.To != o || m.Why == 0) {
			t.Fatalf("shard %d goes from %d to %d and the move says %+v", s, from, o, m)
		}
	}
	for i := range have {
		if have[i] != p.Share[i] {
			t.Fatalf("member %d has %d of a share of %d", i, have[i], p.Share[i])
		}
	}
}

// TestBalanceMovesTheLeast checks 10,000 random cases with and without weights, and chains of
// joins, leaves and changes of weight.
func TestBalanceMovesTheLeast(t *testing.T) {
	t.Parallel()
	for _, weighted := range []bool{false, true} {
		t.Run(fmt.Sprintf("weighted=%v", weighted), func(t *testing.T) {
			t.Parallel()
			rng := rand.New(rand.NewPCG(8, 1))
			for range 10_000 {
				c := randomCluster(rng, weighted)
				for step := range 3 {
					p := Balance{}.Plan(c)
					checkPlan(t, c, p)
					if want := leastMoves(c); len(p.Moves) != want {
						t.Fatalf("%d moves, the least is %d (step %d of %+v)", len(p.Moves), want, step, c)
					}
					if !weighted {
						if lo, hi := extremes(p.Share); hi-lo > 1 {
							t.Fatalf("shares from %d to %d", lo, hi)
						}
					}
					again := *c
					again.Shards = carryOut(c, p, int64(step+5))
					if q := (Balance{}).Plan(&again); len(q.Moves) != 0 {
						t.Fatalf("a plan after the plan moves %d", len(q.Moves))
					}
					c = change(rng, &again, weighted)
				}
			}
		})
	}
}

func extremes(n []int) (lo, hi int) {
	lo, hi = n[0], n[0]
	for _, x := range n {
		lo, hi = min(lo, x), max(hi, x)
	}
	return lo, hi
}

func carryOut(c *Cluster, p *Plan, number int64) []Shard {
	out := append([]Shard(nil), c.Shards...)
	for _, m := range p.Moves {
		out[m.Shard].Owner, out[m.Shard].Moved = m.To, number
	}
	return out
}

func change(rng *rand.Rand, c *Cluster, weighted bool) *Cluster {
	out := &Cluster{Members: append([]Member(nil), c.Members...), Shards: append([]Shard(nil), c.Shards...)}
	i := rng.IntN(len(out.Members))
	switch {
	case weighted && rng.IntN(3) == 0:
		out.Members[i].Weight = int32(1 + rng.IntN(5))
	case rng.IntN(2) == 0 && len(out.Members) > 1:
		out.Members = append(out.Members[:i], out.Members[i+1:]...)
		for s := range out.Shards {
			switch o := &out.Shards[s].Owner; {
			case *o == int32(i):
				*o = None
			case *o > int32(i):
				*o--
			}
		}
	case len(out.Members) < 9:
		out.Members = append(out.Members, Member{ID: core.SessionID(fmt.Sprintf("t%d", rng.Uint32())), Node: fmt.Sprintf("m%d", rng.Uint32()), Weight: 1})
	}
	return out
}

func even(members, shards int) *Cluster {
	c := &Cluster{}
	for i := range members {
		c.Members = append(c.Members, Member{ID: core.SessionID(fmt.Sprintf("s%04d", i)), Node: fmt.Sprintf("n%d", i), Weight: 1})
	}
	for i := range shards {
		c.Shards = append(c.Shards, Shard{Name: fmt.Sprintf("orders-%06d", i), Owner: None})
	}
	p := Balance{}.Plan(c)
	c.Shards = carryOut(c, p, 1)
	return c
}

// A member that returns gets its former shards back, so a rolling restart moves each shard at most
// twice.
func TestRestartMovesTwice(t *testing.T) {
	t.Parallel()
	c := even(5, 1000)
	first := append([]Shard(nil), c.Shards...)
	moves := make([]int, len(c.Shards))
	number := int64(2)
	step := func() {
		p := Balance{}.Plan(c)
		for _, m := range p.Moves {
			moves[m.Shard]++
		}
		c.Shards = carryOut(c, p, number)
		number++
	}
	for i := range c.Members {
		c.Members[i].Drain = true
		step()
		c.Members[i].Drain = false
		step()
	}
	for s := range moves {
		if moves[s] != 2 || c.Shards[s].Owner != first[s].Owner {
			t.Errorf("%s moved %d times, from %d to %d", c.Shards[s].Name, moves[s], first[s].Owner, c.Shards[s].Owner)
		}
	}
}

func TestDrainFullFixedAndBudget(t *testing.T) {
	t.Parallel()
	c := even(4, 100)
	c.Members[1].Drain = true
	p := Balance{}.Plan(c)
	checkPlan(t, c, p)
	for _, m := range p.Moves {
		if m.From != 1 || m.Why != Drained {
			t.Errorf("%+v", m)
		}
	}
	if len(p.Moves) != 25 || p.Share[1] != 0 {
		t.Errorf("%d moves, share %d", len(p.Moves), p.Share[1])
	}

	// A full member keeps its shards, and gets no others.
	c = even(4, 100)
	for s := range c.Shards {
		if c.Shards[s].Owner == 2 && s%2 == 0 {
			c.Shards[s].Owner = None
		}
	}
	c.Members[2].Full = true
	p = Balance{}.Plan(c)
	checkPlan(t, c, p)
	for _, m := range p.Moves {
		if m.From != None || m.To == 2 {
			t.Errorf("%+v", m)
		}
	}

	// If all members are drained, no shard is left without an owner.
	c = even(3, 10)
	for i := range c.Members {
		c.Members[i].Drain = true
	}
	if p = (Balance{}).Plan(c); len(p.Moves) != 0 {
		t.Errorf("%d moves although nobody is left", len(p.Moves))
	}

	// If Budget or Fixed prevents moves, the remaining shards move later.
	c = even(2, 100)
	c.Members = append(c.Members, Member{ID: "x", Node: "x", Weight: 1})
	total := 0
	for round := range 10 {
		p = Balance{Budget: 10}.Plan(c)
		total += len(p.Moves)
		c.Shards = carryOut(c, p, int64(round))
		if !p.Unfinished {
			break
		}
		if len(p.Moves) != 10 {
			t.Fatalf("%d moves with a budget of 10", len(p.Moves))
		}
	}
	if total != 33 {
		t.Errorf("%d moves in all, want 33", total)
	}
	c = even(2, 100)
	for s := range c.Shards {
		c.Shards[s].Fixed = s >= 10
	}
	c.Members = append(c.Members, Member{ID: "x", Node: "x", Weight: 1})
	if p = (Balance{}).Plan(c); len(p.Moves) != 10 || !p.Unfinished {
		t.Errorf("%d moves, unfinished %v: want the 10 that are not fixed, and more to come", len(p.Moves), p.Unfinished)
	}
}

func TestRules(t *testing.T) {
	t.Parallel()
	rules := Rules{
		Drain:   []string{"n3"},
		Pin:     map[string]string{"orders-00000*": "n1", "orders-000050": "gone"},
		Exclude: map[string][]string{"orders-00009*": {"n0", "n1"}, "orders-000060": {"n0", "n1", "n2"}},
	}
	rng := rand.New(rand.NewPCG(3, 4))
	for range 200 {
		c := even(4, 100)
		for s := range c.Shards {
			c.Shards[s].Owner = int32(rng.IntN(5)) - 1
		}
		p := Balance{Rules: rules}.Plan(c)
		have := make([]int, 4)
		for s, o := range p.Owner {
			name := c.Shards[s].Name
			have[o]++
			switch {
			case o == 3:
				t.Fatalf("%s is on a drained node", name)
			case strings.HasPrefix(name, "orders-00000") && o != 1:
				t.Fatalf("%s is on n%d, not pinned", name, o)
			case strings.HasPrefix(name, "orders-00009") && o != 2:
				t.Fatalf("%s is on n%d, which is excluded", name, o)
			}
		}
		if lo, hi := extremes(have[:3]); hi-lo > 1 {
			t.Fatalf("from %d to %d shards", lo, hi)
		}
		c.Shards = carryOut(c, p, 2)
		if q := (Balance{Rules: rules}).Plan(c); len(q.Moves) != 0 {
			t.Fatalf("the plan after the plan moves %+v", q.Moves)
		}
	}
}

// The shards of a group are in as many zones as possible.
func TestSpread(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(5, 6))
	for range 200 {
		c := &Cluster{}
		for i := range 6 {
			c.Members = append(c.Members, Member{ID: core.SessionID(fmt.Sprintf("s%d", i)), Node: fmt.Sprintf("n%d", i), Zone: fmt.Sprintf("z%d", i%3), Weight: 1})
		}
		for i := range 90 {
			c.Shards = append(c.Shards, Shard{Name: fmt.Sprintf("part-%02d.%d", i/3, i%3), Owner: int32(rng.IntN(7)) - 1})
		}
		p := Balance{Rules: Rules{Spread: "."}}.Plan(c)
		for g := 0; g < len(c.Shards); g += 3 {
			zones := map[string]bool{}
			for s := g; s < g+3; s++ {
				zones[c.Members[p.Owner[s]].Zone] = true
			}
			if len(zones) != 3 {
				t.Fatalf("%s is in %d zones", c.Shards[g].Name, len(zones))
			}
		}
	}
}

func TestBalanceByLoad(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(7, 8))
	a := Balance{High: 1.2, Low: 1.05, Budget: 1000, MovesPerMinute: 1}
	relative := func(c *Cluster, owner []int32) float64 {
		of, total, weights := make([]float64, len(c.Members)), 0.0, 0.0
		for s, o := range owner {
			of[o] += c.Shards[s].Load
			total += c.Shards[s].Load
		}
		for _, m := range c.Members {
			weights += float64(m.Weight)
		}
		worst := 0.0
		for i, m := range c.Members {
			worst = max(worst, of[i]/float64(m.Weight)*weights/total)
		}
		return worst
	}
	for range 100 {
		c := even(2+rng.IntN(6), 400)
		for i := range c.Members {
			c.Members[i].Weight = int32(1 + rng.IntN(3))
		}
		for s := range c.Shards {
			c.Shards[s].Load = 0.5 + rng.Float64()
			if rng.IntN(10) == 0 {
				c.Shards[s].Owner = None
			}
		}
		p := a.Plan(c)
		if got := relative(c, p.Owner); got > 1.2 {
			t.Fatalf("the heaviest has %.2f times its share", got)
		}
		for _, m := range p.Moves {
			if m.Why != Loaded && m.Why != Orphaned {
				t.Fatalf("%+v", m)
			}
		}
		if relative(c, p.Owner) > 1.1 {
			continue // near the upper bound, but not above it
		}
		// Within the hysteresis, no shard moves.
		c.Shards = carryOut(c, p, 2)
		for s := range c.Shards {
			c.Shards[s].Load *= 0.95 + rng.Float64()/10
		}
		if q := a.Plan(c); len(q.Moves) != 0 {
			t.Fatalf("%d moves after a small change", len(q.Moves))
		}
	}
	// If one shard is hot, the other shards of its owner move, and the hot shard does not move back
	// and forth.
	c := even(4, 40)
	for s := range c.Shards {
		c.Shards[s].Load = 1
	}
	c.Shards[0].Load = 100
	for round := range 5 {
		p := a.Plan(c)
		if round > 0 && len(p.Moves) != 0 {
			t.Fatalf("round %d moves %d", round, len(p.Moves))
		}
		c.Shards = carryOut(c, p, int64(round+2))
	}
	// The budget and fixed shards limit the moves.
	c = even(2, 100)
	for s := range c.Shards {
		c.Shards[s].Owner, c.Shards[s].Fixed = 0, s >= 20
	}
	if p := (Balance{Budget: 7}).Plan(c); len(p.Moves) != 7 || !p.Unfinished {
		t.Errorf("%d moves with a budget of 7, unfinished %v", len(p.Moves), p.Unfinished)
	}
	if p := (Balance{Budget: 70}).Plan(c); len(p.Moves) != 20 {
		t.Errorf("%d moves, want the 20 that are not fixed", len(p.Moves))
	}
}

func TestPlanningTime(t *testing.T) {
	c := even(100, 100_000)
	joined := &Cluster{Members: append(append([]Member(nil), c.Members...), Member{ID: "x", Node: "x", Weight: 1}), Shards: c.Shards}
	left := change2(c, 17)
	g := ample.Beside(t, usual, compute)
	for name, of := range map[string]*Cluster{"join": joined, "leave": left} {
		best := time.Hour
		var p *Plan
		for range 5 {
			from := time.Now()
			p = Balance{}.Plan(of)
			best = min(best, time.Since(from))
		}
		t.Logf("100,000 shards on 100 members after one %s: %d moves in %v", name, len(p.Moves), best)
		g.AtMost("planning after one "+name, best, time.Second) // the budget is 20 ms
	}
}

func change2(c *Cluster, i int32) *Cluster {
	out := &Cluster{Members: append(append([]Member(nil), c.Members[:i]...), c.Members[i+1:]...), Shards: append([]Shard(nil), c.Shards...)}
	for s := range out.Shards {
		switch o := &out.Shards[s].Owner; {
		case *o == i:
			*o = None
		case *o > i:
			*o--
		}
	}
	return out
}

// After a member's death, the heirs make the other members' shares as even as a plan would.
func TestHeirsKeepTheBalance(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(4, 4))
	for range 300 {
		c := even(2+rng.IntN(9), rng.IntN(200))
		if rng.IntN(2) == 0 {
			for i := range c.Members {
				c.Members[i].Weight = int32(1 + rng.IntN(3))
			}
			c.Shards = carryOut(c, Balance{}.Plan(c), 2)
		}
		owner := make([]int32, len(c.Shards))
		for s := range owner {
			owner[s] = c.Shards[s].Owner
		}
		hs := Heirs(c.Members, owner)
		dead := int32(rng.IntN(len(c.Members)))
		next := change2(c, dead)
		for s := range owner {
			if owner[s] != dead {
				continue
			}
			h := hs[s]
			if h == dead || h == None {
				t.Fatalf("the heir of shard %d is %d", s, h)
			}
			if next.Shards[s].Owner = h; h > dead {
				next.Shards[s].Owner--
			}
		}
		equal := true
		for _, m := range c.Members {
			equal = equal && m.Weight == c.Members[0].Weight
		}
		p := Balance{}.Plan(next)
		if equal && len(p.Moves) != 0 {
			t.Fatalf("after the heirs a plan moves %d", len(p.Moves))
		}
		if len(p.Moves) > len(c.Members) {
			t.Fatalf("after the heirs a weighted plan moves %d", len(p.Moves))
		}
	}
}

// The budget for a plan after one join is 20 ms.
func BenchmarkPlan100kShards100Members(b *testing.B) {
	c := even(100, 100_000)
	c.Members = append(c.Members, Member{ID: "x", Node: "x", Weight: 1})
	b.ReportAllocs()
	for b.Loop() {
		if p := (Balance{}).Plan(c); len(p.Moves) != 990 {
			b.Fatal(len(p.Moves))
		}
	}
}

// TestExplainIsBounded: the length of an explanation is limited. A reason in the store may be
// longer than the reasons that members write.
func TestExplainIsBounded(t *testing.T) {
	t.Parallel()
	c := &Cluster{
		Members: []Member{{ID: "1", Node: "a", Weight: 1, Drain: true, Ineligible: strings.Repeat("é", maxWhy)},
			{ID: "2", Node: "b", Weight: 1}},
		Shards: []Shard{{Name: "eu"}},
	}
	p := Balance{}.Plan(c)
	want := "eu from a (share 0) to b (share 1): its owner is not eligible: " + strings.Repeat("é", maxWhy/2) + "..."
	if got := p.Explain(c, p.Moves[0]); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestValidate: a plan is refused if it names shards or members that the cluster does not have.
func TestValidate(t *testing.T) {
	t.Parallel()
	c := even(2, 3)
	for name, change := range map[string]func(p *Plan){
		"owner of each":         func(p *Plan) { p.Owner = p.Owner[:2] },
		"to member 2 of 2":      func(p *Plan) { p.Owner[1] = 2 },
		"to member -2 of 2":     func(p *Plan) { p.Owner[1] = -2 },
		"moves shard 3 of 3":    func(p *Plan) { p.Moves = []Move{{Shard: 3}} },
		"splits shard -1 of 3":  func(p *Plan) { p.Splits = []Split{{Shard: -1}} },
		"at 16 hashes":          func(p *Plan) { p.Splits = []Split{{At: make([]uint64, 16)}} },
		"into shard 7 of 3":     func(p *Plan) { p.Merges = []Merge{{To: 7}} },
		"merges shard -1 into ": func(p *Plan) { p.Merges = []Merge{{From: -1}} },
		"":                      func(*Plan) {},
	} {
		p := Balance{}.Plan(c)
		change(p)
		err := p.Validate(c)
		if name == "" {
			if err != nil {
				t.Error(err)
			}
		} else if !errors.Is(err, core.ErrInvalid) || !strings.Contains(err.Error(), name) {
			t.Errorf("got %v, want an error with %q", err, name)
		}
	}
	if err := (*Plan)(nil).Validate(c); !errors.Is(err, core.ErrInvalid) {
		t.Error(err)
	}
}
