package kv

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/tenure-go/tenure/core/driver"
)

var _ driver.Session = (*session)(nil)

type session struct {
	b    *Backend
	id   driver.SessionID
	node string

	beats  atomic.Uint64 // heartbeats sent, so that no two have equal bytes
	acked  atomic.Int64  // highest revision that answered a heartbeat
	lost   atomic.Bool   // permanently, even if a restored store has the session again (rule M1)
	closed atomic.Bool   // by this process
}

// Join creates a session. See driver.Backend.
func (b *Backend) Join(ctx context.Context, m driver.Member) (driver.Session, error) {
	if err := driver.CheckMember(m, b.info.Limits); err != nil {
		return nil, err
	}
	roster, err := encodeJSON(memberRecord{Format: jsonFormat, Member: m})
	if err != nil {
		return nil, err
	}
	label, self, beat := b.keys.Node(m.Node), b.keys.Member(m.Session), b.keys.Beat(m.Session)
	pairs, err := b.inspect(ctx, nil, []string{label, self, b.keys.Removed()})
	if err != nil {
		return nil, err
	}
	node, err := decodeNode(pairs[0])
	if err != nil {
		return nil, notApplied(err)
	}
	removed := pairs[2]
	if err := b.joinConflict(m, node, pairs[1], removed); err != nil {
		return nil, err
	}
	value, err := encodeJSON(node.with(m.Session, m.Supersede))
	if err != nil {
		return nil, err
	}
	ops := []Op{
		{Key: self, Value: roster},
		{Key: beat, Value: encodeBeat(0)},
		{Key: label, Value: value},
	}
	if former := node.last(); m.Supersede && former != "" {
		ops = append(ops, Op{Key: b.keys.Member(former), Delete: true}, Op{Key: b.keys.Beat(former), Delete: true})
	}
	if removed.Rev == 0 {
		first, err := b.firstJoin()
		if err != nil {
			return nil, err
		}
		ops = append(ops, first...)
	}
	out, err := b.guarded(ctx, nil, &Batch{Txns: []Txn{{
		If: []Compare{{Key: label, Rev: pairs[0].Rev}, {Key: self, Rev: Absent}, {Key: beat, Rev: Absent},
			{Key: b.keys.Removed(), Rev: removed.Rev}},
		Ops:  ops,
		Else: []string{label, self, b.keys.Removed()},
	}}})
	if err != nil {
		return nil, err
	}
	r := out.Results[0]
	if r.Err != nil {
		return nil, fmt.Errorf("tenure: joining: %w", r.Err)
	}
	if !r.OK {
		if node, err := decodeNode(r.Reads[0]); err == nil {
			if err := b.joinConflict(m, node, r.Reads[1], r.Reads[2]); err != nil {
				return nil, err
			}
		}
		first := removed.Rev == 0 && r.Reads[2].Rev != 0 && r.Reads[0].Rev == pairs[0].Rev
		if first || !m.Supersede && ctx.Err() == nil {
			return b.Join(ctx, m) // a rival's join succeeded, so members make progress
		}
		return nil, fmt.Errorf("tenure: %w: another session joined under node label %q, or labels were removed, while this session joined",
			driver.ErrRetry, m.Node)
	}
	s := &session{b: b, id: m.Session, node: m.Node}
	s.acked.Store(int64(r.Rev))
	if pairs[0].Rev == 0 { // after the join, which succeeded even if this write fails
		b.sweepLabels(ctx)
	}
	return s, nil
}

// joinConflict returns an error for a session id that has been used before (rule M3).
func (b *Backend) joinConflict(m driver.Member, node nodeRecord, self, removed Pair) error {
	if self.Rev == 0 && !slices.Contains(node.Sessions, m.Session) && !slices.Contains(decodeRemoved(removed).Sessions, m.Session) {
		return nil
	}
	return fmt.Errorf("tenure: %w: session id %q was used before: join with a fresh one", driver.ErrConflict, m.Session)
}

func (s *session) ID() driver.SessionID { return s.id }

// alive returns an error if the session is known to be lost.
func (s *session) alive() error {
	if s.lost.Load() {
		return &driver.SessionLostError{Session: s.id}
	}
	return nil
}

func (s *session) end() error {
	s.lost.Store(true)
	return s.alive()
}

// Beat changes the session's record. See driver.Session.
func (s *session) Beat(ctx context.Context) error {
	floor := Rev(s.acked.Load())
	key := s.b.keys.Beat(s.id)
	out, err := s.b.guarded(ctx, s, &Batch{Heartbeat: true, Txns: []Txn{{
		If:   []Compare{{Key: key, Rev: Exists}},
		Ops:  []Op{{Key: key, Value: encodeBeat(s.beats.Add(1))}},
		Prev: true,
	}}})
	if err != nil {
		return err
	}
	r := out.Results[0]
	if r.Err != nil {
		return fmt.Errorf("tenure: heartbeat: %w", r.Err)
	}
	if !r.OK {
		return s.end()
	}
	if r.Prev != 0 && r.Prev < floor {
		return s.b.storeChanged("a heartbeat replaced version %d after %d was acknowledged", r.Prev, floor)
	}
	for {
		old := s.acked.Load()
		if int64(r.Rev) <= old || s.acked.CompareAndSwap(old, int64(r.Rev)) {
			return nil
		}
	}
}

// Update replaces the mutable part of the session's roster entry. See driver.Session. The write
// needs no session guard, because it is conditional on the entry's revision.
func (s *session) Update(ctx context.Context, st driver.MemberState) error {
	if err := driver.CheckUpdate(st); err != nil {
		return err
	}
	if err := s.alive(); err != nil {
		return err
	}
	key := s.b.keys.Member(s.id)
	found, err := s.b.inspect(ctx, nil, []string{key})
	if err != nil {
		return err
	}
	m, err := s.updates(found[0], st)
	if err != nil || m.Update == st.Update {
		return err
	}
	m.MemberState = st
	value, err := encodeJSON(memberRecord{Format: jsonFormat, Member: m})
	if err != nil {
		return err
	}
	out, err := s.b.guarded(ctx, nil, &Batch{Txns: []Txn{{
		If:   []Compare{{Key: key, Rev: found[0].Rev}},
		Ops:  []Op{{Key: key, Value: value}},
		Else: []string{key},
	}}})
	if err != nil {
		return err
	}
	r := out.Results[0]
	if r.Err != nil {
		return fmt.Errorf("tenure: updating session %q: %w", s.id, r.Err)
	}
	if r.OK {
		return nil
	}
	if m, err = s.updates(r.Reads[0], st); err != nil || m.Update == st.Update {
		return err
	}
	return retry("the session's record moved")
}

// If an update later than st has already changed the roster entry, the result is an error.
func (s *session) updates(entry Pair, st driver.MemberState) (driver.Member, error) {
	if entry.Rev == 0 {
		return driver.Member{}, s.end()
	}
	m, err := decodeMember(entry, s.id)
	if err == nil && m.Update > st.Update {
		err = fmt.Errorf("tenure: %w: session %q has update %d already: number updates in their order",
			driver.ErrConflict, s.id, m.Update)
	}
	return m, err
}

// Evict ends other sessions. See driver.Session.
func (s *session) Evict(ctx context.Context, suspects []driver.Suspect) ([]driver.EvictResult, error) {
	if err := driver.CheckSuspects(suspects); err != nil {
		return nil, err
	}
	txns := make([]Txn, len(suspects))
	for i, v := range suspects {
		if v.Session == s.id {
			return nil, fmt.Errorf("tenure: %w: session %q cannot evict itself: close it", driver.ErrInvalid, s.id)
		}
		member, beat := s.b.keys.Member(v.Session), s.b.keys.Beat(v.Session)
		txns[i] = Txn{
			If:   []Compare{{Key: beat, Rev: Rev(v.Version)}},
			Ops:  []Op{{Key: member, Delete: true}, {Key: beat, Delete: true}},
			Else: []string{beat},
		}
	}
	s.notes(txns, suspects)
	results := make([]driver.EvictResult, len(suspects))
	err := s.b.write(ctx, s, txns, nil, func(i int, r *Result, err error) {
		switch {
		case err != nil:
			results[i].Err = err
		case r.OK:
			results[i].Evicted = true
		case r.Reads[0].Rev == Rev(suspects[i].Version):
			results[i].Err = retry("the suspect's record moved")
		default:
			results[i].Current = driver.Version(r.Reads[0].Rev)
		}
	})
	if err != nil {
		return nil, err
	}
	return results, nil
}

// Close removes the session's record. See driver.Session.
func (s *session) Close(ctx context.Context) error {
	member := s.b.keys.Member(s.id)
	out, err := s.b.guarded(ctx, nil, &Batch{Txns: []Txn{{
		If:  []Compare{{Key: member, Rev: Exists}},
		Ops: []Op{{Key: member, Delete: true}, {Key: s.b.keys.Beat(s.id), Delete: true}},
	}}})
	if err != nil {
		return err
	}
	if err := out.Results[0].Err; err != nil {
		return fmt.Errorf("tenure: closing session %q: %w", s.id, err)
	}
	// A refused delete means that the record was already gone.
	if out.Results[0].OK {
		s.closed.Store(true)
	}
	s.lost.Store(true)
	return nil
}
