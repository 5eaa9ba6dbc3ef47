package effect

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/tenure-go/tenure/core"
)

const maxTake = 128 << 20 // largest total of the operations that Take returns, in bytes

// Take returns the operations that transfer the effects of a range, for use in a sharding.Take.
// lease is the lease of the shard that receives the range. The shard from had the range before. has
// reports whether an effect's key belongs to the range. Open effects stay open: the next Do
// decides, as it does after a takeover.
//
//	ops, err := effect.Take(ctx, backend, lease, from, func(key string) bool {
//		return r.Has(keys.Of(strings.TrimPrefix(key, "pay/")))
//	})
//
// Call Do inside the Slice.Do of the effect's key, so that the shard keeps the range until Do
// returns.
//
// Take reads the effects of both shards. If the range's effects exceed 128 MiB, the error matches
// core.ErrTooLarge. To avoid this, set Options.Keep or MaxResult lower.
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
			return nil, d // without it the effect might happen twice
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
		for _, op := range []core.Op{index, record} { // index first: without its record, it would end a later effect
			if err == nil && !taken[op.Key] {
				err = add(core.Delete(op.Key))
			}
		}
		return err
	})
	return ops, err
}

// each calls do with the writes of each record in the range.
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

// whole returns the writes of a record and of its item in an index. It indexes a damaged record as
// open.
func whole(item *core.Item) (record, index core.Op) {
	record = core.Put(item.Key, item.Value)
	if e, err := decode(item, recordPrefix, ""); err == nil && !e.State.Open() {
		return record, core.Put(endKey(e), nil)
	}
	return record, core.Put(openPrefix+strings.TrimPrefix(item.Key, recordPrefix), item.Value)
}
