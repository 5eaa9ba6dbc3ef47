package sql

import (
	"context"

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
	err := b.store.Read(ctx, func(ctx context.Context, data, _ *Tx) (err error) {
		found, err = data.row(ctx, itemRead, []any{b.name, string(shard), key}, &it.Version, &it.Value)
		return err
	})
	if err != nil || !found {
		return nil, b.readError(err)
	}
	return &it, nil
}

// List returns the items whose key begins with prefix. See driver.Backend.
func (b *Backend) List(ctx context.Context, shard driver.ShardID, prefix string) ([]driver.Item, error) {
	if err := b.begin(ctx); err != nil {
		return nil, err
	}
	if err := driver.CheckShard(shard); err != nil {
		return nil, err
	}
	if err := driver.CheckPrefix(prefix); err != nil {
		return nil, err
	}
	var items []driver.Item
	err := b.store.Read(ctx, func(ctx context.Context, data, _ *Tx) error {
		items = nil
		return data.rows(ctx, itemsList, []any{b.name, string(shard), prefix, after(prefix)}, func(r Row) error {
			var it driver.Item
			err := r.Scan(&it.Key, &it.Version, &it.Value)
			items = append(items, it)
			return err
		})
	})
	if err != nil {
		return nil, b.readError(err)
	}
	return items, nil
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
