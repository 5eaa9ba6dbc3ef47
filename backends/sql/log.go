package sql

import (
	"context"
	"errors"

	"github.com/tenure-go/tenure/core/driver"
)

const (
	// pageBytes bounds the payloads of one page: a page ends with the entry that
	// exceeds it.
	pageBytes = 4 << 20
	// maxPage is the most entries of one page, whatever the caller asks for.
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
			return scanHead(r, new(string), &page.Head)
		})
		if err != nil || limit == 0 || after >= page.Head.Seq {
			return err
		}
		if after+1 < page.Head.Oldest {
			return &driver.TrimmedError{Shard: shard, Oldest: page.Head.Oldest}
		}
		through := min(page.Head.Seq, after+driver.Seq(min(limit, maxPage)))
		size := 0
		return data.rows(ctx, logsRead, []any{b.name, string(shard), int64(after), int64(through), pageBytes}, func(r Row) error {
			c, err := scanChunk(r)
			if err != nil {
				return err
			}
			if c.first > after+driver.Seq(len(page.Entries))+1 {
				return c.damaged("entries before it are missing")
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
	})
	if err != nil {
		return nil, b.readError(err)
	}
	return page, nil
}

func scanHead(r Row, shard any, h *driver.Head) error {
	var nonce int64
	err := r.Scan(shard, &h.Number, &h.Seq, &h.Oldest, &nonce, &h.Token)
	h.Nonce = driver.Nonce(nonce)
	return err
}

// TailLog blocks until any shard has new entries. See driver.Backend. A poll is
// one query of the tail counters, whatever the number of shards.
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
	err := b.poll(ctx, Tailers, func() (bool, error) {
		var tails tails
		err := b.store.Read(ctx, func(ctx context.Context, data, _ *Tx) (err error) {
			tails, err = b.readTails(ctx, data)
			return err
		})
		if err != nil {
			return false, err
		}
		if tails.behind(at) {
			page, err = b.tailReset(ctx)
			return true, err
		}
		if !tails.ahead(at) {
			return false, nil
		}
		page, err = b.tailPage(ctx, at, limit)
		return true, err
	})
	if err != nil {
		return nil, err
	}
	return page, nil
}

// tails are the namespace's tail counters, by bucket.
type tails struct{ position, trimmed []int64 }

// behind reports whether a reader at the cursor would have to skip, or is ahead
// of a store that went back.
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

// tailReset returns every shard's head and the position that belongs to them.
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
			err := scanHead(r, &h.Shard, &h.Head)
			if err == nil && driver.CheckShard(h.Shard) == nil {
				page.Heads = append(page.Heads, h)
			}
			return err
		})
	})
	if err != nil {
		return nil, b.readError(err)
	}
	return page, nil
}

// tailPage reads what follows the cursor, bucket by bucket, on one snapshot.
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
		left, size := min(limit, maxPage), 0
		for bucket := range at {
			if t.position[bucket] == at[bucket] || left == 0 || size >= pageBytes {
				continue
			}
			from := at[bucket]
			through := min(t.position[bucket], from+int64(left))
			err := data.rows(ctx, logsTail, []any{b.name, bucket, from, through, pageBytes - size}, func(r Row) error {
				c, err := scanChunk(r)
				if err != nil {
					return err
				}
				for seq := c.last - driver.Seq(min(c.position-from, int64(c.last-c.first)+1)) + 1; seq <= c.last; seq++ {
					if left == 0 || size >= pageBytes {
						return ErrEnough
					}
					e := c.entry(seq)
					page.Entries = append(page.Entries, e)
					at[bucket] = c.position - int64(c.last-seq)
					left--
					size += len(e.Payload)
				}
				return nil
			})
			if err != nil {
				return err
			}
		}
		page.Cursor = b.cursor("t", at...)
		return nil
	})
	if err == nil && skip || errors.Is(err, errDamaged) {
		return b.tailReset(ctx) // ReadLog says whose log is damaged; the others' go on
	}
	if err != nil {
		return nil, err
	}
	return page, nil
}
