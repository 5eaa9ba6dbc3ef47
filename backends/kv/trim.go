package kv

import (
	"context"
	"sync"
	"time"

	"github.com/tenure-go/tenure/core/driver"
)

// trimmed contains the shards whose trimmed logs may still have chunks below the oldest entry. The
// heads already exclude these chunks, so no commit waits for their deletion. One goroutine deletes
// the chunks, shard by shard.
type trimmed struct {
	mu   sync.Mutex
	due  map[driver.ShardID]struct{}
	busy bool // the goroutine runs
}

// collectTimeout limits each round of deletions, because no caller supplies a context.
const collectTimeout = 10 * time.Second

// tidy schedules the deletion of a shard's trimmed chunks. If the deletion fails, or the process
// ends first, the shard's next trim, in any process, deletes the chunks.
func (b *Backend) tidy(shard driver.ShardID) {
	t := &b.trimmed
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.due == nil {
		t.due = make(map[driver.ShardID]struct{})
	}
	t.due[shard] = struct{}{}
	if t.busy {
		return
	}
	_, err := b.start(func(ctx context.Context, _ *run) error {
		for {
			shard, ok := t.next()
			if !ok {
				return nil
			}
			_ = b.collect(ctx, shard)
		}
	})
	t.busy = err == nil
}

// If no shard is due, next marks the goroutine as ended.
func (t *trimmed) next() (driver.ShardID, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for shard := range t.due {
		delete(t.due, shard)
		return shard, true
	}
	t.busy = false
	return "", false
}

// collect deletes a shard's chunks below its oldest entry.
func (b *Backend) collect(ctx context.Context, shard driver.ShardID) error {
	for from := ""; ; {
		next, err := b.collectFrom(ctx, shard, from)
		if err != nil || next == "" {
			return err
		}
		from = next
	}
}

// collectFrom deletes one round of chunks, starting at a key, and returns the key of the next
// round, if any. The head is read in each round, because trimmed entries reappear after a restore
// from a backup.
func (b *Backend) collectFrom(ctx context.Context, shard driver.ShardID, from string) (next string, err error) {
	ctx, cancel := context.WithTimeout(ctx, collectTimeout)
	defer cancel()
	head, err := b.head(ctx, shard)
	if err != nil {
		return "", err
	}
	items := b.info.Limits.BatchItems
	page, err := b.store.Range(ctx, Range{Prefix: b.keys.Log(shard), From: from, Limit: items, KeysOnly: true})
	if err != nil {
		return "", err
	}
	txns := make([]Txn, 0, len(page.Pairs))
	for _, p := range page.Pairs {
		_, last, ok := b.keys.SplitChunk(p.Key)
		if ok && last >= head.Oldest {
			break
		}
		if ok {
			// In some stores, a transaction that changes nothing has no revision, so the record
			// must exist.
			txns = append(txns, Txn{If: []Compare{{Key: p.Key, Rev: Exists}}, Ops: []Op{{Key: p.Key, Delete: true}}})
		}
	}
	if len(txns) == 0 {
		return "", nil
	}
	if _, err := b.guarded(ctx, nil, &Batch{Txns: txns}); err != nil || len(txns) < items {
		return "", err
	}
	return page.Pairs[len(page.Pairs)-1].Key, nil
}
