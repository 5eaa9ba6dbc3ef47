package sql

import (
	"context"
	"fmt"
	"math"

	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/listing"
	"github.com/tenure-go/tenure/internal/oddkey"
)

// Get returns an item, or nil. See driver.Backend.
func (b *Backend) Get(ctx context.Context, shard driver.ShardID, key string) (*driver.Item, error) {
	if err := b.begin(ctx); err != nil {
		return nil, err
	}
	if err := driver.CheckShard(shard); err != nil {
		return nil, err
	}
	if err := driver.CheckKey(key); err != nil {
		return nil, err
	}
	it := driver.Item{Key: key}
	var found bool
	var size int
	var seen sight
	read := b.store.Read
	if shard == driver.PingShard {
		read = b.store.Ping
	}
	err := read(ctx, func(ctx context.Context, data, _ *Tx) (err error) {
		found, err = data.row(ctx, itemRead, []any{b.name, string(shard), key}, &it.Version, &size, &it.Value)
		if err == nil {
			seen, err = b.headAfter(ctx, data, shard)
		}
		return err
	})
	if err == nil {
		err = b.settle(ctx, false, seen)
	}
	if err == nil && found {
		err = b.checkItem(shard, &it, size)
	}
	if err != nil || !found {
		return nil, b.readError(err)
	}
	return &it, nil
}

// List returns the items whose key begins with prefix. See driver.Backend.
func (b *Backend) List(ctx context.Context, shard driver.ShardID, prefix string, limit, largest int) ([]driver.Item, error) {
	if err := b.begin(ctx); err != nil {
		return nil, err
	}
	if err := driver.CheckList(shard, prefix, limit, largest); err != nil {
		return nil, err
	}
	most, width := limit, largest
	if limit == 0 {
		most = math.MaxInt
	}
	if largest == 0 {
		width = math.MaxInt32 // above any that the statement returns
	}
	var items []driver.Item
	var odd []*driver.DamagedError // the first rows under keys that no item can have
	var seen sight
	err := b.store.Read(ctx, func(ctx context.Context, data, _ *Tx) error {
		items, odd = nil, nil
		budget := listing.New(limit, largest)
		var err error
		for low, want, bad, full := prefix, most, 0, true; full && err == nil && len(items) < most; {
			n, last := 0, ""
			err = data.rows(ctx, itemsList, []any{b.name, string(shard), low, after(prefix), want, width}, func(r Row) error {
				var it driver.Item
				var size int
				if err := r.Scan(&it.Key, &it.Version, &size, &it.Value); err != nil {
					return err
				}
				n, last = n+1, it.Key
				switch {
				case driver.CheckKey(it.Key) == nil && len(items) == most:
					return nil
				case driver.CheckKey(it.Key) == nil:
					sent := size
					if size > width {
						sent = 0
					}
					if err := b.checkItem(shard, &it, sent); err != nil {
						return err
					}
					budget.Take(&it, size, shard, fmt.Sprintf("%sitems %s/%s %s", b.stmts.prefix, b.name, shard, it.Key))
					items = append(items, it)
					return nil
				}
				if bad++; bad <= driver.MaxDamaged {
					odd = append(odd, b.damaged("items", string(shard)+" "+it.Key, shard, oddkey.Why))
				}
				return nil
			})
			// The next page begins behind the last row: no valid key has a character below "-". Pages grow with the rows
			// that are left out, so that many of these cost few pages.
			if full = n == want; full && err == nil && last+"!" <= low {
				return b.damaged("items", string(shard), shard, oddkey.Why)
			}
			low, want = last+"!", max(most-len(items), min(bad, maxBad))
		}
		if err == nil {
			seen, err = b.headAfter(ctx, data, shard)
		}
		return err
	})
	if err == nil {
		err = b.settle(ctx, false, seen)
	}
	if err != nil {
		return nil, b.readError(err)
	}
	b.odd.Set(shard, odd)
	return items, nil
}

// maxBad is how many rows List reads at once to get past those that are no items.
const maxBad = 1000

// checkItem refuses an item that the database did not send.
func (b *Backend) checkItem(shard driver.ShardID, it *driver.Item, size int) error {
	if size != len(it.Value) {
		return b.damaged("items", string(shard)+" "+it.Key, shard, "its value is too many bytes")
	}
	return nil
}

// after returns the first key that is greater than all keys with the prefix, or
// "" for no prefix. Keys are ASCII, so the last byte can be raised.
func after(prefix string) string {
	if prefix == "" {
		return ""
	}
	last := len(prefix) - 1
	return prefix[:last] + string(rune(prefix[last]+1))
}
