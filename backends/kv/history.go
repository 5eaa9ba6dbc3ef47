package kv

import (
	"context"
	"time"

	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/grants"
	"github.com/tenure-go/tenure/internal/kvrecord"
)

// change makes the operations that change a shard's owner to that of r: the first writes its
// record. If the lease of a former session ends, another one notes how, in a record that nobody
// watches. Locks have no notes. It also returns the mark of the new record.
func (s *session) change(shard driver.ShardID, r shardRecord, former driver.SessionID, end driver.End, m kvrecord.Mark,
	now time.Time) ([]Op, kvrecord.Mark) {
	ops := make([]Op, 1, 2)
	if !driver.IsLock(shard) {
		if former != "" {
			note := grants.Event(now.Unix(), end, "") + grants.Event(int64(m.Since), "", s.nodeOf(former))
			ops = append(ops, Op{Key: s.b.keys.Past(shard, m.Ended%kvrecord.Slots), Value: []byte(note), Known: m.Ended >= kvrecord.Slots})
			m = m.Next()
		}
		r.Mark = kvrecord.Mark{Ended: m.Ended}
		if r.Session != "" {
			r.Mark.Since, r.Node = uint32(now.Unix()), grants.Node(s.nodeOf(r.Session))
		}
	}
	ops[0] = Op{Key: s.b.keys.Shard(shard), Value: r.Encode()}
	return ops, r.Mark
}

func (s *session) nodeOf(id driver.SessionID) string {
	if id == s.id {
		return s.node
	}
	return s.b.mirror.node(id)
}

// History reads the shard's last leases. See driver.Historian.
func (b *Backend) History(ctx context.Context, shard driver.ShardID) ([]driver.Grant, error) {
	if err := driver.CheckShard(shard); err != nil {
		return nil, err
	}
	if b.life.Err() != nil {
		return nil, errClosed()
	}
	keys := []string{b.keys.Shard(shard)}
	for slot := range uint8(kvrecord.Slots) {
		keys = append(keys, b.keys.Past(shard, slot))
	}
	page, err := b.get(ctx, keys)
	if err != nil {
		return nil, err
	}
	_, r, err := b.owner(page.Pairs[0])
	if err != nil {
		return nil, err
	}
	text := ""
	if r.Node != "" {
		text = grants.Event(int64(r.Mark.Since), "", r.Node)
	}
	for n := range uint8(kvrecord.Slots) { // the newest first
		p := page.Pairs[1+(r.Mark.Ended+2*kvrecord.Slots-1-n)%kvrecord.Slots]
		text += string(p.Value[:min(len(p.Value), grants.MaxBytes)])
	}
	return grants.Parse(text), nil
}
