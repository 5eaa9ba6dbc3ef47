package effect

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/core/driver"
)

const (
	takePage = 256                                                                  // records that Take reads at once
	maxTake  = 128 << 20                                                            // bytes of what Take returns
	keyChars = "-./0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz" // of keys, in their order
)

// Take returns the operations that bring the effects of a range along, for a sharding.Take: lease is that of the
// shard that gets the range, from is the shard that had it, and has reports whether an effect's key belongs to the
// range. What is open stays so: the next Do with its key decides, as after a takeover.
//
//	ops, err := effect.Take(ctx, backend, lease, from, func(key string) bool {
//		return r.Has(keys.Of(strings.TrimPrefix(key, "pay/")))
//	})
//
// Call Do in Slice.Do of the key, so that the shard keeps the range until Do returns.
//
// Take reads 256 effects at a time. If the range has effects of more than 128 MiB, the error matches
// core.ErrTooLarge: set Options.Keep or MaxResult lower.
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
	theirs := func(prefix string) ([]core.Item, error) { return b.List(ctx, core.ShardID(from), prefix, takePage) }
	err := walk(recordPrefix, theirs, has, func(record, index core.Op) error {
		taken[record.Key], taken[index.Key] = true, true
		return cmp.Or(add(record), add(index))
	})
	if err != nil {
		return nil, err
	}
	ours := func(prefix string) ([]core.Item, error) { return lease.List(ctx, prefix, takePage) }
	err = walk(recordPrefix, ours, has, func(record, index core.Op) (err error) { // of a time when the range was here before
		for _, op := range []core.Op{index, record} { // in this order: an index without its record would end a later effect
			if err == nil && !taken[op.Key] {
				err = add(core.Delete(op.Key))
			}
		}
		return err
	})
	return ops, err
}

// walk calls do with the writes of each record whose key begins with prefix and is in the range, a page of list at a
// time. If a page is full, it reads those with each next character, from that of the page's last record on.
func walk(prefix string, list func(prefix string) ([]core.Item, error), has func(key string) bool, do func(record, index core.Op) error) error {
	items, err := list(prefix)
	rest := ""
	if err == nil && len(items) == takePage {
		last := items[takePage-1].Key[len(prefix):]
		rest = keyChars[max(0, strings.IndexByte(keyChars, last[0])):]
	}
	for i := 0; i < len(items) && err == nil; i++ {
		if key := items[i].Key; rest != "" && len(key) > len(prefix) && key[len(prefix)] == rest[0] {
			break // the others are read below
		} else if has(strings.TrimPrefix(key, recordPrefix)) {
			err = do(whole(&items[i]))
		}
	}
	items = nil // before those below are read
	for i := 0; i < len(rest) && err == nil; i++ {
		if next := prefix + rest[i:i+1]; driver.CheckPrefix(next) == nil {
			err = walk(next, list, has, do)
		}
	}
	return err
}

// whole returns the writes of a record, and of the item that it has in an index. A damaged one is listed as open.
func whole(item *core.Item) (record, index core.Op) {
	record = core.Put(item.Key, item.Value)
	if e, err := decode(item, recordPrefix, ""); err == nil && !e.State.Open() {
		return record, core.Put(endKey(e), nil)
	}
	return record, core.Put(openPrefix+strings.TrimPrefix(item.Key, recordPrefix), item.Value)
}
