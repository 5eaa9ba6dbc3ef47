package kv

import (
	"context"
	"time"
	"unique"

	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/grants"
)

// past is a shard's history, which follows the owner in the shard's record (see package grants). A
// grant writes the record without reading it first, so the writer must already know the history.
// Shards with the same history share one string. A process therefore needs 8 bytes for each shard,
// and up to grants.MaxBytes for each distinct history.
type past struct{ h unique.Handle[string] }

func pastOf(record Pair) past {
	r, _ := parseShard(record)
	return shared(r.Past)
}

func shared(text string) past {
	if text == "" {
		return past{}
	}
	return past{unique.Make(text)}
}

// noted encodes r, with the shard's history, as the replacement of the record at revision rev. The
// argument end is the reason why the replaced lease ends, and node is the new owner's label. Locks
// have no history, because their records are removed.
func (b *Backend) noted(shard driver.ShardID, r shardRecord, rev Rev, end driver.End, node string) []byte {
	if !driver.IsLock(shard) {
		before := ""
		if p := b.pastAt(shard, rev); p != (past{}) {
			before = p.h.Value()
		}
		r.Past = grants.Add(grants.Event(time.Now(), end, node), before)
	}
	return r.Encode()
}

// pastAt returns a shard's history at a revision, or the zero past if this process does not know
// it.
func (b *Backend) pastAt(shard driver.ShardID, rev Rev) past {
	b.mirror.mu.Lock()
	it, ok := b.mirror.shards.get(shard)
	if ok && it.rev == rev {
		defer b.mirror.mu.Unlock()
		return it.val.past
	}
	b.mirror.mu.Unlock()
	if l, ok := b.leases.get(shard); ok && l.rev == rev {
		return l.past
	}
	return past{}
}

// recall keeps the history in a shard's record for the next write.
func (b *Backend) recall(shard driver.ShardID, record Pair) {
	if owner, _, err := b.owner(record); err == nil && !driver.IsLock(shard) {
		b.leases.put(shard, lease{owner: owner, rev: record.Rev, past: pastOf(record)})
	}
}

// node returns a session's label, or "" if the mirror has no such member.
func (m *mirror) node(s driver.SessionID) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	if it, ok := m.members.get(s); ok {
		return it.val.Node
	}
	return ""
}

// History returns the shard's last leases. See driver.Historian.
func (b *Backend) History(ctx context.Context, shard driver.ShardID) ([]driver.Grant, error) {
	if err := driver.CheckShard(shard); err != nil {
		return nil, err
	}
	if b.life.Err() != nil {
		return nil, errClosed()
	}
	page, err := b.get(ctx, []string{b.keys.Shard(shard)})
	if err != nil {
		return nil, err
	}
	_, r, err := b.owner(page.Pairs[0])
	if err != nil {
		return nil, err
	}
	all, why := grants.Parse(r.Past)
	if why != "" {
		return all, corrupt(page.Pairs[0].Key, why)
	}
	return all, nil
}
