package kv

import (
	"context"
	"fmt"
	"slices"

	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/listing"
	"github.com/tenure-go/tenure/internal/oddkey"
)

// Get returns an item. See driver.Backend.
func (b *Backend) Get(ctx context.Context, shard driver.ShardID, key string) (*driver.Item, error) {
	if err := driver.CheckShard(shard); err != nil {
		return nil, err
	}
	if err := driver.CheckKey(key); err != nil {
		return nil, err
	}
	if b.life.Err() != nil {
		return nil, errClosed()
	}
	page, err := b.get(ctx, []string{b.keys.Item(shard, key)})
	if err != nil {
		return nil, err
	}
	p := page.Pairs[0]
	if p.Rev == 0 {
		return nil, nil
	}
	return &driver.Item{Key: key, Value: p.Value, Version: driver.Version(p.Rev)}, nil
}

// List returns items by prefix. See driver.Backend.
func (b *Backend) List(ctx context.Context, shard driver.ShardID, prefix string, limit, largest int) ([]driver.Item, error) {
	if err := driver.CheckList(shard, prefix, limit, largest); err != nil {
		return nil, err
	}
	if b.life.Err() != nil {
		return nil, errClosed()
	}
	root := b.keys.Items(shard)
	items, bad := []driver.Item{}, 0 // bad counts records under invalid keys
	var odd []*driver.DamagedError   // the first of them
	budget := listing.New(limit, largest)
	for r := (Range{Prefix: root + prefix, Limit: budget.Page(limit), Largest: largest}); ; {
		page, err := b.store.Range(ctx, r)
		if err != nil {
			return nil, b.readError(err)
		}
		for _, p := range page.Pairs {
			switch key := p.Key[len(root):]; {
			case driver.CheckKey(key) != nil:
				if bad++; bad <= listing.MaxDamaged {
					odd = append(odd, corrupt(p.Key, oddkey.Why))
				}
			case limit == 0 || len(items) < limit:
				it := driver.Item{Key: key, Value: p.Value, Version: driver.Version(p.Rev)}
				budget.Take(&it, max(len(p.Value), p.Long), shard, p.Key)
				items = append(items, it)
			}
		}
		n := len(page.Pairs)
		if limit == 0 || len(items) == limit || n < r.Limit {
			b.odd.Set(shard, odd)
			return items, nil
		}
		// Because the page size grows with the number of bad records, even many of them take few
		// calls.
		r.From, r.Limit = page.Pairs[n-1].Key+"\x00", budget.Page(max(limit-len(items), min(bad, maxBad)))
		r.KeysOnly = budget.Spent()
	}
}

// maxBad is the largest page size that List uses to skip bad records.
const maxBad = 1000

// ReadLog returns part of a shard's log. See driver.Backend.
//
// ReadLog reads the head first, so the page contains no later commits. If the page's first entries
// are missing, ReadLog reads the head again, which must show that they were trimmed.
func (b *Backend) ReadLog(ctx context.Context, shard driver.ShardID, after driver.Seq, limit int) (*driver.LogPage, error) {
	if err := driver.CheckShard(shard); err != nil {
		return nil, err
	}
	if after < 0 || limit < 0 {
		return nil, fmt.Errorf("tenure: %w: reading %d entries after %d: neither may be negative", driver.ErrInvalid, limit, after)
	}
	head, err := b.head(ctx, shard)
	if err != nil {
		return nil, err
	}
	page := &driver.LogPage{Head: head}
	if limit == 0 || after >= head.Seq {
		if limit > 0 && after+1 < head.Oldest {
			return nil, &driver.TrimmedError{Shard: shard, Oldest: head.Oldest}
		}
		return page, nil
	}
	if after+1 < head.Oldest {
		return nil, &driver.TrimmedError{Shard: shard, Oldest: head.Oldest}
	}
	found, err := b.chunks(ctx, shard, after+1, after+min(driver.Seq(limit), head.Seq-after), maxChunks)
	if err != nil {
		return nil, b.readError(err)
	}
	page.Entries, err = b.entries(found, shard, after+1, head.Seq, limit)
	if len(page.Entries) > 0 {
		return page, nil // with the entries before a record that cannot be read
	}
	if err != nil {
		return nil, err
	}
	if head, err = b.head(ctx, shard); err != nil {
		return nil, err
	}
	if after+1 < head.Oldest {
		return nil, &driver.TrimmedError{Shard: shard, Oldest: head.Oldest}
	}
	return nil, corrupt(b.keys.Chunk(shard, after+1), "the head names entries that are not there")
}

// entries decodes at most limit consecutive entries, from next to through, from a log's records. If
// a record is bad, the result is an error and the entries before that record.
func (b *Backend) entries(records []Pair, shard driver.ShardID, next, through driver.Seq, limit int) (all []driver.Entry, err error) {
	for _, p := range records {
		_, last, ok := b.keys.SplitChunk(p.Key)
		if !ok {
			continue
		}
		c, err := decodeChunk(p, shard, last)
		if err != nil {
			return all, err
		}
		if c.entries[0].Seq > next {
			return all, nil
		}
		for _, e := range c.entries {
			if e.Seq < next {
				continue
			}
			if e.Seq > through || len(all) == limit {
				return all, nil
			}
			all = append(all, e)
			next++
		}
	}
	return all, nil
}

// These constants limit a page of a log. The lengths of the first few records determine how many
// more are read.
const (
	firstChunks  = 8
	maxChunks    = 1024
	maxPageBytes = 4 << 20 // approximate; at least one record is read, whatever its length
	anyLength    = 1 << 30
)

// chunks reads the records with the entries in [from, through], but at most limit records, and
// fewer if they are long.
func (b *Backend) chunks(ctx context.Context, shard driver.ShardID, from, through driver.Seq, limit int) ([]Pair, error) {
	var found []Pair
	start, bytes := b.keys.Chunk(shard, from), 0
	for n := firstChunks; ; n = min(4*n, (maxPageBytes-bytes)*len(found)/bytes+1) {
		n = int(min(driver.Seq(min(n, limit-len(found))), through-from+1)) // each record has one entry or more
		largest := maxPageBytes / n                                        // several are read only if they fit together
		if n == 1 {
			largest = anyLength
		}
		page, err := b.store.Range(ctx, Range{Prefix: b.keys.Log(shard), From: start, Limit: n, Largest: largest})
		if err != nil {
			return nil, err
		}
		long := slices.IndexFunc(page.Pairs, func(p Pair) bool { return p.Long > 0 })
		if long == 0 && len(found) == 0 {
			one, err := b.store.Range(ctx, Range{Prefix: b.keys.Log(shard), From: start, Limit: 1, Largest: anyLength})
			if err != nil {
				return nil, err
			}
			return one.Pairs, nil
		}
		if long >= 0 {
			return append(found, page.Pairs[:long]...), nil
		}
		found = append(found, page.Pairs...)
		for _, p := range page.Pairs {
			bytes += len(p.Key) + len(p.Value)
		}
		if len(page.Pairs) < n || len(found) >= limit || bytes >= maxPageBytes {
			return found, nil
		}
		last := page.Pairs[n-1].Key
		if last >= b.keys.Chunk(shard, through) {
			return found, nil
		}
		start = last + "!" // the next key, because no key contains a space
	}
}

func (b *Backend) head(ctx context.Context, shard driver.ShardID) (driver.Head, error) {
	if b.life.Err() != nil {
		return driver.Head{}, errClosed()
	}
	page, err := b.get(ctx, []string{b.keys.Head(shard)})
	if err != nil {
		return driver.Head{}, err
	}
	return decodeHead(page.Pairs[0])
}
