package kv

import (
	"context"
	"time"
	"unique"

	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/grants"
)

// past is the history of a shard, stored in its record after the owner (see package grants). A
// grant writes that record without reading it first, so its writer must know the history so
// far. Shards with the same history share one text. So each shard costs a process 8 bytes, and
// each different history costs up to grants.MaxBytes.
type past struct{ h unique.Handle[string] }

// pastOf returns the history in a shard's record.
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

// noted returns the history for the shard's record that follows the one at revision rev, whose
// lease ends with end. node is the new owner's label. Locks have no history, because their
// records are removed.
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

// pastAt returns the history in a shard's record at a revision, if this process knows it.
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

// recall keeps the history of a shard's record that was read, for the next write.
func (b *Backend) recall(shard driver.ShardID, record Pair) {
	if owner, _, err := b.owner(record); err == nil && !driver.IsLock(shard) {
		b.leases.put(shard, lease{owner: owner, rev: record.Rev, past: pastOf(record)})
	}
}

// node returns the label of a session, or "" if the mirror does not know it as a member.
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
