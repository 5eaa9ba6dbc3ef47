package sharding

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/core/driver"
)

// Repair rebuilds the plans of a keyspace from the notes of its shards, where the plans cannot be
// understood, for tools. Ranges and owners stay as they are. With the options of a member it writes:
// it takes the lease of AssignerShard, and replaces the plans. With nil it only reads.
//
// The error matches core.ErrConflict if the plans are understood, or a member of a newer version
// lives. While a member plans the lease is not granted. The error matches core.ErrInvalid, and names the shards, if the notes do not divide the keyspace.
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

// rebuild returns a base of the keyspace, and its map.
func rebuild(ctx context.Context, b core.Backend, k Keyspace) (j *journal, c *planChange, m *Map, err error) {
	j = journalOf(b)
	if _, err = j.catchUp(ctx); err != nil {
		return nil, nil, nil, err
	}
	limited, cancel := context.WithTimeout(ctx, resync)
	defer cancel()
	v, err := b.Observe(limited, driver.ObserveQuery{})
	if err != nil {
		return nil, nil, nil, err
	}
	for i := range v.Members {
		if x := &v.Members[i]; formOf(x) > formVersion { // it may be giving ranges
			return nil, nil, nil, fmt.Errorf("tenure: %w: the member on node %s has a newer version: repair with that one", core.ErrConflict, x.Node)
		}
	}
	c = &planChange{Number: max(int64(j.after), j.table.number), Base: true, Keys: k, Next: j.table.next}
	if j.table.keys.same(k) {
		c.Keys = j.table.keys // the plans before the first that is not understood say how it began
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
	if j.blind(k) == nil {
		return nil, nil, nil, fmt.Errorf("tenure: %w: the plans are understood: nothing is to be repaired", core.ErrConflict)
	}
	if j.table.keys.Name != "" && !j.table.keys.same(k) {
		err = fmt.Errorf("its plans are those of keyspace %q with hash %s", j.table.keys.Name, cmp.Or(j.table.keys.Hash, HashMixed))
	} else {
		err = c.gather(notes, j.table.keys.Name != "")
	}
	if err != nil {
		return nil, nil, nil, fmt.Errorf("tenure: %w: keyspace %q: %w", core.ErrInvalid, k.Name, err)
	}
	t, err := j.table.apply(c)
	if err != nil {
		return nil, nil, nil, err
	}
	return j, c, t.ranged(), nil
}

// gather fills in a base from the notes of the shards that have a record, each the zero note if the
// shard has noted nothing. certain says that the number of shards at the beginning is.
func (c *planChange) gather(notes map[int]note, certain bool) error {
	k, has, noted := c.Keys, map[int]Range{}, certain
	var pieces []numbered // each hash is in one
	for i := range k.Shards {
		has[i] = equal(i, k.Shards)
	}
	for i, n := range notes {
		c.Number, c.Next, noted = max(c.Number, n.Map), max(c.Next, i+1), noted || n.Map > 0
		if n.Map > maxNumber/2 {
			return fmt.Errorf("shard %q has noted plan %d, which cannot be", k.shard(i), n.Map)
		}
		if n.Map > 0 || i >= k.Shards {
			has[i] = n.has()
		}
	}
	if !noted && c.Next != k.Shards {
		return fmt.Errorf("it has %d shards, none of which has noted a range: say that it began with so many", c.Next)
	}
	c.Number, c.Next = c.Number+1, max(c.Next, k.Shards)
	for i, r := range has {
		pieces = append(pieces, numbered{i, r})
	}
	ends := map[int]bool{}
	for _, i := range slices.Sorted(maps.Keys(notes)) {
		n, open, t := notes[i], false, assignments{changes: c.Changes}
		for _, g := range n.Gave {
			to, err := k.index(g.Shard)
			if err == nil && notes[to].Map >= n.Map {
				continue // it was taken
			}
			r, ok := has[to]
			if !ok {
				r = empty
			}
			meets := r.Empty() || r.To == g.Range.From && r.To != 0 || g.Range.To == r.From && r.From != 0
			if err != nil || !meets || t.change(g.Shard) != nil || t.change(k.shard(i)) != nil {
				return fmt.Errorf("shard %q has noted that it gave %v to %q, which has %v and cannot take it", k.shard(i), g.Range, g.Shard, r)
			}
			has[to], c.Next, open = join(r, g.Range), max(c.Next, to+1), true
			pieces = append(pieces, numbered{to, g.Range})
		}
		if open {
			c.Changes = append(c.Changes, rangeChange{Number: n.Map, From: k.shard(i), Rest: n.has(), Gifts: n.Gave})
			ends[i] = n.Range == nil
		}
	}
	pieces = slices.DeleteFunc(pieces, func(p numbered) bool { return p.Range.Empty() })
	slices.SortFunc(pieces, func(a, b numbered) int { return cmp.Compare(a.Range.From, b.Range.From) })
	at, before := uint64(0), "the beginning"
	for n, p := range pieces {
		if p.Range.From != at || n > 0 && at == 0 {
			return fmt.Errorf("the ranges of %s and shard %q do not meet: %s and %v: restore the items %s of both", before,
				k.shard(p.Shard), hex(at), p.Range, noteKey)
		}
		at, before = p.Range.To, fmt.Sprintf("shard %q", k.shard(p.Shard))
	}
	if at != 0 || len(pieces) == 0 {
		return fmt.Errorf("no shard has the range after %s, from %s: restore the items %s", before, hex(at), noteKey)
	}
	for _, i := range slices.Sorted(maps.Keys(has)) {
		if !has[i].Empty() || ends[i] {
			c.Ranges = append(c.Ranges, numbered{i, has[i]})
		}
	}
	return nil
}
