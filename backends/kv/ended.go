package kv

import (
	"context"

	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/kvkeys"
)

var _ driver.Explainer = (*session)(nil)

// endedRecord shows which session evicted another. An eviction writes this record, but no decision
// depends on it.
type endedRecord struct {
	Format  int              `json:"v"`
	Session driver.SessionID `json:"session"`
	By      driver.SessionID `json:"by"`
	Node    string           `json:"node"` // of By
}

// firstJoin returns the writes that create a namespace's permanent records at its first join.
// Eviction records are created in advance, because in some stores, creating a record takes a read,
// for which an eviction must not wait.
func (b *Backend) firstJoin() ([]Op, error) {
	removed, err := encodeJSON(removedRecord{Format: jsonFormat})
	if err != nil {
		return nil, err
	}
	ended, err := encodeJSON(endedRecord{Format: jsonFormat})
	if err != nil {
		return nil, err
	}
	ops := []Op{{Key: b.keys.Removed(), Value: removed}}
	for n := range uint32(kvkeys.EndedSlots) {
		ops = append(ops, Op{Key: b.keys.EndedSlot(n), Value: ended})
	}
	return ops, nil
}

// notes adds an endedRecord to each eviction. Two transactions of a batch must not write the same
// record, so only the first of several evictions with the same slot writes it.
func (s *session) notes(txns []Txn, suspects []driver.Suspect) {
	taken := make(map[string]bool, kvkeys.EndedSlots)
	for i, v := range suspects {
		key := s.b.keys.Ended(v.Session)
		value, err := encodeJSON(endedRecord{Format: jsonFormat, Session: v.Session, By: s.id, Node: s.node})
		if err == nil && !taken[key] {
			taken[key] = true
			txns[i].Ops = append(txns[i].Ops, Op{Key: key, Value: value})
		}
	}
}

// Explain returns the reason why the session ended. See driver.Explainer.
func (s *session) Explain(ctx context.Context) *driver.SessionLostError {
	e := &driver.SessionLostError{Session: s.id}
	if s.closed.Load() {
		e.Cause = driver.LossClosed
		return e
	}
	page, err := s.b.get(ctx, []string{s.b.keys.Ended(s.id), s.b.keys.Node(s.node)})
	if err != nil {
		return e
	}
	var r endedRecord
	if p := page.Pairs[0]; p.Rev != 0 && decodeJSON(p, &r, &r.Format) == nil && r.Session == s.id &&
		driver.CheckSession(r.By) == nil && driver.CheckNode(r.Node) == nil {
		e.Cause, e.By, e.Node = driver.LossEvicted, r.By, r.Node
		return e
	}
	if node, err := decodeNode(page.Pairs[1]); err == nil {
		if by := node.superseded(s.id); by != "" {
			e.Cause, e.By, e.Node = driver.LossSuperseded, by, s.node
		}
	}
	return e
}
