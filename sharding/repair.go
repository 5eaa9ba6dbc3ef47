package sharding

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/keyspace"
	"github.com/tenure-go/tenure/sharding/assign"
)

// Repair is meant for tools. If a keyspace's plans cannot be understood, Repair rebuilds them from
// the notes of the keyspace's shards. Ranges and owners do not change. If write contains a member's
// options, Repair replaces the plans under the lease of the assigner's shard. The store does not
// grant this lease while another member plans. If write is nil, Repair only reads.
//
// If the plans can be understood, or a member of a newer version is alive, the error matches
// core.ErrConflict. If the notes do not divide the keyspace completely, the error matches
// core.ErrInvalid and lists the shards.
func Repair(ctx context.Context, b core.Backend, k Keyspace, write *core.Options) (m *Map, err error) {
	if write == nil {
		_, _, m, err = rebuild(ctx, b, k)
		return m, err
	}
	var failed error
	err = core.RunSingleton(ctx, b, assigner, func(ctx context.Context, lease *core.Lease) error {
		var j *journal
		var c *planChange
		if j, c, m, failed = rebuild(ctx, b, k); failed == nil {
			failed = j.write(ctx, lease, c, partSize(b.Info().Limits))
		}
		return nil
	}, write)
	return m, cmp.Or(failed, err)
}

func rebuild(ctx context.Context, b core.Backend, k Keyspace) (*journal, *planChange, *Map, error) {
	j := journalOf(b)
	if _, err := j.catchUp(ctx); err != nil {
		return nil, nil, nil, err
	}
	limited, cancel := context.WithTimeout(ctx, resync)
	defer cancel()
	v, err := b.Observe(limited, driver.ObserveQuery{})
	if err != nil {
		return nil, nil, nil, err
	}
	// A member that understands the plans may be transferring ranges right now.
	newer := slices.ContainsFunc(v.Members, func(x core.Member) bool { return formOf(&x) > formVersion })
	switch {
	case !newer && j.gap == nil && j.table.keys.Name == "":
		return nil, nil, nil, fmt.Errorf("tenure: %w: the namespace has no keyspace, so there is nothing to repair: check its name",
			core.ErrConflict)
	case newer || j.blind(k) == nil:
		return nil, nil, nil, fmt.Errorf("tenure: %w: the plans are understood, here or by a member of a newer version: use that one",
			core.ErrConflict)
	}
	notes := map[int]note{}
	for _, s := range v.Shards {
		i, err := k.index(string(s.Shard))
		if err != nil {
			continue
		}
		call, cancel := context.WithTimeout(ctx, callTimeout)
		item, err := b.Get(call, s.Shard, noteKey)
		cancel()
		if err == nil {
			notes[i], err = readNote(string(s.Shard), item)
		}
		if err != nil {
			return nil, nil, nil, err
		}
	}
	t := j.table // the plans before the first unreadable plan, which show how the keyspace began
	c := &planChange{Number: max(int64(j.after), t.number), Base: true, Keys: k, Next: t.next}
	if t.keys.Name != "" {
		c.Keys = t.keys
	}
	if err = c.gather(notes, t.keys.Name != ""); !c.Keys.same(k) {
		err = fmt.Errorf("its plans are those of keyspace %q with hash %s", t.keys.Name, cmp.Or(t.keys.Hash, keyspace.HashMixed))
	}
	if err == nil {
		t, err = t.apply(c)
	}
	if err != nil {
		return nil, nil, nil, fmt.Errorf("tenure: %w: keyspace %q: %w", core.ErrInvalid, k.Name, err)
	}
	return j, c, t.ranged(), nil
}

// gather fills in a base from the notes of the shards that have a record. A shard without a note
// has the zero note. If the keyspace's initial number of shards is known, certain is true.
func (c *planChange) gather(notes map[int]note, certain bool) error {
	k, has, ends := c.Keys, map[int]assign.Range{}, map[int]bool{}
	for i := range k.Shards {
		has[i] = equal(i, k.Shards)
	}
	for i, n := range notes {
		c.Number, c.Next, certain = max(c.Number, n.Map), max(c.Next, i+1), certain || n.Map > 0
		if n.Map > 0 || i >= k.Shards {
			has[i] = n.has()
		}
	}
	if !certain && c.Next != k.Shards {
		return fmt.Errorf("it has %d shards, none of which has noted a range: say that it began with so many", c.Next)
	}
	c.Number, c.Next = c.Number+1, max(c.Next, k.Shards)
	for _, i := range slices.Sorted(maps.Keys(notes)) {
		open, err := c.reopen(i, notes, has)
		if err != nil {
			return err
		}
		if n := notes[i]; open {
			c.Changes = append(c.Changes, rangeChange{Number: n.Map, From: k.shard(i), Rest: n.has(), Gifts: n.Gave})
			ends[i] = n.Range == nil
		}
	}
	for _, i := range slices.Sorted(maps.Keys(has)) {
		if !has[i].Empty() || ends[i] {
			c.Ranges = append(c.Ranges, numbered{i, has[i]})
		}
	}
	return c.divides()
}

// If gifts from the i-th shard were not taken, reopen returns true, and adds these gifts to the
// takers' ranges in has.
func (c *planChange) reopen(i int, notes map[int]note, has map[int]assign.Range) (open bool, err error) {
	k, n, t := c.Keys, notes[i], assignments{changes: c.Changes}
	for _, g := range n.Gave {
		to, err := k.index(g.Shard)
		if x := notes[to]; err == nil && (x.Map > n.Map || x.Map == n.Map && x.Refused == "") {
			continue // the gift was taken
		}
		r, ok := has[to]
		if !ok {
			r = empty
		}
		meets := r.Empty() || r.To == g.Range.From && r.To != 0 || g.Range.To == r.From && r.From != 0
		if err != nil || !meets || t.change(g.Shard) != nil || t.change(k.shard(i)) != nil {
			return false, fmt.Errorf("shard %q has noted that it gave %v to %q, which has %v and cannot take it", k.shard(i), g.Range, g.Shard, r)
		}
		has[to], c.Next, open = join(r, g.Range), max(c.Next, to+1), true
	}
	return open, nil
}

func (c *planChange) divides() error {
	k := c.Keys
	pieces := slices.DeleteFunc(slices.Clone(c.Ranges), func(p numbered) bool { return p.Range.Empty() })
	slices.SortFunc(pieces, func(a, b numbered) int { return cmp.Compare(a.Range.From, b.Range.From) })
	at, before := uint64(0), "the beginning"
	for n, p := range pieces {
		if p.Range.From != at || n > 0 && at == 0 {
			return fmt.Errorf("%s ends at %s, and shard %q has %v: restore the items %s of both", before, keyspace.FormatHash(at), k.shard(p.Shard), p.Range,
				noteKey)
		}
		at, before = p.Range.To, fmt.Sprintf("shard %q", k.shard(p.Shard))
	}
	if at != 0 || len(pieces) == 0 {
		return fmt.Errorf("%s ends at %s, and no shard has the rest: restore the items %s", before, keyspace.FormatHash(at), noteKey)
	}
	return nil
}
