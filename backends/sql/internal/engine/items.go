package engine

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

// List returns the items whose keys begin with prefix. See driver.Backend.
func (b *Backend) List(ctx context.Context, shard driver.ShardID, prefix string, limit, largest int) ([]driver.Item, error) {
	if err := b.begin(ctx); err != nil {
		return nil, err
	}
	if err := driver.CheckList(shard, prefix, limit, largest); err != nil {
		return nil, err
	}
	l := listed{b: b, shard: shard, most: limit, width: largest}
	if limit == 0 {
		l.most = math.MaxInt
	}
	if largest == 0 {
		l.width = math.MaxInt32 // above every value that the statement returns
	}
	var seen sight
	err := b.store.Read(ctx, func(ctx context.Context, data, _ *Tx) error {
		l.items, l.odd, l.bad, l.budget = nil, nil, 0, listing.New(limit, largest)
		err := l.read(ctx, data, prefix)
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
	b.odd.Set(shard, l.odd)
	return l.items, nil
}

type listed struct {
	b           *Backend
	shard       driver.ShardID
	most, width int // largest number of items, and of bytes of a value
	budget      *listing.Budget
	items       []driver.Item
	odd         []*driver.DamagedError // the first rows with invalid keys
	bad         int                    // the number of such rows
}

// The list is read page by page. The page size grows with the number of omitted rows, so that even
// many such rows need few pages.
func (l *listed) read(ctx context.Context, data *Tx, prefix string) (err error) {
	for low, want, full := prefix, l.most, true; full && err == nil && len(l.items) < l.most; {
		n, last := 0, ""
		err = data.rows(ctx, itemsList, []any{l.b.name, string(l.shard), low, after(prefix), want, l.width}, func(r Row) error {
			var it driver.Item
			var size int
			if err := r.Scan(&it.Key, &it.Version, &size, &it.Value); err != nil {
				return err
			}
			n, last = n+1, it.Key
			return l.add(it, size)
		})
		// The next page begins directly after the last row, because no valid key has a character
		// below "-".
		if full = n == want; full && err == nil && last+"!" <= low {
			return l.b.damaged("items", string(l.shard), l.shard, oddkey.Why)
		}
		low, want = last+"!", max(l.most-len(l.items), min(l.bad, maxBad))
	}
	return err
}

func (l *listed) add(it driver.Item, size int) error {
	if driver.CheckKey(it.Key) != nil {
		if l.bad++; l.bad <= listing.MaxDamaged {
			l.odd = append(l.odd, l.b.damaged("items", string(l.shard)+" "+it.Key, l.shard, oddkey.Why))
		}
		return nil
	}
	if len(l.items) == l.most {
		return nil
	}
	sent := size
	if size > l.width {
		sent = 0
	}
	if err := l.b.checkItem(l.shard, &it, sent); err != nil {
		return err
	}
	l.budget.Take(&it, size, l.shard, fmt.Sprintf("%sitems %s/%s %s", l.b.stmts.prefix, l.b.name, l.shard, it.Key))
	l.items = append(l.items, it)
	return nil
}

// maxBad is the maximum number of rows that List reads in one page to get past bad rows.
const maxBad = 1000

// checkItem returns an error if the item's value is incomplete.
func (b *Backend) checkItem(shard driver.ShardID, it *driver.Item, size int) error {
	if size != len(it.Value) {
		return b.damaged("items", string(shard)+" "+it.Key, shard, "its value is too many bytes")
	}
	return nil
}

// The result is the first key after all keys with the prefix, or "" if the prefix is empty. Keys
// are ASCII, so the last byte can be incremented.
func after(prefix string) string {
	if prefix == "" {
		return ""
	}
	last := len(prefix) - 1
	return prefix[:last] + string(rune(prefix[last]+1))
}
