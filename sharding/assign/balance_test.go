package assign

import (
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/internal/keyspace"
	"github.com/tenure-go/tenure/internal/proof/ample"
	"github.com/tenure-go/tenure/internal/proof/share"
)

// loadedCluster returns a random cluster. Some shards have ranges, some loads are unknown, and the
// loads cover three orders of magnitude.
func loadedCluster(rng *rand.Rand) *Cluster {
	one := func(n int) bool { return rng.IntN(n) == 0 }
	c := &Cluster{Frozen: one(20), Urgent: one(4), Begun: rng.IntN(20)}
	capacities := one(3)
	for i := range 1 + rng.IntN(9) {
		m := Member{ID: core.SessionID(fmt.Sprintf("s%d", i)), Node: fmt.Sprintf("n%d", i), Zone: fmt.Sprintf("z%d", i%3),
			Weight: int32(rng.IntN(4)), Drain: one(9), Full: one(9)}
		if capacities && !one(4) {
			m.Capacity = 20 + 100*rng.Float64()
		}
		c.Members = append(c.Members, m)
	}
	named, ranges := rng.IntN(20), rng.IntN(40)
	zipf := rng.Float64() * 1.5
	cuts := []uint64{0}
	for range ranges - 1 {
		cuts = append(cuts, rng.Uint64())
	}
	slices.Sort(cuts)
	for i := range named + ranges {
		s := Shard{Name: fmt.Sprintf("orders-%04d", i), Owner: int32(rng.IntN(len(c.Members)+1)) - 1, Moved: int64(rng.IntN(4)),
			Load: 10 * math.Pow(float64(1+rng.IntN(100)), -zipf), Fixed: one(9), Range: Range{1, 1}}
		if one(2) {
			s.Owner = int32(rng.IntN(min(3, len(c.Members))))
		}
		if i >= named {
			s.Range, s.Busy = Range{From: cuts[i-named]}, one(9)
			if i+1 < named+ranges {
				s.Range.To = cuts[i-named+1]
			}
			if !one(4) {
				s.Parts = randomParts(rng, s.Range, s.Load)
			}
		}
		if one(20) {
			s.Load = 0
		}
		c.Shards = append(c.Shards, s)
		c.Moved += s.Load * 0.03 * rng.Float64()
	}
	if one(3) {
		c.Moved = 0
	}
	if one(3) {
		c.Rules = Rules{Pin: map[string]string{"orders-000*": "n0"}, Exclude: map[string][]string{"orders-001*": {"n1", "n2"}},
			Prefer: map[string]string{"orders-00*": "z1"}}
	}
	return c
}

func randomParts(rng *rand.Rand, r Range, load float64) []Part {
	parts := []Part{{Range: r}}
	for range rng.IntN(10) {
		last := &parts[len(parts)-1]
		width := last.Range.To - 1 - last.Range.From
		if width < 1000 {
			break
		}
		h := last.Range.From + 1 + rng.Uint64N(width-10)
		end := last.Range.To
		last.Range.To = h
		if rng.IntN(3) == 0 {
			parts = append(parts, Part{Range: Range{h, h + 1}})
			h++
		}
		parts = append(parts, Part{Range: Range{h, end}})
	}
	sum := 0.0
	for i := range parts {
		parts[i].Load = math.Pow(float64(1+rng.IntN(50)), -1.2)
		sum += parts[i].Load
	}
	for i := range parts {
		parts[i].Load *= load / sum
	}
	return parts
}

// facts contains the properties of a cluster that a test needs, computed in a simple way.
type facts struct {
	load  []float64
	total float64
	fits  []bool
	cap   []float64
	open  bool // some member may get shards
}

func factsOf(c *Cluster) *facts {
	d := newDraft(c, Rules{})
	l := newLoads(d, Balance{})
	open := slices.ContainsFunc(c.Members, func(m Member) bool { return !m.Drain && !m.Full && m.Weight > 0 })
	return &facts{l.shard, l.total, d.fits, l.cap, open}
}

// highest returns the highest share of capacity of any member that may own shards.
func (f *facts) highest(owner []int32) float64 {
	of, worst := make([]float64, len(f.cap)), 0.0
	for s, o := range owner {
		if o != None {
			of[o] += f.load[s]
		}
	}
	for m := range of {
		if f.fits[m] {
			worst = max(worst, of[m]/f.cap[m])
		}
	}
	return worst
}

// TestBalanceKeepsItsPromises checks each promise on 20,000 random clusters.
func TestBalanceKeepsItsPromises(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(11, 13))
	seen := map[string]int{}
	for i := range share.Of(t, "clusters", 20_000, 4_000) {
		c := loadedCluster(rng)
		a := Balance{}
		if rng.IntN(3) == 0 {
			a = Balance{Budget: 1 + rng.IntN(4), MinShards: 10, MaxShards: 30, MovesPerMinute: 0.1}
		}
		before := cloneCluster(c)
		p := a.Plan(c)
		if i%10 == 0 && !reflect.DeepEqual(c, before) {
			t.Fatalf("%d: the plan changed the cluster", i)
		}
		if i%10 == 0 && !reflect.DeepEqual(p, a.Plan(before)) {
			t.Fatalf("%d: the same cluster has two plans", i)
		}
		CheckShape(t, c, p)
		checkPromises(t, c, a, p, seen)
		if t.Failed() {
			t.Fatalf("%d: %+v\nof %+v\nis %+v", i, a, c, p)
		}
	}
	t.Log(seen)
	for _, what := range []string{"moves", "splits", "merges", "urgent", "ordinary", "elsewhere", "isolated", "lowered"} {
		if seen[what] < 50 {
			t.Errorf("%d clusters with %s: too few to prove anything", seen[what], what)
		}
	}
}

func cloneCluster(c *Cluster) *Cluster {
	out := *c
	out.Members, out.Shards = slices.Clone(c.Members), slices.Clone(c.Shards)
	for i := range out.Shards {
		out.Shards[i].Parts = slices.Clone(c.Shards[i].Parts)
	}
	return &out
}

func checkPromises(t *testing.T, c *Cluster, a Balance, p *Plan, seen map[string]int) {
	f := factsOf(c)
	moved, balanced, largest := 0.0, 0, 0.0
	after := make([]int32, len(c.Shards)) // without the moves that balance the members
	moving := map[int32]bool{}
	for s := range after {
		if after[s] = p.Owner[s]; p.Owner[s] == None {
			t.Errorf("shard %d has no owner", s)
		}
	}
	for _, m := range p.Moves {
		s := &c.Shards[m.Shard]
		moving[m.Shard] = true
		if m.From != s.Owner || m.To != p.Owner[m.Shard] || m.From == m.To || m.Why == 0 {
			t.Errorf("%+v of a shard of %d, planned to %d", m, s.Owner, p.Owner[m.Shard])
		}
		if m.Why == Loaded || m.Why == Shared {
			moved += f.load[m.Shard]
			largest = max(largest, f.load[m.Shard])
			balanced++
			after[m.Shard] = m.From
			if s.Fixed || s.Busy || c.Frozen || c.Members[m.To].Full && f.open && !evenLoads(f) || !f.fits[m.To] || c.Members[m.To].Weight == 0 && anyWeight(c, f) {
				t.Errorf("%+v is not to be moved, or not there", m)
			}
		}
		seen["moves"]++
	}
	crossing := 0
	for _, m := range p.Merges {
		seen["merges"]++
		if c.Shards[m.From].Fixed || c.Shards[m.To].Fixed {
			t.Errorf("%+v is fixed", m)
		}
		if c.Shards[m.From].Owner != c.Shards[m.To].Owner {
			if moved += f.load[m.From]; f.load[m.From] > 0 {
				crossing++
			}
		}
	}
	if a.Budget > 0 && balanced > a.Budget {
		t.Errorf("%d moves with a budget of %d", balanced, a.Budget)
	}
	// The load that moves in a minute is limited.
	known := slices.ContainsFunc(c.Shards, func(s Shard) bool { return s.Load > 0 })
	limit := cmpOr(a.MovesPerMinute, 0.02)
	if p.Urgent || c.Urgent {
		limit = 0.5
		seen["urgent"]++
	} else {
		seen["ordinary"]++
	}
	single := balanced == 1 && crossing == 0 && c.Moved == 0
	if known && (math.Abs(moved-p.Moved) > 1e-9 || c.Moved+moved > limit*f.total*(1+1e-9) && moved > 0 && !single) {
		t.Errorf("%v moves after %v, of %v, and the plan says %v", moved, c.Moved, f.total, p.Moved)
	}
	// Moves that balance the members never increase the highest share.
	if was, is := f.highest(after), f.highest(p.Owner); known && was > 0 && is > was*(1+1e-9) && !evenLoads(f) {
		t.Errorf("the highest share rises from %v to %v", was, is)
	} else if is < was*0.95 {
		seen["lowered"]++
	}
	if len(p.Elsewhere) > 0 {
		seen["elsewhere"]++
	}
	checkRanges(t, c, a, p, f, moving, seen)
}

func anyWeight(c *Cluster, f *facts) bool {
	for i := range c.Members {
		if f.fits[i] && c.Members[i].Weight > 0 {
			return true
		}
	}
	return false
}

func evenLoads(f *facts) bool {
	return len(f.load) > 0 && slices.Max(f.load) <= 1.25*slices.Min(f.load)
}

func cmpOr(a, b float64) float64 {
	if a != 0 {
		return a
	}
	return b
}

// checkRanges checks the limits of the number of ranges, and that hot ranges are split.
func checkRanges(t *testing.T, c *Cluster, a Balance, p *Plan, f *facts, moving map[int32]bool, seen map[string]int) {
	members := 0
	for i := range c.Members {
		if f.fits[i] && (c.Members[i].Weight > 0 || !anyWeight(c, f)) {
			members++
		}
	}
	least := max(c.Begun, 1)
	most := least + 16*members
	if a.MinShards > 0 {
		least, most = a.MinShards, a.MaxShards
	}
	before := 0
	for i := range c.Shards {
		if c.Shards[i].ranged() {
			before++
		}
	}
	now, split := before, map[int32]bool{}
	for _, x := range p.Splits {
		seen["splits"]++
		split[x.Shard] = true
		now += len(x.At)
	}
	if now > max(most, before) || now-len(p.Merges) < min(least, before) {
		t.Errorf("%d ranges become %d, merged %d, of %d to %d", before, now, len(p.Merges), least, most)
	}
	mean := f.total / float64(max(members, 1))
	for i := range c.Shards {
		s := &c.Shards[i]
		switch {
		case f.load[i] <= 0.3*mean*(1+1e-9) || !s.divisible() || s.Busy || s.Owner == None || moving[int32(i)] || c.Frozen || !s.told():
		case c.Rules.Pin != nil && i < 20: // a rule names this shard
		case !split[int32(i)] && now < most:
			t.Errorf("%v has %v, the mean of a member is %v, and it is not split", s.Range, f.load[i], mean)
		}
	}
	for _, x := range p.Splits {
		for _, part := range c.Shards[x.Shard].Parts {
			ends := part.Range.From == c.Shards[x.Shard].Range.From || slices.Contains(x.At, part.Range.From)
			if part.Range.one() && part.Load > 0.3*mean && now < most-keyspace.MaxCuts {
				if seen["isolated"]++; !ends || !slices.Contains(x.At, part.Range.To) && part.Range.To != c.Shards[x.Shard].Range.To {
					t.Errorf("the key %v with %v of %v has no range: %x", part.Range, part.Load, mean, x.At)
				}
			}
		}
	}
}

// A plan without members or without shards is empty.
func TestBalanceOfNothing(t *testing.T) {
	t.Parallel()
	c := even(2, 4)
	rules := Rules{Prefer: map[string]string{"*": "z"}, Pin: map[string]string{"*": "n0"}}
	for _, a := range []Balance{{}, {Rules: rules}} {
		for _, x := range []*Cluster{{}, {Shards: c.Shards[:0], Members: c.Members}, {Shards: []Shard{{Name: "a", Owner: None, Load: 3}}}} {
			if p := a.Plan(x); len(p.Moves)+len(p.Splits)+len(p.Merges) != 0 {
				t.Errorf("%+v of %+v", p, x)
			}
		}
	}
}

// Even if loads are known but about the same, no more moves than necessary are made. The limit per
// minute determines the number of plans.
func TestEvenLoadsMoveTheLeast(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(8, 2))
	for i := range 10_000 {
		c := randomCluster(rng, i%2 == 0)
		for s := range c.Shards {
			c.Shards[s].Load = 100 * (0.9 + 0.2*rng.Float64())
		}
		want, moves := leastMoves(c), 0
		for step := range 200 {
			p := Balance{}.Plan(c)
			moves += len(p.Moves)
			c.Shards = carryOut(c, p, int64(step+5))
			if !p.Unfinished {
				break
			}
		}
		if moves != want {
			t.Fatalf("%d: %d moves, the least is %d", i, moves, want)
		}
	}
}

// If loads are known, a new member also gets its share immediately, and no member stays more than a
// tenth above its share.
func TestJoinWithLoads(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(9, 2))
	for range 100 {
		n := 2 + rng.IntN(12)
		c := even(n, 40*n)
		for s := range c.Shards {
			c.Shards[s].Load = 0.2 + rng.Float64()
		}
		plan := func(now int) {
			for step := range 20 {
				p := Balance{}.Plan(c)
				c.Shards = carryOut(c, p, int64(now+step))
				if !p.Unfinished {
					break
				}
			}
		}
		plan(2)
		c.Members = append(c.Members, Member{ID: "x", Node: "x", Weight: 1})
		p := Balance{}.Plan(c)
		if !p.Urgent {
			t.Error("a new member is not urgent")
		}
		of, total := make([]float64, n+1), 0.0
		for s, o := range p.Owner {
			of[o] += c.Shards[s].Load
			total += c.Shards[s].Load
		}
		fair := total / float64(n+1)
		if of[n] < 0.85*fair || slices.Max(of) > 1.11*fair {
			t.Fatalf("%d members and one more: it has %.2f of its share, the most is %.2f", n, of[n]/fair, slices.Max(of)/fair)
		}
		if want := 1.15 * fair; p.Moved > want+fair*0.11*float64(n)/4 {
			t.Errorf("%.2f of a share moved", p.Moved/fair)
		}
	}
}

// Capacity has the unit of the load. Balance lowers the highest share of capacity, and keeps the
// reserve free if there is room elsewhere.
func TestCapacity(t *testing.T) {
	t.Parallel()
	c := even(3, 60)
	for i := range c.Members {
		c.Members[i].Capacity = []float64{100, 200, 300}[i]
	}
	for s := range c.Shards {
		c.Shards[s].Load = 5 + float64(s%3) // the total is 360, of a capacity of 600
	}
	p := Balance{}.Plan(c)
	of := make([]float64, 3)
	for s, o := range p.Owner {
		of[o] += c.Shards[s].Load
	}
	for i, m := range c.Members {
		if x := of[i] / m.Capacity; x > 0.6*1.1 || x < 0.6*0.85 {
			t.Errorf("member %d has %.0f of %.0f", i, of[i], m.Capacity)
		}
	}
	// 470 is 78 % of 600. The hysteresis allows a member 1.1 times as much, but the reserve begins
	// at 80 %.
	c.Shards = carryOut(c, p, 2)
	for s := range c.Shards {
		c.Shards[s].Load *= 470.0 / 360
	}
	had := 84.0
	for s := range c.Shards {
		if c.Shards[s].Owner == 0 {
			c.Shards[s].Load += had - of[0]*470/360
			break
		}
	}
	after := func(a Balance) float64 {
		p, sum := a.Plan(c), 0.0
		for s, o := range p.Owner {
			if o == 0 {
				sum += c.Shards[s].Load
			}
		}
		return sum
	}
	kept, spent := after(Balance{MovesPerMinute: 1}), after(Balance{MovesPerMinute: 1, Reserve: -1})
	if kept > 80 || math.Abs(spent-had) > 1e-9 {
		t.Errorf("a member of 100 had %.1f: %.1f with the reserve, %.1f without", had, kept, spent)
	}
}

// An indivisible heavy shard moves to the member of whose capacity it needs the smallest fraction,
// if the gain is worth moving its load.
func TestHeavyShardToLargeMember(t *testing.T) {
	t.Parallel()
	c := even(2, 2)
	c.Members[1].Capacity, c.Members[0].Capacity = 1000, 100
	c.Shards[0].Owner, c.Shards[1].Owner = 0, 1
	c.Shards[0].Load, c.Shards[1].Load = 300, 10
	if p := (Balance{}).Plan(c); p.Owner[0] != 1 {
		t.Errorf("owners %v: 300 of load stay on a member of 100", p.Owner)
	}
}

// A preference for a zone is respected only within the shares of the zone's members. The plan lists
// the shards outside their preferred zone.
func TestPreferZone(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(5, 7))
	for round := range 200 {
		c := even(6, 90)
		for i := range c.Members {
			c.Members[i].Zone = fmt.Sprintf("z%d", i%3)
		}
		for s := range c.Shards {
			c.Shards[s].Owner = int32(rng.IntN(7)) - 1
			if round%2 == 1 {
				c.Shards[s].Load = 0.5 + rng.Float64()
			}
		}
		some := rng.IntN(9)
		rules := Rules{Prefer: map[string]string{"orders-00008*": "nowhere"}}
		for i := range some { // ten for each member: there is room for 30
			rules.Prefer[fmt.Sprintf("orders-0000%d*", i)] = "z1"
		}
		kept := func(p *Plan) (in int) {
			for s, o := range p.Owner {
				if z, ok := keyspace.LookUp(rules.Prefer, c.Shards[s].Name); !ok {
					continue
				} else if z == c.Members[o].Zone {
					in++
				} else if !slices.Contains(p.Elsewhere, int32(s)) {
					t.Fatalf("%s is in %s, not %s, and the plan does not say so", c.Shards[s].Name, c.Members[o].Zone, z)
				}
			}
			return in
		}
		a := Balance{Rules: rules, MovesPerMinute: 1}
		p := a.Plan(c)
		if got, want := kept(p), min(10*min(some, 8), 30); round%2 == 0 && got != want || round%2 == 1 && got < want*4/5 {
			t.Fatalf("round %d: %d of %d shards are in the zone that they prefer", round, got, want)
		}
		if round%2 == 0 {
			checkPlan(t, c, p)
		}
		c.Shards = carryOut(c, p, 2)
		if q := a.Plan(c); len(q.Moves) > round%2*4 {
			t.Fatalf("round %d: the plan after the plan moves %+v", round, q.Moves)
		}
	}
}

// A member's heirs are in the member's zone, unless one of them would get more than twice its
// share.
func TestHeirsInTheZone(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(4, 5))
	for range 300 {
		zones := 2 + rng.IntN(3)
		n := zones * (2 + rng.IntN(4))
		c := even(n, 20*n)
		for i := range c.Members {
			c.Members[i].Zone = fmt.Sprint("z", i%zones)
		}
		owner := make([]int32, len(c.Shards))
		for s := range owner {
			owner[s] = c.Shards[s].Owner
		}
		for s, h := range Heirs(c.Members, owner) {
			if c.Members[h].Zone != c.Members[owner[s]].Zone || h == owner[s] {
				t.Fatalf("shard %d of %d has the heir %d", s, owner[s], h)
			}
		}
	}
	// A zone has two members, one of which has 60 shards and dies. Eight members elsewhere have 30
	// shards each. The other member of the zone gets shards up to twice its share.
	c := even(10, 330)
	owner := make([]int32, len(c.Shards))
	for i := range c.Members {
		c.Members[i].Zone = map[bool]string{true: "small", false: "large"}[i < 2]
	}
	for s := range owner {
		if owner[s] = int32(s % 11); owner[s] == 10 {
			owner[s] = 0
		}
	}
	share, got := 37, 30 // of 330 on nine
	for s, h := range Heirs(c.Members, owner) {
		if owner[s] == 0 && h == 1 {
			got++
		}
	}
	if got != 2*share {
		t.Errorf("the member that is left in the zone has %d, want %d", got, 2*share)
	}
}

// BenchmarkBalance makes one plan for 100 members and 100,000 ranges, some of which are hot.
func BenchmarkBalance(b *testing.B) {
	c := largeCluster()
	b.ReportAllocs()
	for b.Loop() {
		if p := large.Plan(c); len(p.Splits) == 0 || len(p.Moves) == 0 || len(p.Merges) == 0 {
			b.Fatalf("%d splits, %d moves, %d merges", len(p.Splits), len(p.Moves), len(p.Merges))
		}
	}
}

// large is the Balance of a keyspace that may have fewer or more ranges than largeCluster has.
var large = Balance{MinShards: 90_000, MaxShards: 110_000}

func largeCluster() *Cluster {
	rng := rand.New(rand.NewPCG(1, 1))
	c := even(100, 100_000)
	for s := range c.Shards {
		x := &c.Shards[s]
		x.Range = Range{uint64(s) << 47, uint64(s+1) << 47}
		x.Load = math.Pow(float64(1+rng.IntN(100_000)), -1.1)
		if x.Load > 1e-4 {
			x.Parts = randomParts(rng, x.Range, x.Load)
		}
	}
	return c
}

// compute does work of a fixed size, which takes at most usual on a quiet machine without the race
// detector.
func compute() {
	m := make(map[int]int)
	for i := range 50_000 {
		m[7919*i] = i
	}
}

const usual = 15 * time.Millisecond

func TestBalanceTime(t *testing.T) {
	c := largeCluster()
	g := ample.Beside(t, usual, compute)
	best := time.Hour
	var p *Plan
	for range 7 {
		from := time.Now()
		p = large.Plan(c)
		best = min(best, time.Since(from))
	}
	t.Logf("100,000 ranges on 100 members: %d moves, %d splits, %d merges in %v", len(p.Moves), len(p.Splits), len(p.Merges), best)
	g.AtMost("planning", best, time.Second) // the budget is 50 ms
}

// A range with narrow parts and no load is also cut.
func TestCutsWithoutLoad(t *testing.T) {
	t.Parallel()
	s := Shard{Range: Range{0, 1 << 60}}
	for h := uint64(1); h < 20; h++ {
		s.Parts = append(s.Parts, Part{Range{h << 40, h<<40 + 1}, 0})
	}
	if at := s.cuts(0, 1); len(at) != 1 || !s.Range.Has(at[0]) {
		t.Errorf("cut at %x", at)
	}
}

// An indivisible shard moves to a member with enough capacity, even if a small member has the
// lowest share.
func TestLargeShardToALargeMember(t *testing.T) {
	t.Parallel()
	c := &Cluster{Begun: 1}
	add := func(m int32, load float64) {
		h := uint64(len(c.Shards)+1) << 32
		c.Shards = append(c.Shards, Shard{
			Name: fmt.Sprintf("s-%03d", len(c.Shards)), Owner: m, Load: load, Range: Range{h, h + 1}, Parts: []Part{{Range{h, h + 1}, load}},
		})
	}
	for i := range 12 {
		m := Member{ID: core.SessionID(fmt.Sprintf("m%02d", i)), Node: fmt.Sprintf("n%d", i), Weight: 1, Capacity: 100}
		if i < 2 {
			m.Capacity = 300
		}
		c.Members = append(c.Members, m)
	}
	add(0, 75)
	add(0, 96)
	for range 9 {
		add(1, 5)
	}
	for i := int32(2); i < 12; i++ {
		add(i, 7)
		add(i, 7)
	}
	p := Balance{}.Plan(c)
	if len(p.Moves) == 0 || p.Moves[0].Shard != 0 || p.Moves[0].To != 1 {
		t.Errorf("moves %+v, want shard 0 to member 1", p.Moves)
	}
}

// A new member gets load even if one key has so much of the load that all other members are far
// below the mean.
func TestNewMemberBesideAHotKey(t *testing.T) {
	t.Parallel()
	c := &Cluster{Begun: 1}
	add := func(m int32, load float64) {
		h := uint64(len(c.Shards)+1) << 32
		c.Shards = append(c.Shards, Shard{
			Name: fmt.Sprintf("s-%03d", len(c.Shards)), Owner: m, Load: load, Range: Range{h, h + 1}, Parts: []Part{{Range{h, h + 1}, load}},
		})
	}
	for i := range 11 {
		c.Members = append(c.Members, Member{ID: core.SessionID(fmt.Sprintf("m%02d", i)), Node: fmt.Sprintf("n%d", i), Weight: 1})
	}
	add(0, 300)
	for m := int32(1); m < 10; m++ {
		for range 10 {
			add(m, 7.7)
		}
	}
	p := Balance{}.Plan(c)
	got := 0.0
	for s, o := range p.Owner {
		if o == 10 {
			got += c.Shards[s].Load
		}
	}
	if got < 45 || got > 80 {
		t.Errorf("the new member gets %.1f, the others have 77, and the mean is 90", got)
	}
}
