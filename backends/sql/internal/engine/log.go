package engine

import (
	"context"
	"errors"
	"fmt"

	"github.com/tenure-go/tenure/core/driver"
)

const (
	// pageBytes limits the payloads of one page. The page ends with the entry that reaches the
	// limit.
	pageBytes = 4 << 20
	// maxPage is the maximum number of entries in one page.
	maxPage = 1 << 20
)

// ReadLog reads a page of a shard's log. See driver.Backend.
func (b *Backend) ReadLog(ctx context.Context, shard driver.ShardID, after driver.Seq, limit int) (*driver.LogPage, error) {
	if err := b.begin(ctx); err != nil {
		return nil, err
	}
	if err := driver.CheckShard(shard); err != nil {
		return nil, err
	}
	if after < 0 || limit < 0 {
		return nil, invalid("reading %d entries after %d: neither may be negative", limit, after)
	}
	page := new(driver.LogPage)
	err := b.store.ReadData(ctx, func(ctx context.Context, data *Tx) error {
		*page = driver.LogPage{}
		err := data.rows(ctx, headRead, []any{b.name, string(shard)}, func(r Row) error {
			return b.scanHead(r, shard, new(string), &page.Head)
		})
		if err != nil || limit == 0 || after >= page.Head.Seq {
			return err
		}
		if after+1 < page.Head.Oldest {
			return &driver.TrimmedError{Shard: shard, Oldest: page.Head.Oldest}
		}
		through := min(page.Head.Seq, after+driver.Seq(min(limit, maxPage)))
		size := 0
		err = data.rows(ctx, logsRead, []any{b.name, string(shard), int64(after), int64(through), pageBytes}, func(r Row) error {
			c, err := b.scanChunk(r)
			if err != nil {
				return err
			}
			if c.first > after+driver.Seq(len(page.Entries))+1 {
				return b.damagedChunk(c, "entries before it are missing")
			}
			for seq := after + driver.Seq(len(page.Entries)) + 1; seq <= min(c.last, through); seq++ {
				e := c.entry(seq)
				page.Entries = append(page.Entries, e)
				if size += len(e.Payload); size >= pageBytes {
					return ErrEnough
				}
			}
			return nil
		})
		if err == nil && len(page.Entries) == 0 {
			err = b.damaged("logs", fmt.Sprintf("%s, entry %d", shard, after+1), shard, "the head names entries that are not there")
		}
		return err
	})
	if err == nil || errors.Is(err, driver.ErrTrimmed) {
		if early := b.settle(ctx, false, sight{heads: []driver.ShardHead{{Shard: shard, Head: page.Head}}}); early != nil {
			err = early
		}
	}
	if err != nil {
		return nil, b.readError(err)
	}
	return page, nil
}

func (b *Backend) scanHead(r Row, shard driver.ShardID, name *string, h *driver.Head) error {
	var nonce int64
	if err := r.Scan(name, &h.Number, &h.Seq, &h.Oldest, &nonce, &h.Token); err != nil {
		return err
	}
	h.Nonce = driver.Nonce(nonce)
	if why := driver.CheckHead(*h); why != "" {
		*h = driver.Head{}
		return b.damaged("shards", string(shard), shard, why)
	}
	return nil
}

// TailLog blocks until any shard has new entries. See driver.Backend. Each poll queries the tail
// counters once, regardless of the number of shards.
func (b *Backend) TailLog(ctx context.Context, since driver.Cursor, limit int) (*driver.TailPage, error) {
	if err := b.begin(ctx); err != nil {
		return nil, err
	}
	if limit <= 0 {
		return nil, invalid("tailing at most %d entries: ask for at least 1", limit)
	}
	at, ok := b.parseCursor("t", since, int(b.buckets))
	if !ok {
		return b.tailReset(ctx)
	}
	var page *driver.TailPage
	r := &reader{b: b, of: Tailers, attention: &b.tailing}
	r.look = func(ctx context.Context) (news, error) {
		var tails tails
		err := b.store.Read(ctx, func(ctx context.Context, data, _ *Tx) (err error) {
			tails, err = b.readTails(ctx, data)
			return err
		})
		if err != nil {
			return nothing, err
		}
		if tails.behind(at) {
			page, err = b.tailReset(ctx)
			return states, err
		}
		if !tails.ahead(at) {
			return nothing, nil
		}
		page, err = b.tailPage(ctx, at, limit)
		return states, err
	}
	if err := r.poll(ctx); err != nil {
		return nil, err
	}
	return page, nil
}

// tails contains the namespace's tail counters, by bucket.
type tails struct{ position, trimmed []int64 }

// behind reports whether a reader at the cursor would miss entries, or whether the store has
// returned to a state before the cursor.
func (t tails) behind(cursor []int64) bool {
	for i, at := range cursor {
		if at < t.trimmed[i] || at > t.position[i] {
			return true
		}
	}
	return false
}

// ahead reports whether there are entries after the cursor.
func (t tails) ahead(cursor []int64) bool {
	for i, at := range cursor {
		if t.position[i] > at {
			return true
		}
	}
	return false
}

func (b *Backend) readTails(ctx context.Context, data *Tx) (tails, error) {
	t := tails{make([]int64, b.buckets), make([]int64, b.buckets)}
	n := int64(0)
	err := data.rows(ctx, tailsRead, []any{b.name}, func(r Row) error {
		var bucket, position, trimmed int64
		if err := r.Scan(&bucket, &position, &trimmed); err != nil {
			return err
		}
		if bucket != n || n == b.buckets {
			return storeChanged("namespace %q has tail counter %d where %d should be", b.name, bucket, n)
		}
		t.position[n], t.trimmed[n] = position, trimmed
		n++
		return nil
	})
	if err == nil && n != b.buckets {
		err = storeChanged("namespace %q has %d tail counters and had %d", b.name, n, b.buckets)
	}
	return t, err
}

// tailReset returns the heads of all shards, and the position at which these heads were current.
func (b *Backend) tailReset(ctx context.Context) (*driver.TailPage, error) {
	page := &driver.TailPage{Reset: true}
	err := b.store.ReadData(ctx, func(ctx context.Context, data *Tx) error {
		page.Heads = nil
		t, err := b.readTails(ctx, data)
		if err != nil {
			return err
		}
		page.Cursor = b.cursor("t", t.position...)
		return data.rows(ctx, headsAll, []any{b.name}, func(r Row) error {
			var h driver.ShardHead
			var name string
			err := b.scanHead(r, "", &name, &h.Head)
			if errors.Is(err, driver.ErrDamaged) {
				return nil // ReadLog will return the error
			}
			if h.Shard = driver.ShardID(name); err == nil && driver.CheckShard(h.Shard) == nil {
				page.Heads = append(page.Heads, h)
			}
			return err
		})
	})
	if err == nil {
		err = b.settle(ctx, false, sight{heads: page.Heads})
	}
	if err != nil {
		return nil, b.readError(err)
	}
	return page, nil
}

// tailPage reads the entries after the cursor, bucket by bucket, from one snapshot.
func (b *Backend) tailPage(ctx context.Context, since []int64, limit int) (*driver.TailPage, error) {
	page := new(driver.TailPage)
	skip := false
	err := b.store.ReadData(ctx, func(ctx context.Context, data *Tx) error {
		*page = driver.TailPage{}
		t, err := b.readTails(ctx, data)
		if err != nil {
			return err
		}
		if skip = t.behind(since); skip {
			return nil
		}
		at := append([]int64(nil), since...)
		room := &room{entries: min(limit, maxPage), bytes: pageBytes}
		for bucket := range at {
			if t.position[bucket] == at[bucket] || room.full() {
				continue
			}
			if at[bucket], err = b.tailBucket(ctx, data, bucket, at[bucket], t.position[bucket], room, page); err != nil {
				return err
			}
		}
		page.Cursor = b.cursor("t", at...)
		return nil
	})
	if err == nil && skip || errors.Is(err, driver.ErrDamaged) {
		return b.tailReset(ctx) // ReadLog reports the damaged log; other logs continue
	}
	if err == nil {
		err = b.settle(ctx, false, b.lastOf(page.Entries))
	}
	if err != nil {
		return nil, err
	}
	return page, nil
}

// room is the space left in a page.
type room struct{ entries, bytes int }

func (r *room) full() bool { return r.entries == 0 || r.bytes <= 0 }

// tailBucket adds one bucket's entries after a position to a page, until the bucket ends or the
// page is full. It returns the position that it reached.
func (b *Backend) tailBucket(ctx context.Context, data *Tx, bucket int, from, end int64, room *room,
	page *driver.TailPage) (at int64, err error) {
	at = from
	through := min(end, from+int64(room.entries))
	err = data.rows(ctx, logsTail, []any{b.name, bucket, from, through, room.bytes}, func(r Row) error {
		c, err := b.scanChunk(r)
		if err != nil {
			return err
		}
		for seq := c.last - driver.Seq(min(c.position-from, int64(c.last-c.first)+1)) + 1; seq <= c.last; seq++ {
			if room.full() {
				return ErrEnough
			}
			e := c.entry(seq)
			page.Entries = append(page.Entries, e)
			at = c.position - int64(c.last-seq)
			room.entries--
			room.bytes -= len(e.Payload)
		}
		return nil
	})
	if err == nil && at == from && !room.full() {
		err = b.damaged("logs", fmt.Sprintf("bucket %d, position %d", bucket, from+1), "", "the counter names entries that are not there")
	}
	return at, err
}

// lastOf returns the heads that the entries show.
func (b *Backend) lastOf(entries []driver.Entry) (s sight) {
	if !b.showsEarly() {
		return s
	}
	for i, e := range entries {
		if i+1 == len(entries) || entries[i+1].Shard != e.Shard {
			s.heads = append(s.heads, driver.ShardHead{Shard: e.Shard, Head: driver.Head{Token: e.Token, Number: e.Number}})
		}
	}
	return s
}
