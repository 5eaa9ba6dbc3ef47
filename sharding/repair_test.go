package sharding

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tenure-go/tenure/backends/memory"
	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/sharding/assign"
)

var ordersTwo = Keyspace{Name: "orders", Shards: 2}

// TestRepair: if no member understands the plans, the map is rebuilt from the notes of the shards,
// and members continue with this map. Ranges and owners stay the same, and ranges can be split
// again.
func TestRepair(t *testing.T) {
	bubble(t, func(w *world) {
		var s said
		empty, err := memory.Open(w.Context(), w.store, "test", nil)
		if err != nil {
			w.Fatal(err)
		}
		defer empty.Close()
		refused(w, empty, ordersTwo, core.ErrConflict, "no keyspace")
		d := &divider{splits: map[string][]uint64{"orders-0000": {1 << 60}}}
		a := formed(w, "a", d, &s, false)
		split(w, a)
		d.ask(nil, map[string]string{"orders-0002": "orders-0001"})
		w.await("the merge", 20*ttl, func() bool { return a.Map().Len() == 2 && len(a.assigned().changes) == 0 })
		refused(w, a.b, ordersTwo, core.ErrConflict, "understood")
		d.ask(nil, nil)
		before, held := fmt.Sprint(a.Map().from, a.Map().shards), a.e.View().Leases
		if err := a.e.Withdraw(w.Context(), assigner); err != nil {
			w.Error(err)
		}
		refused(w, a.b, ordersTwo, core.ErrConflict, "understood")
		foreign(w, []byte{formVersion + 1, 9}, false)
		foreign(w, []byte{formVersion, 9, 0, 2, 1}, false) // as a killed repair leaves the log
		b := formed(w, "b", d, &s, false)
		time.Sleep(5 * ttl)

		for range 2 { // reading changes nothing
			m, err := Repair(w.Context(), b.b, ordersTwo, nil)
			if err != nil || fmt.Sprint(m.from, m.shards) != before {
				w.Fatalf("the map is rebuilt as %v: %v, want %s", m, err, before)
			}
		}
		if b.Map() != nil {
			w.Error("reading the notes has changed the plans")
		}
		refused(w, b.b, Keyspace{Name: "orders", Shards: 8}, core.ErrInvalid, "orders-0001", "restore the items")
		refused(w, b.b, Keyspace{Name: "other", Shards: 2}, core.ErrInvalid, "it has 0 shards")
		if _, err := Repair(w.Context(), b.b, ordersTwo, &core.Options{Node: "tool", LockDir: "none",
			Logger: slog.New(slog.DiscardHandler)}); err != nil {
			w.Fatal(err)
		}
		refused(w, a.b, ordersTwo, core.ErrConflict)
		w.await("the map on both", 5*ttl, func() bool { return b.Map() != nil && a.assigned().number == b.assigned().number })
		for _, m := range []*member{a, b} {
			if got := fmt.Sprint(m.Map().from, m.Map().shards); got != before {
				w.Errorf("%s has the map %s, want %s", m.node, got, before)
			}
		}
		for _, l := range held {
			if o, _ := a.e.View().Owner(string(l.Fence.Shard)); l.Fence.Shard != assigner && o.Token < l.Fence.Token {
				w.Errorf("the lease of %s is %+v, and was %+v", l.Fence.Shard, o, l.Fence)
			}
		}
		d.ask(map[string][]uint64{"orders-0000": {1 << 59}}, nil)
		w.await("another split", 20*ttl, func() bool {
			return a.Map().Len() == 3 && len(a.assigned().changes) == 0 && a.Map().ShardOf(1<<59) == "orders-0003"
		})
	})
}

// TestRepairBetweenSteps: the plans are lost after a range is given and before it is taken. After
// the repair, the range is taken, both by new members and by the members that gave ranges.
func TestRepairBetweenSteps(t *testing.T) {
	t.Parallel()
	for _, restart := range []bool{false, true} {
		t.Run(fmt.Sprintf("restart=%v", restart), func(t *testing.T) {
			bubble(t, func(w *world) {
				var s said
				var may atomic.Bool
				take := func(context.Context, string, assign.Range) ([]core.Op, error) {
					if !may.Load() {
						return nil, errors.New("not now")
					}
					return nil, nil
				}
				d := &divider{splits: map[string][]uint64{"orders-0000": {1 << 60}}}
				a := formedTaking(w, "a", d, &s, false, take)
				w.await("the gift", 20*ttl, func() bool {
					n, err := a.noted(w.Context(), "orders-0000")
					return err == nil && len(n.Gave) > 0
				})
				d.ask(nil, nil)
				if err := a.e.Withdraw(w.Context(), assigner); err != nil {
					w.Error(err)
				}
				if restart {
					a.crash()
				}
				foreign(w, []byte{formVersion + 1, 9}, false)
				b := formedTaking(w, "b", d, &s, false, take)
				time.Sleep(5 * ttl)
				o := &core.Options{Node: "tool", LockDir: "none", Logger: slog.New(slog.DiscardHandler)}
				if m, err := Repair(w.Context(), b.b, ordersTwo, o); err != nil || m.Len() != 3 {
					w.Fatalf("the map is %v: %v", m, err)
				}
				time.Sleep(5 * ttl)
				may.Store(true)
				w.await("the taken range", time.Minute, func() bool {
					for _, m := range w.members {
						if x := m.slice("orders-0002"); x != nil && x.serving.Load().has == (assign.Range{From: 1 << 60, To: 1 << 63}) {
							return len(m.assigned().changes) == 0
						}
					}
					return false
				})
			})
		})
	}
}

// refused checks that Repair refuses to repair, for the expected reason.
func refused(w *world, b core.Backend, k Keyspace, want error, texts ...string) {
	w.Helper()
	m, err := Repair(w.Context(), b, k, nil)
	if m != nil || !errors.Is(err, want) {
		w.Errorf("repaired to %v: %v, want %v", m, err, want)
		return
	}
	for _, text := range texts {
		if !strings.Contains(err.Error(), text) {
			w.Errorf("the error %v does not say %q", err, text)
		}
	}
}

// TestRepairDamagedNote: the error names a note that cannot be decoded or that has a later version.
func TestRepairDamagedNote(t *testing.T) {
	bubble(t, func(w *world) {
		var s said
		value := make(chan []byte)
		d := &divider{splits: map[string][]uint64{"orders-0000": {1 << 60}}}
		a := formed(w, "a", d, &s, false)
		split(w, a)
		d.ask(nil, nil)
		if err := a.leaveNow(); err != nil {
			w.Error(err)
		}
		foreign(w, []byte{formVersion + 1, 9}, false)
		b := w.build("b")
		b.ran <- nil
		if err := b.e.Contend(func(ctx context.Context, l *core.Lease) error {
			for {
				select {
				case v := <-value:
					if _, err := l.Commit(ctx, core.Put(noteKey, v)); err != nil {
						w.Error(err)
					}
					value <- nil
				case <-ctx.Done():
					return nil
				}
			}
		}, "orders-0002"); err != nil {
			w.Fatal(err)
		}
		for _, v := range []string{`{"map":3}`, `{"map":3,"range":["0x1000000000000000","0x1000000000000000"]}`} {
			value <- []byte(v)
			<-value
			refused(w, b.b, ordersTwo, core.ErrInvalid, "orders-0000", "orders-0001", "ends at")
		}
		for _, v := range []string{"", "{", `{"map":0}`, `{"map":"x"}`, `{"map":9,"range":["0x0","y"]}`, `{"map":4611686018427387904}`,
			`{"map":3,"range":["0x1000000000000000","0x9000000000000000"]}`,
			`{"map":3,"gave":[{"shard":"other","range":["0x1000000000000000","0x8000000000000000"]}]}`,
			strings.Repeat(" ", maxNote) + `{"map":3}`} {
			value <- []byte(v)
			<-value
			refused(w, b.b, ordersTwo, core.ErrInvalid, "orders-0002")
		}
	})
}

// TestGather: gather rebuilds the map from the notes of random plans, between any two steps. If a
// note is missing or changed, gather fails or finds a different map that divides the keyspace.
func TestGather(t *testing.T) {
	t.Parallel()
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 1))
		k := Keyspace{Name: "k", Shards: 1 + r.IntN(4)}
		base := &planChange{Number: 1, Base: true, Keys: k, Next: k.Shards}
		for i := range k.Shards {
			base.Ranges = append(base.Ranges, numbered{i, equal(i, k.Shards)})
		}
		table, err := (&assignments{}).apply(base)
		if err != nil {
			t.Fatal(err)
		}
		notes := map[int]note{}
		for range k.Shards {
			notes[len(notes)] = note{}
		}
		has := func(c *rangeChange, shard string) assign.Range {
			i, _ := k.index(shard)
			if n := notes[i]; n.Map > 0 {
				return n.has()
			}
			return c.before(shard, table.ranges[indexed(table, shard)])
		}
		step := func(c *rangeChange) { // one step of a change
			from, _ := k.index(c.From)
			if notes[from].Map < c.Number {
				notes[from] = c.given()
				return
			}
			for _, g := range c.Gifts {
				if to, _ := k.index(g.Shard); notes[to].Map < c.Number {
					all := join(has(c, g.Shard), g.Range)
					notes[to] = note{Map: c.Number, Range: &all}
					return
				}
			}
		}
		settled := func(c *rangeChange) bool {
			for _, g := range c.Gifts {
				if to, _ := k.index(g.Shard); notes[to].Map < c.Number {
					return false
				}
			}
			return true
		}
		for range 40 {
			c := &planChange{Number: table.number + 1}
			if i := int32(r.IntN(len(table.names))); r.IntN(3) > 0 {
				if x := table.ranges[i]; !x.Empty() && table.change(table.names[i]) == nil && x.To-x.From > 4 {
					c.Splits = []assign.Split{{Shard: i, At: []uint64{x.From + 1 + r.Uint64N((x.To-x.From)/2), x.From + (x.To-x.From)/2 + 2}}}
				}
			} else if m := (assign.Merge{From: i, To: int32(r.IntN(len(table.names)))}); table.merges(m) {
				c.Merges = []assign.Merge{m}
			}
			for i := range table.changes {
				if settled(&table.changes[i]) {
					c.Settled = append(c.Settled, int32(indexed(table, table.changes[i].From)))
				}
			}
			if !c.nothing() {
				if table, err = table.apply(c); err != nil {
					t.Fatal(seed, err)
				}
			}
			for range r.IntN(4) {
				if n := len(table.changes); n > 0 {
					step(&table.changes[r.IntN(n)])
				}
			}
			given := func(c *rangeChange) bool { from, _ := k.index(c.From); return notes[from].Map >= c.Number }
			open := 0
			for i := range table.changes {
				if c := &table.changes[i]; given(c) && !settled(c) {
					open++
				}
			}
			got := &planChange{Base: true, Keys: k}
			if err := got.gather(notes, true); err != nil {
				t.Fatalf("seed %d: %v of %+v", seed, err, notes)
			}
			rebuilt, err := (&assignments{}).apply(got)
			if err != nil {
				t.Fatal(seed, err)
			}
			for i, name := range table.names {
				want := table.ranges[i]
				c := table.change(name)
				if c != nil && !given(c) { // the change did not happen
					want = c.before(name, want)
				}
				at, ok := indexOf(rebuilt, name)
				if ok != (!want.Empty() || c != nil && given(c) && !settled(c)) || ok && rebuilt.ranges[at] != want {
					t.Fatalf("seed %d: %s has %v in %v, want %v: %+v", seed, name, ok, rebuilt.ranges, want, notes)
				}
			}
			if len(rebuilt.changes) != open {
				t.Fatalf("seed %d: %d changes, want %d", seed, len(rebuilt.changes), open)
			}
			spoil(t, r, k, notes)
		}
	}
}

func indexed(t *assignments, shard string) int { i, _ := indexOf(t, shard); return i }

// spoil changes one note. The result must be refused or divide the keyspace.
func spoil(t *testing.T, r *rand.Rand, k Keyspace, notes map[int]note) {
	t.Helper()
	bad := map[int]note{}
	for i, n := range notes {
		bad[i] = n
	}
	i := r.IntN(len(notes))
	switch n := bad[i]; r.IntN(4) {
	case 0:
		delete(bad, i)
	case 1:
		x := assign.Range{From: r.Uint64(), To: r.Uint64()}
		n.Map, n.Range = n.Map+1, &x
		bad[i] = n
	case 2:
		n.Map, n.Gave = n.Map+1, append(n.Gave, gift{k.shard(r.IntN(6)), assign.Range{From: r.Uint64(), To: r.Uint64()}})
		bad[i] = n
	case 3:
		n.Map += 5
		bad[i] = n
	}
	c := &planChange{Base: true, Keys: k}
	if c.gather(bad, true) != nil {
		return
	}
	table, err := (&assignments{}).apply(c)
	if err != nil {
		return
	}
	at := uint64(0)
	for _, x := range table.ranged().All() {
		if x.From != at {
			text, _ := json.Marshal(bad)
			t.Fatalf("the notes %s make a map that does not divide the keyspace: %v", text, table.ranges)
		}
		at = x.To
	}
}

// TestRepairOfARefusal: a range is not lost if its taker has refused it and its giver does not
// serve it again yet. The range stays given until the next plan returns it.
func TestRepairOfARefusal(t *testing.T) {
	t.Parallel()
	k := Keyspace{Name: "k", Shards: 1}
	rest, given := assign.Range{From: 0, To: 1 << 62}, gift{k.shard(1), assign.Range{From: 1 << 62, To: 0}}
	notes := map[int]note{0: {Map: 5, Range: &rest, Gave: []gift{given}}, 1: {Map: 5, Refused: "no room"}}
	c := &planChange{Base: true, Keys: k}
	if err := c.gather(notes, true); err != nil {
		t.Fatal(err)
	}
	table, err := (&assignments{}).apply(c)
	if err != nil {
		t.Fatal(err)
	}
	if table, err = table.apply(&planChange{Number: table.number + 1, Refused: []refusal{{Shard: 1}}}); err != nil {
		t.Fatal(err)
	}
	if len(table.changes) != 1 || len(table.changes[0].Gifts) != 0 || table.changes[0].Rest != (assign.Range{}) {
		t.Errorf("the range does not go back: %+v", table.changes)
	}
}
