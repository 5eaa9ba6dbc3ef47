package effect

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/tenure-go/tenure/core"
)

const maxTake = 128 << 20 // maximum total size of the operations that Take returns, in bytes

// Take returns the operations that transfer a range's effects, for use in a sharding.Take. The
// lease's shard receives the range, which belonged to the shard from. The function has reports
// whether an effect's key belongs to the range. As after a takeover, open effects stay open, and
// the next Do decides them.
//
//	ops, err := effect.Take(ctx, backend, lease, from, func(key string) bool {
//		return r.Has(keys.Of(strings.TrimPrefix(key, "pay/")))
//	})
//
// Call Do inside Slice.Do for the effect's key, so that the shard keeps the range until Do returns.
//
// Take reads the effects of both shards. If the range's effects exceed 128 MiB, the error matches
// core.ErrTooLarge. To avoid this error, lower Options.Keep or MaxResult.
func Take(ctx context.Context, b core.Backend, lease *core.Lease, from string, has func(key string) bool) ([]core.Op, error) {
	var ops []core.Op
	taken, size := map[string]bool{}, 0
	add := func(op core.Op) error {
		ops, size = append(ops, op), size+len(op.Key)+len(op.Value)+128
		if size > maxTake {
			return fmt.Errorf("tenure: effect: %w: the effects that shard %q gives have more than %d bytes: set Options.Keep or MaxResult lower",
				core.ErrTooLarge, from, maxTake)
		}
		return nil
	}
	theirs, err := b.List(ctx, core.ShardID(from), recordPrefix, 0, maxRecord)
	if err != nil {
		return nil, err
	}
	for i := range theirs {
		if d := theirs[i].Damaged; d != nil && has(strings.TrimPrefix(theirs[i].Key, recordPrefix)) {
			return nil, d // without this record, the effect might happen twice
		}
	}
	err = each(theirs, has, func(record, index core.Op) error {
		taken[record.Key], taken[index.Key] = true, true
		return cmp.Or(add(record), add(index))
	})
	if err != nil {
		return nil, err
	}
	ours, err := lease.List(ctx, recordPrefix, 0, maxRecord)
	if err != nil {
		return nil, err
	}
	err = each(ours, has, func(record, index core.Op) (err error) { // left from an earlier ownership of the range
		for _, op := range []core.Op{index, record} { // index first: without the record, the index item would end a later effect
			if err == nil && !taken[op.Key] {
				err = add(core.Delete(op.Key))
			}
		}
		return err
	})
	return ops, err
}

// For every record in the range, each calls do with the operations that write the record and its
// index item.
func each(items []core.Item, has func(key string) bool, do func(record, index core.Op) error) error {
	for i := range items {
		if has(strings.TrimPrefix(items[i].Key, recordPrefix)) {
			if err := do(whole(&items[i])); err != nil {
				return err
			}
		}
	}
	return nil
}

// whole returns the operations that write a record and its index item. A damaged record gets an
// item in the index of open effects.
func whole(item *core.Item) (record, index core.Op) {
	record = core.Put(item.Key, item.Value)
	if e, err := decode(item, recordPrefix, ""); err == nil && !e.State.Open() {
		return record, core.Put(endKey(e), nil)
	}
	return record, core.Put(openPrefix+strings.TrimPrefix(item.Key, recordPrefix), item.Value)
}
