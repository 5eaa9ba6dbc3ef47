package sharding

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/sharding/assign"
)

// randomTable returns a table after some plans, and the changes that led to this table.
func randomTable(rng *rand.Rand, plans int) (*assignments, []*planChange) {
	t := &assignments{}
	var changes []*planChange
	var err error
	for range plans {
		next, begins := t.copy(), t.names == nil || rng.IntN(8) == 0
		var d division
		if begins {
			p := planner{Specs: []string{fmt.Sprintf("orders-00..%02d", 1+rng.IntN(60)), "x"}}
			if rng.IntN(2) == 0 {
				p.Keys = Keyspace{Name: "k", Shards: 1 + rng.IntN(20)}
			}
			if next, err = p.begin(&assignments{}); err != nil {
				panic(err)
			}
		} else {
			d = randomDivision(rng, t, nil)
			for _, x := range t.changes {
				i, _ := indexOf(t, x.From)
				switch rng.IntN(6) {
				case 0, 1:
					d.Settled = append(d.Settled, int32(i))
				case 2:
					for _, g := range x.Gifts {
						k, _ := indexOf(t, g.Shard)
						d.Refused = append(d.Refused, refusal{int32(k), g.Shard})
					}
				}
			}
		}
		next.number = t.number + 1
		members := slices.DeleteFunc(slices.Clone(next.members), func(assign.Member) bool { return rng.IntN(5) == 0 })
		for range 1 + rng.IntN(2) {
			members = append(members, assign.Member{ID: core.SessionID(fmt.Sprintf("s%x", rng.Uint64())), Node: "n", Zone: "z", Weight: int32(rng.IntN(5)), Drain: rng.IntN(9) == 0})
		}
		slices.SortFunc(members, func(a, b assign.Member) int { return strings.Compare(string(a.ID), string(b.ID)) })
		next.seat(members)
		for s, name := range next.names {
			if rng.IntN(3) == 0 || begins && rng.IntN(10) > 0 {
				next.owner[s], next.moved[s], next.why[s] = int32(rng.IntN(len(members)+1)-1), rng.Int64N(next.number+1), assign.Reason(1+rng.IntN(6))
			}
			switch rng.IntN(9) {
			case 0:
				next.suspects[name] = &suspicion{Until: rng.Int64N(3), Versions: []string{"v", ""}[:1+rng.IntN(2)], Deaths: []death{{5, rng.Uint64()}, {at: 7}}[:1+rng.IntN(2)]}
			case 1:
				delete(next.suspects, name)
			}
		}
		next.divide(&d)
		if begins {
			t = &assignments{}
		}
		c := next.since(t)
		changes = append(changes, c)
		if t, err = t.apply(c); err != nil {
			panic(err)
		}
		if a, b := told(t), told(next); a != b {
			panic(fmt.Sprintf("a plan leads to\n%s\nwant\n%s", a, b))
		}
	}
	return t, changes
}

// told returns everything that a table says.
func told(t *assignments) string {
	return fmt.Sprintf("%d %q %+v %d %q %v\n%+v\n%v %v %v\n%+v %+v", t.number, t.specs, t.keys, t.next, t.names, t.ranges, t.members, t.owner, t.moved, t.why,
		t.changes, values(t.suspects))
}

// An encoded change decodes to the same change, in parts of any size, and a base is equal to all
// changes before it (W3).
func TestPlansSurviveTheLog(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(1, 1))
	for range 300 {
		want, changes := randomTable(rng, 1+rng.IntN(12))
		size := 1 + rng.IntN(200)
		j := &journal{table: &assignments{}}
		seq := core.Seq(0)
		write := func(c *planChange, token core.Token) {
			for _, part := range c.encode(size) {
				seq++
				j.add(&core.Entry{Seq: seq, Token: token, Payload: part})
			}
		}
		for i, c := range changes {
			if rng.IntN(4) == 0 { // an assigner dies while it writes a plan
				parts := c.encode(3)
				for _, part := range parts[:len(parts)-1] {
					seq++
					j.add(&core.Entry{Seq: seq, Token: core.Token(i), Payload: part})
				}
			}
			write(c, core.Token(i+1))
		}
		if j.gap != nil {
			t.Fatal(j.gap)
		}
		if got, want := told(j.table), told(want); got != want {
			t.Fatalf("read %s\nwant %s", got, want)
		}
		late := &journal{table: &assignments{}, after: 100}
		for k, part := range want.since(&assignments{}).encode(size) {
			late.add(&core.Entry{Seq: core.Seq(101 + k), Token: 1, Payload: part})
		}
		if got, want := told(late.table), told(want); got != want {
			t.Fatalf("a base says %s\nwant %s", got, want)
		}
	}
}

// After a gap in the log, or an entry that is not a plan, the table stays the same until the next
// base.
func TestGapsWaitForABase(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(2, 2))
	want, changes := randomTable(rng, 6)
	j := &journal{table: &assignments{}}
	seq := core.Seq(0)
	add := func(payload []byte) {
		seq++
		j.add(&core.Entry{Seq: seq, Token: 1, Payload: payload})
	}
	add(changes[0].encode(1 << 20)[0])
	number := j.table.number
	for _, bad := range [][]byte{nil, {0}, {formVersion}, {99, 1, 2, 3}, {formVersion, 2, 0, 1, 9, 9, 9}} {
		add(bad)
		if j.gap == nil || j.table.number != number {
			t.Fatalf("%v was taken: plan %d, %v", bad, j.table.number, j.gap)
		}
	}
	for _, c := range changes[1:] {
		if !c.Base {
			add(c.encode(1 << 20)[0])
		}
	}
	if j.table.number != number {
		t.Fatalf("plan %d after a gap", j.table.number)
	}
	add(want.since(&assignments{}).encode(1 << 20)[0])
	if j.gap != nil || j.table.number != want.number {
		t.Errorf("plan %d after a base, %v", j.table.number, j.gap)
	}
}

// A plan that does not follow the table's last plan is not applied, because its moves were planned
// from a different table (W1).
func TestPlanFollowsItsPredecessor(t *testing.T) {
	t.Parallel()
	begin := func() (*assignments, *planChange) {
		base := &planChange{Number: 4, Base: true, Specs: []string{"a", "b"}, Members: []assign.Member{{ID: "m0"}, {ID: "m1"}},
			Rows: []row{{Shard: 0, Range: empty, Plan: 4, Why: assign.Orphaned}, {Shard: 1, Range: empty, Plan: 4, Why: assign.Orphaned}}}
		table, err := (&assignments{}).apply(base)
		if err != nil {
			t.Fatal(err)
		}
		return table, base
	}
	for _, number := range []int64{1, 3, 4, 5, 6, 7} {
		table, base := begin()
		c := &planChange{Number: number, Rows: []row{{Shard: 1, Range: empty, Owner: 1, Why: assign.Shared}}}
		follows := number == 5
		j := &journal{table: &assignments{}}
		for i, change := range []*planChange{base, c} {
			j.add(&core.Entry{Seq: core.Seq(i + 1), Token: 1, Payload: change.encode(1 << 20)[0]})
		}
		if (j.gap == nil) != follows || (j.table.number == number && j.table.owner[1] == 1) != follows {
			t.Errorf("plan %d in the log after plan 4: table of plan %d, gap %v", number, j.table.number, j.gap)
		}
		_, unchanged := begin()
		before, _ := (&assignments{}).apply(unchanged)
		if _, err := table.apply(c); (err == nil) != follows || !reflect.DeepEqual(table, before) {
			t.Errorf("plan %d applied to a table of plan 4: %v, %+v", number, err, table)
		}
	}
}

// A plan whose ranges do not divide the hashes is not applied (W5).
func TestPlanDividesTheHashes(t *testing.T) {
	t.Parallel()
	for shard, from := range []uint64{5, 0} { // no shard has hash 0, and two shards have it
		c := &planChange{Number: 1, Next: 2, Rows: []row{{Shard: shard, Range: assign.Range{From: from}, Owner: assign.None}}}
		if table, err := keyed(2).apply(c); err == nil {
			t.Errorf("shard %d begins at %d: %v", shard, from, table.ranges)
		}
	}
}

// Parts that do not belong together do not form a plan (W3). For example, the beginning of a plan
// is missing, or a part comes from a different assigner or plan.
func TestPartsBelongTogether(t *testing.T) {
	t.Parallel()
	table, _ := randomTable(rand.New(rand.NewPCG(5, 5)), 1)
	c := table.since(&assignments{})
	c.Number = 8
	other := c.encode(len(c.body())/3 + 1)
	c.Number = 7
	parts := c.encode(len(c.body())/3 + 1)
	if len(parts) != 3 {
		t.Fatalf("%d parts", len(parts))
	}
	for name, log := range map[string][]core.Entry{
		"no beginning":     {{Token: 1, Payload: parts[1]}, {Token: 1, Payload: parts[2]}},
		"a part missing":   {{Token: 1, Payload: parts[0]}, {Token: 1, Payload: parts[2]}},
		"another assigner": {{Token: 1, Payload: parts[0]}, {Token: 1, Payload: parts[1]}, {Token: 2, Payload: parts[2]}},
		"another plan":     {{Token: 1, Payload: parts[0]}, {Token: 1, Payload: parts[1]}, {Token: 1, Payload: other[2]}},
		"a part twice":     {{Token: 1, Payload: parts[0]}, {Token: 1, Payload: parts[1]}, {Token: 1, Payload: parts[1]}},
	} {
		j := &journal{table: &assignments{}}
		for i := range log {
			log[i].Seq = core.Seq(i + 1)
			j.add(&log[i])
		}
		if j.table.number != 0 {
			t.Errorf("%s: taken for plan %d", name, j.table.number)
		}
		for i, part := range parts {
			j.add(&core.Entry{Seq: core.Seq(10 + i), Token: 3, Payload: part})
		}
		if j.table.number != 7 {
			t.Errorf("%s: the whole plan after it is not taken: %d, %v", name, j.table.number, j.gap)
		}
	}
}

// FuzzPlan: reading an arbitrary log neither panics nor leaves an unusable table, and encoding a
// decoded plan again results in the same bytes.
//
//	go test ./sharding -run '^$' -fuzz FuzzPlan
func FuzzPlan(f *testing.F) {
	_, changes := randomTable(rand.New(rand.NewPCG(3, 3)), 8)
	for _, c := range changes {
		f.Add(int64(c.Number), c.body())
	}
	f.Add(int64(2), (&planChange{Number: 2, Left: []int32{9999}, Changes: []rangeChange{{Number: 1, From: "k-0001", Gifts: []gift{{"k-0009", empty}}}},
		Rows: []row{{Shard: 9999, Range: assign.Range{From: 7}, Owner: 77, Suspicion: &suspicion{deaths(5), 9, []string{"v"}}}}}).body())
	f.Fuzz(func(t *testing.T, number int64, body []byte) {
		if number < 0 || number > maxNumber {
			return
		}
		c, err := decode(number, body)
		if err == nil {
			again, err := decode(number, c.body())
			if err != nil || !reflect.DeepEqual(c, again) {
				t.Fatalf("%+v was written and read as %+v, %v", c, again, err)
			}
			table, _ := randomTable(rand.New(rand.NewPCG(9, 9)), 1)
			if next := *c; !c.Base {
				next.Number = table.number + 1
				if table, err := table.apply(&next); err == nil {
					assign.Heirs(table.members, table.owner)
					_ = table.since(&assignments{}).body()
				}
			}
			if len(c.Specs) < 4 {
				if table, err := (&assignments{}).apply(c); err == nil {
					for i := range min(len(table.names), 100) {
						table.at(i)
					}
					assign.Heirs(table.members, table.owner)
				}
			}
		}
		(&journal{table: &assignments{}}).add(&core.Entry{Seq: 1, Payload: body})
	})
}

// In the log, a split takes about a hundred bytes, and the plan that completes the split takes a
// few tens of bytes.
func TestSplitIsShort(t *testing.T) {
	t.Parallel()
	table := keyed(99_999)
	table.number = 1 << 40
	size := func(d division) int {
		before := table
		table = divided(t, before, d)
		return len(table.since(before).encode(partBytes)[0])
	}
	a, b := size(division{Splits: []assign.Split{{Shard: 99_998, At: []uint64{1<<64 - 9}}}}), size(division{Settled: []int32{99_998}})
	t.Logf("%d bytes for a split, %d for its end", a, b)
	if a > 150 || b > 50 {
		t.Errorf("%d and %d bytes, want at most 150 and 50", a, b)
	}
}
