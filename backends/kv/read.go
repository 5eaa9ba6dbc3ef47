package kv

import (
	"context"
	"fmt"

	"github.com/tenure-go/tenure/core/driver"
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
func (b *Backend) List(ctx context.Context, shard driver.ShardID, prefix string, limit int) ([]driver.Item, error) {
	if err := driver.CheckList(shard, prefix, limit); err != nil {
		return nil, err
	}
	if b.life.Err() != nil {
		return nil, errClosed()
	}
	root := b.keys.Items(shard)
	items, bad := []driver.Item{}, 0 // bad: records under keys that no item can have
	for r := (Range{Prefix: root + prefix, Limit: limit}); ; {
		page, err := b.store.Range(ctx, r)
		if err != nil {
			return nil, b.readError(err)
		}
		for _, p := range page.Pairs {
			switch key := p.Key[len(root):]; {
			case driver.CheckKey(key) != nil:
				bad++
			case limit == 0 || len(items) < limit:
				items = append(items, driver.Item{Key: key, Value: p.Value, Version: driver.Version(p.Rev)})
			}
		}
		n := len(page.Pairs)
		if limit == 0 || len(items) == limit || n < r.Limit {
			return items, nil
		}
		// Pages grow with the bad records before them, so that many of these cost few calls.
		r.From, r.Limit = page.Pairs[n-1].Key+"\x00", max(limit-len(items), min(bad, maxBad))
	}
}

// maxBad is how many records List reads at once to get past those that are no items.
const maxBad = 1000

// ReadLog returns a part of a shard's log. See driver.Backend.
//
// The head is read first and bounds the page, so that what commits meanwhile is
// not in it. What is trimmed meanwhile is missing at its beginning, which the
// head as it is then must explain.
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
		return page, nil // also what precedes a record that cannot be read
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

// entries are those in the records of a log from one on, in order and without a hole, up
// to another one, at most limit. After an error they are those before the bad record.
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

// Bounds of what one page of a log is read from. Records may be long: after a few
// it is known how many more the bytes leave room for.
const (
	firstChunks  = 8
	maxChunks    = 1024
	maxPageBytes = 4 << 20 // about; one record counts whatever its length
)

// chunks reads at most limit records of a log from the one that has entry from on,
// up to the one that has entry through, or a part of these if they are many bytes.
func (b *Backend) chunks(ctx context.Context, shard driver.ShardID, from, through driver.Seq, limit int) ([]Pair, error) {
	var found []Pair
	start, bytes := b.keys.Chunk(shard, from), 0
	for n := firstChunks; ; n = min(4*n, (maxPageBytes-bytes)*len(found)/bytes+1) {
		n = int(min(driver.Seq(min(n, limit-len(found))), through-from+1)) // each has one entry or more
		page, err := b.store.Range(ctx, Range{Prefix: b.keys.Log(shard), From: start, Limit: n})
		if err != nil {
			return nil, err
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
		start = last + "!" // the next key: spaces are not in any
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
