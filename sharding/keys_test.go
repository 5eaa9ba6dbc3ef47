package sharding

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/internal/keyspace"
	"github.com/tenure-go/tenure/sharding/assign"
)

// The hash of a key never changes, because it determines where the key's data is.
func TestHashIsPermanent(t *testing.T) {
	t.Parallel()
	mixed, plain := Keyspace{}, Keyspace{Hash: keyspace.HashFNV}
	for key, want := range map[string][2]uint64{
		"":            {0xf52a15e9a9b5e89b, 0xcbf29ce484222325},
		"a":           {0x02c0bdbf481420f8, 0xaf63dc4c8601ec8c},
		"customer-42": {0xe02a92178bccfd76, 0x1e1b8c70eb18f59e},
		"Zürich":      {0xc65e9341af283a5d, 0x0ef841596f67fdc0},
		"\x00\xff":    {0xa70bee94c6c8447b, 0x0831c907b4ea2b60},
	} {
		if got := [2]uint64{mixed.Of(key), plain.Of(key)}; got != want {
			t.Errorf("the hashes of %q are %#016x, want %#016x", key, got, want)
		}
	}
	m := keyed(16).ranged()
	count := map[string]int{}
	for i := range 160_000 {
		count[m.Shard(fmt.Sprintf("key-%d", i))]++
	}
	for shard, n := range count {
		if n < 9_600 || n > 10_400 {
			t.Errorf("of 160,000 keys %s has %d", shard, n)
		}
	}
}

func keyed(n int) *assignments {
	p := planner{Keys: Keyspace{Name: "k", Shards: n}}
	t, err := p.begin(&assignments{})
	if err != nil {
		panic(err)
	}
	return t
}

func TestKeyspaceValidate(t *testing.T) {
	t.Parallel()
	for _, k := range []Keyspace{
		{Name: "a"}, {Shards: 4}, {Name: "a", Shards: -1}, {Name: "a", Shards: 4, Digits: 10}, {Name: "a", Shards: 4, Hash: "md5"},
		{Name: "_a", Shards: 4}, {Name: "a/b", Shards: 4}, {Name: "a", Shards: 1 << 30}, {Name: strings.Repeat("a", 118), Shards: 4},
	} {
		if err := k.Validate(); !errors.Is(err, core.ErrInvalid) ||
			!strings.HasPrefix(err.Error(), "tenure: "+core.ErrInvalid.Error()+": keyspace ") {
			t.Errorf("%+v: %v, want ErrInvalid, of a keyspace", k, err)
		}
	}
	if err := (Keyspace{Name: strings.Repeat("a", 117), Shards: 4}).Validate(); err != nil {
		t.Error(err)
	}
	k := Keyspace{Name: "orders", Shards: 8, Hash: keyspace.HashFNV}
	if err := k.Validate(); err != nil {
		t.Error(err)
	}
	for _, s := range []string{"orders-1", "orders-00001", "order-0001", "orders-000x", "orders--001", "orders-99999999999"} {
		if i, err := k.index(s); err == nil {
			t.Errorf("%s is shard %d", s, i)
		}
	}
	if _, _, err := (&Options{Shards: []string{"orders-0003"}, Keyspace: k}).resolve(); !errors.Is(err, core.ErrInvalid) {
		t.Errorf("a shard of the keyspace is fixed, too: %v", err)
	}
}

// The ends of a range are written in the form of Kubernetes' shardRange, and can be read again.
func TestRange(t *testing.T) {
	t.Parallel()
	for _, x := range []struct {
		r    assign.Range
		text string
		in   []uint64
		out  []uint64
	}{
		{assign.Range{}, "'0x0000000000000000', '0x10000000000000000'", []uint64{0, 1, 1<<64 - 1}, nil},
		{equal(1, 2), "'0x8000000000000000', '0x10000000000000000'", []uint64{1 << 63, 1<<64 - 1}, []uint64{0, 1<<63 - 1}},
		{equal(0, 2), "'0x0000000000000000', '0x8000000000000000'", []uint64{0, 1<<63 - 1}, []uint64{1 << 63, 1<<64 - 1}},
		{assign.Range{From: 5, To: 6}, "'0x0000000000000005', '0x0000000000000006'", []uint64{5}, []uint64{0, 4, 6}},
		{empty, "'0x0000000000000001', '0x0000000000000001'", nil, []uint64{0, 1, 2}},
	} {
		if x.r.String() != x.text || x.r.Empty() != (x.in == nil) {
			t.Errorf("%v, empty %v; want %s", x.r, x.r.Empty(), x.text)
		}
		for _, h := range x.in {
			if !x.r.Has(h) {
				t.Errorf("%v has not %x", x.r, h)
			}
		}
		for _, h := range x.out {
			if x.r.Has(h) {
				t.Errorf("%v has %x", x.r, h)
			}
		}
		text, err := json.Marshal(x.r)
		var again assign.Range
		if err != nil || json.Unmarshal(text, &again) != nil || again != x.r {
			t.Errorf("%v is written %s and read %v, %v", x.r, text, again, err)
		}
	}
	for _, bad := range []string{`[]`, `["0x1"]`, `["0x1","0x0"]`, `["1","0x2"]`, `["0x11111111111111111","0x2"]`, `["0x1","0x2","0x3"]`, `null`, `{}`} {
		var r assign.Range
		if err := json.Unmarshal([]byte(bad), &r); err == nil && bad != "null" {
			t.Errorf("%s is read as %v", bad, r)
		}
	}
	for n := 1; n < 40; n++ {
		last := uint64(0)
		for i := range n {
			if r := equal(i, n); r.From != last || r.Empty() {
				t.Fatalf("range %d of %d is %v, and begins not at %x", i, n, r, last)
			} else {
				last = r.To
			}
		}
		if last != 0 {
			t.Fatalf("%d ranges end at %x", n, last)
		}
	}
}

// No key is ever served by two shards, regardless of how ranges are split and merged and in which
// order their shards note the changes. In the end, each key is served by the one shard that the map
// names. Names are never reused.
func TestRangesNeverOverlap(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(6, 6))
	for range 300 {
		table := keyed(1 + rng.IntN(4))
		notes := map[string]note{}
		used := map[string]bool{}
		hashes := make([]uint64, 50)
		for i := range hashes {
			hashes[i] = rng.Uint64()
		}
		for range 15 {
			c := randomDivision(rng, table, notes)
			next, err := table.apply(c)
			if err != nil {
				t.Fatal(err)
			}
			for i, name := range next.names {
				if _, before := indexOf(table, name); before {
					continue
				}
				if used[name] {
					t.Fatalf("%s is used again for %v", name, next.ranges[i])
				}
				used[name] = true
			}
			table = next
			for _, x := range table.changes { // no shard of this change takes part in another change yet
				for _, shard := range append(named(x.Gifts), x.From) {
					i, _ := indexOf(table, shard)
					if r := table.ranges[i]; r.To-1-r.From > 1 {
						if _, err := table.apply(&planChange{Number: table.number + 1, Splits: []assign.Split{{Shard: int32(i), At: []uint64{r.From + 1}}}}); err == nil {
							t.Fatalf("%s is split in the middle of %+v", shard, x)
						}
					}
				}
			}
			for range rng.IntN(8) {
				act(t, rng, table, notes)
				serveOnce(t, table, notes, hashes, false)
			}
		}
		for range 3 { // refused ranges go back with the next plan
			for range 200 {
				act(t, rng, table, notes)
			}
			c := randomDivision(rng, table, notes)
			c.Splits, c.Merges = nil, nil
			var err error
			if table, err = table.apply(c); err != nil {
				t.Fatal(err)
			}
		}
		serveOnce(t, table, notes, hashes, true)
	}
}

// randomDivision returns a plan that settles complete changes, and randomly splits and merges
// ranges.
func randomDivision(rng *rand.Rand, t *assignments, notes map[string]note) *planChange {
	c := &planChange{Number: t.number + 1}
	for _, x := range t.changes {
		done := len(x.Gifts) > 0 || notes[x.From].Map >= x.Number
		var refused []refusal
		for _, g := range x.Gifts {
			n := notes[g.Shard]
			done = done && n.Map >= x.Number
			if k, _ := indexOf(t, g.Shard); n.Refused != "" {
				refused = append(refused, refusal{int32(k), n.Refused})
			}
		}
		i, _ := indexOf(t, x.From)
		switch {
		case !done:
		case refused != nil:
			c.Refused = append(c.Refused, refused...)
		default:
			c.Settled = append(c.Settled, int32(i))
		}
	}
	touched := map[int]bool{}
	for range 3 {
		i := rng.IntN(len(t.names))
		r := t.ranges[i]
		if t.change(t.names[i]) != nil || r.Empty() || touched[i] {
			continue
		}
		touched[i] = true
		if rng.IntN(2) == 0 {
			at := []uint64{r.From + 1 + rng.Uint64N(max(r.To-1-r.From, 2)-1)}
			for rng.IntN(2) == 0 && r.Has(at[len(at)-1]+1<<56) {
				at = append(at, at[len(at)-1]+1<<56)
			}
			if s := (assign.Split{Shard: int32(i), At: at}); t.splits(s) {
				c.Splits = append(c.Splits, s)
			}
			continue
		}
		for k := range t.names {
			if m := (assign.Merge{From: int32(i), To: int32(k)}); !touched[k] && t.merges(m) {
				touched[k] = true
				c.Merges = append(c.Merges, m)
				break
			}
		}
	}
	return c
}

func refuse(table *assignments, notes map[string]note, c *rangeChange, g gift) {
	n := note{Map: c.Number, Refused: "x"}
	i, _ := indexOf(table, g.Shard)
	if r := c.before(g.Shard, table.ranges[i]); !r.Empty() {
		n.Range = &r
	}
	notes[g.Shard] = n
}

// act lets one shard note its next step, like a Slice.
func act(t *testing.T, rng *rand.Rand, table *assignments, notes map[string]note) {
	if len(table.changes) == 0 {
		return
	}
	c := table.changes[rng.IntN(len(table.changes))]
	if notes[c.From].Map < c.Number {
		n := note{Map: c.Number, Gave: c.Gifts}
		if !c.Rest.Empty() {
			n.Range = &c.Rest
		}
		for _, g := range notes[c.From].Gave {
			if notes[g.Shard].Map < notes[c.From].Map {
				t.Fatalf("%s gives again before %s has taken", c.From, g.Shard)
			}
		}
		notes[c.From] = n
		return
	}
	if len(c.Gifts) == 0 {
		return
	}
	i := rng.IntN(len(c.Gifts))
	g := c.Gifts[i]
	if i+1 < len(c.Gifts) {
		switch next := notes[c.Gifts[i+1].Shard]; {
		case next.Map < c.Number:
			return
		case next.Refused != "" && notes[g.Shard].Map < c.Number:
			refuse(table, notes, &c, g)
			return
		}
	}
	if notes[g.Shard].Map < c.Number && rng.IntN(4) == 0 {
		refuse(table, notes, &c, g)
		return
	}
	if notes[g.Shard].Map >= c.Number {
		return
	}
	r := join(served(table, notes, g.Shard), g.Range)
	notes[g.Shard] = note{Map: c.Number, Range: &r}
}

// served returns the range that a shard serves according to its note, or according to the table if
// it has no note.
func served(table *assignments, notes map[string]note, shard string) assign.Range {
	if n, ok := notes[shard]; ok {
		return n.has()
	}
	i, ok := indexOf(table, shard)
	if !ok {
		return empty
	}
	if c := table.change(shard); c != nil {
		return c.before(shard, table.ranges[i])
	}
	return table.ranges[i]
}

func serveOnce(t *testing.T, table *assignments, notes map[string]note, hashes []uint64, all bool) {
	t.Helper()
	m := newMap(table.number, table.keys, table.names, table.ranges)
	shards := map[string]bool{}
	for _, name := range table.names {
		shards[name] = true
	}
	for name := range notes {
		shards[name] = true
	}
	for _, h := range hashes {
		var by []string
		for name := range shards {
			if served(table, notes, name).Has(h) {
				by = append(by, name)
			}
		}
		if len(by) > 1 || all && (len(by) != 1 || by[0] != m.ShardOf(h)) {
			t.Fatalf("%x is served by %v, and the map says %s", h, by, m.ShardOf(h))
		}
	}
}

// FuzzNote: any item is either a possible note or an error.
func FuzzNote(f *testing.F) {
	f.Add([]byte(`{"map":2,"range":["0x0000000000000000","0x8000000000000000"],"gave":[{"shard":"k-0001","range":["0x8000000000000000","0x10000000000000000"]}]}`))
	f.Add([]byte(`{"map":256}`))
	f.Add([]byte("null"))
	f.Add([]byte(nil))
	f.Fuzz(func(t *testing.T, value []byte) {
		n, err := readNote("k-0000", &core.Item{Value: value})
		if err != nil {
			return
		}
		text, err := json.Marshal(n)
		if err != nil {
			t.Fatal(err)
		}
		again, err := readNote("k-0000", &core.Item{Value: text})
		if err != nil || again.Map != n.Map || again.has() != n.has() || len(again.Gave) != len(n.Gave) {
			t.Errorf("%+v became %+v, %v", n, again, err)
		}
	})
}
