package sharding

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/internal/keyspace"
	"github.com/tenure-go/tenure/sharding/assign"
)

// randomTable returns a table after some plans, and the changes that led to this table.
func randomTable(rng *rand.Rand, plans int) (*assignments, []*planChange) {
	t := &assignments{}
	var changes []*planChange
	for range plans {
		c := &planChange{Number: t.number + 1}
		if t.names == nil || rng.IntN(8) == 0 {
			c.Base, c.Specs = true, []string{fmt.Sprintf("orders-00..%02d", 1+rng.IntN(60)), "x"}
			if rng.IntN(2) == 0 {
				p := planner{Specs: c.Specs, Keys: Keyspace{Name: "k", Shards: 1 + rng.IntN(20)}}
				begun, err := p.begin(&assignments{})
				if err != nil {
					panic(err)
				}
				base := begun.base(c.Number)
				c.Keys, c.Next, c.Ranges = base.Keys, base.Next, base.Ranges
			}
		} else {
			d := randomDivision(rng, t, nil)
			c.Splits, c.Merges = d.Splits, d.Merges
			for _, x := range t.changes {
				i, _ := indexOf(t, x.From)
				switch rng.IntN(6) {
				case 0, 1:
					c.Settled = append(c.Settled, int32(i))
				case 2:
					for _, g := range x.Gifts {
						k, _ := indexOf(t, g.Shard)
						c.Refused = append(c.Refused, refusal{int32(k), g.Shard})
					}
				}
			}
		}
		members := make([]assign.Member, len(t.members))
		if !c.Base {
			copy(members, t.members)
		} else {
			members = nil
		}
		for slot, m := range members {
			if m.ID != "" && rng.IntN(5) == 0 {
				c.Gone = append(c.Gone, int32(slot))
			}
		}
		for range 1 + rng.IntN(2) {
			slot := int32(len(members))
			members = append(members, assign.Member{})
			c.Seats = append(c.Seats, memberSlot{slot, assign.Member{ID: core.SessionID(fmt.Sprintf("s%x", rng.Uint64())), Node: "n", Zone: "z", Weight: int32(rng.IntN(5)), Drain: rng.IntN(9) == 0}})
		}
		n := len(t.names)
		if c.Base {
			names, _ := keyspace.Expand(c.Specs...)
			n = len(names) + len(c.Ranges)
		}
		for s := range n {
			if rng.IntN(3) == 0 || c.Base && rng.IntN(10) > 0 {
				m := slotMove{Shard: int32(s), To: c.Seats[rng.IntN(len(c.Seats))].Slot, Plan: c.Number, Why: assign.Reason(1 + rng.IntN(6))}
				if c.Base {
					m.Plan = rng.Int64N(c.Number + 1)
				} else {
					m.Plan = 0
				}
				c.Moves = append(c.Moves, m)
			}
		}
		changes = append(changes, c)
		var err error
		if t, err = t.apply(c); err != nil {
			panic(err)
		}
	}
	return t, changes
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
		if !reflect.DeepEqual(j.table, want) {
			t.Fatalf("read %+v\nwant %+v", j.table, want)
		}
		late := &journal{table: &assignments{}, after: 100}
		for k, part := range want.base(want.number).encode(size) {
			late.add(&core.Entry{Seq: core.Seq(101 + k), Token: 1, Payload: part})
		}
		if !reflect.DeepEqual(late.table.ranges, want.ranges) || len(late.table.changes) != len(want.changes) || late.table.next != want.next {
			t.Fatalf("a base has %v, changes %v, and next %d, want %v, %v, %d", late.table.ranges, late.table.changes, late.table.next, want.ranges, want.changes, want.next)
		}
		for s := range want.names {
			a, b := want.at(s), late.table.at(s)
			if a != b && a.Owner.ID != "" {
				t.Fatalf("a base says %+v, want %+v", b, a)
			}
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
	add(want.base(want.number).encode(1 << 20)[0])
	if j.gap != nil || j.table.number != want.number {
		t.Errorf("plan %d after a base, %v", j.table.number, j.gap)
	}
}

// A plan that does not follow the table's last plan is not applied, because its moves were planned
// from a different table (W1).
func TestPlanFollowsItsPredecessor(t *testing.T) {
	t.Parallel()
	begin := func() (*assignments, *planChange) {
		base := &planChange{Number: 4, Base: true, Specs: []string{"a", "b"}, Seats: []memberSlot{{0, assign.Member{ID: "m0"}}, {1, assign.Member{ID: "m1"}}},
			Moves: []slotMove{{Shard: 0, To: 0, Plan: 4, Why: assign.Orphaned}, {Shard: 1, To: 0, Plan: 4, Why: assign.Orphaned}}}
		table, err := (&assignments{}).apply(base)
		if err != nil {
			t.Fatal(err)
		}
		return table, base
	}
	for _, number := range []int64{1, 3, 4, 5, 6, 7} {
		table, base := begin()
		c := &planChange{Number: number, Moves: []slotMove{{Shard: 1, To: 1, Why: assign.Shared}}}
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

// Parts that do not belong together do not form a plan (W3). For example, the beginning of a plan
// is missing, or a part comes from a different assigner or plan.
func TestPartsBelongTogether(t *testing.T) {
	t.Parallel()
	table, _ := randomTable(rand.New(rand.NewPCG(5, 5)), 1)
	c := table.base(7)
	parts := c.encode(len(c.body())/3 + 1)
	other := table.base(8).encode(len(c.body())/3 + 1)
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
	f.Add(int64(2), (&planChange{Number: 2, Gone: []int32{9999}, Isolation: isolation{Time: 5, Within: 1, Hold: []int32{0}, Until: 9, Versions: []string{"v"}},
		Settled: []int32{77}, Refused: []refusal{{78, "x"}}, Splits: []assign.Split{{Shard: 3, At: []uint64{1}}},
		Merges: []assign.Merge{{From: 1, To: 99}}}).body())
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
					table.ranged()
					_ = table.base(table.number + 1).body()
				}
			}
			if len(c.Specs) < 4 {
				if table, err := (&assignments{}).apply(c); err == nil {
					table.ranged()
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

// In the log, a split takes a few tens of bytes, and so does the plan that completes the split.
func TestSplitIsShort(t *testing.T) {
	t.Parallel()
	split := &planChange{Number: 1 << 40, Splits: []assign.Split{{Shard: 99_999, At: []uint64{1 << 60}}}}
	settled := &planChange{Number: 1 << 40, Settled: []int32{99_999}}
	a, b := len(split.encode(partBytes)[0]), len(settled.encode(partBytes)[0])
	t.Logf("%d bytes for a split, %d for its end", a, b)
	if a > 50 || b > 50 {
		t.Errorf("%d and %d bytes, want at most 50 each", a, b)
	}
}
