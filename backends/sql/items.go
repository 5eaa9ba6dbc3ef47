package sql

import (
	"context"
	"math"

	"github.com/tenure-go/tenure/core/driver"
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
func (b *Backend) List(ctx context.Context, shard driver.ShardID, prefix string, limit int) ([]driver.Item, error) {
	if err := b.begin(ctx); err != nil {
		return nil, err
	}
	if err := driver.CheckList(shard, prefix, limit); err != nil {
		return nil, err
	}
	if limit == 0 {
		limit = math.MaxInt
	}
	var items []driver.Item
	var seen sight
	err := b.store.Read(ctx, func(ctx context.Context, data, _ *Tx) error {
		items = nil
		err := data.rows(ctx, itemsList, []any{b.name, string(shard), prefix, after(prefix), limit}, func(r Row) error {
			var it driver.Item
			var size int
			if err := r.Scan(&it.Key, &it.Version, &size, &it.Value); err != nil {
				return err
			}
			items = append(items, it)
			return b.checkItem(shard, &it, size)
		})
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
	return items, nil
}

// checkItem refuses an item that the database did not send, or under no valid key.
func (b *Backend) checkItem(shard driver.ShardID, it *driver.Item, size int) error {
	switch {
	case driver.CheckKey(it.Key) != nil:
		return b.damaged("items", string(shard)+" "+it.Key, shard, whyName)
	case size != len(it.Value):
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
