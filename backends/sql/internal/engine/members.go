package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/boundjson"
)

// keepDepartures is the number of roster revisions for which the roster keeps departures. A reader
// with an older cursor gets the full state.
const keepDepartures = 4096

// session is a member's session. It is safe for concurrent use.
type session struct {
	b      *Backend
	id     driver.SessionID
	node   string
	acked  atomic.Int64 // highest acknowledged version of the beat (I1)
	tried  atomic.Int64 // highest version of the beat sent
	closed atomic.Bool  // by this process
	beats  beats
}

var (
	_ driver.Session   = (*session)(nil)
	_ driver.Explainer = (*session)(nil)
)

func (s *session) ID() driver.SessionID { return s.id }

func lost(id driver.SessionID) error { return &driver.SessionLostError{Session: id} }

// writeRoster checks the identity and calls fn, in one transaction on the roster. The function
// receives the roster's revision, and returns the new revision or, if nothing changed, the same
// one.
func (b *Backend) writeRoster(ctx context.Context, fn func(ctx context.Context, roster *Tx, revision int64) (int64, error)) error {
	seen := b.rosterAt.Load()
	var now int64
	var wrote bool
	err := b.store.WriteRoster(ctx, func(ctx context.Context, roster *Tx) error {
		at, err := b.checkRoster(ctx, roster, rosterLock, seen)
		if err != nil {
			return err
		}
		now, err = fn(ctx, roster, at)
		if wrote = now != at; err != nil || !wrote {
			return err
		}
		return roster.write(ctx, rosterRaise, b.name, now)
	})
	if err == nil {
		err = b.settle(ctx, wrote, sight{roster: now})
	}
	return b.adopting(ctx, err)
}

// Join creates a session. See driver.Backend.
func (b *Backend) Join(ctx context.Context, m driver.Member) (driver.Session, error) {
	if err := b.begin(ctx); err != nil {
		return nil, err
	}
	b.observing.expect()
	if err := driver.CheckMember(m, b.info.Limits); err != nil {
		return nil, err
	}
	before, err := b.readLabel(ctx, m.Node)
	if err != nil {
		return nil, notApplied(b.adopting(ctx, b.readError(err)))
	}
	err = b.writeRoster(ctx, func(ctx context.Context, roster *Tx, at int64) (int64, error) {
		if err := b.checkLabel(ctx, roster, m, before); err != nil {
			return at, err
		}
		if m.Supersede && before.known {
			if _, err := b.lockMember(ctx, roster, before.session); err != nil {
				return at, err
			}
			if err := b.depart(ctx, roster, []driver.SessionID{before.session}, at+1, driver.LossSuperseded, m.Session); err != nil {
				return at, err
			}
		}
		return at + 1, b.insertMember(ctx, roster, m, at+1)
	})
	if errors.Is(err, errRaced) && !m.Supersede && ctx.Err() == nil {
		return b.Join(ctx, m) // each time, another session has joined
	}
	if err != nil {
		return nil, err
	}
	s := &session{b: b, id: m.Session, node: m.Node, beats: beats{changed: make(chan struct{})}}
	s.acked.Store(1)
	s.tried.Store(1)
	if !before.known { // after the join, which succeeded even if this fails
		b.sweepLabels(ctx)
	}
	return s, nil
}

// label contains the data that a join reads about a node label. The join's write compares it, so a
// write that arrives late fails (M3).
type label struct {
	known    bool
	session  driver.SessionID // the last session that used the label
	removals string           // count of removals of unused labels
}

func (b *Backend) readLabel(ctx context.Context, node string) (l label, err error) {
	seen := b.floor.Load()
	err = b.store.Read(ctx, func(ctx context.Context, data, roster *Tx) error {
		check := b.askData(ctx, data, namespaceRead, seen)
		var err error
		if l.known, err = roster.row(ctx, nodeRead, []any{b.name, node}, &l.session); err != nil {
			return err
		}
		if _, err = roster.row(ctx, nodeRead, []any{b.name, removedLabels}, &l.removals); err != nil {
			return err
		}
		_, err = check()
		return err
	})
	return l, err
}

// checkLabel refuses a join whose session id was used before, or whose label changed after it was
// read.
func (b *Backend) checkLabel(ctx context.Context, roster *Tx, m driver.Member, before label) error {
	var last driver.SessionID
	var removed string
	if _, err := roster.ask(ctx, nodeRead, []any{b.name, removedLabels}, &removed); err != nil {
		return err
	}
	if _, err := roster.row(ctx, nodeRead, []any{b.name, m.Node}, &last); err != nil {
		return err
	}
	if err := b.checkUnused(ctx, roster, m.Session, last); err != nil {
		return err
	}
	if last != before.session || removed != before.removals {
		return errRaced
	}
	return nil
}

var errRaced = fmt.Errorf("tenure: %w: another session joined under this node label, or labels were removed, while this session joined", driver.ErrRetry)

// insertMember writes the records of a new session at a revision of the roster.
func (b *Backend) insertMember(ctx context.Context, roster *Tx, m driver.Member, at int64) error {
	if err := roster.write(ctx, nodeWrite, b.name, m.Node, string(m.Session)); err != nil {
		return err
	}
	if err := roster.write(ctx, memberInsert, b.name, string(m.Session), m.Node, int64(m.TTL),
		m.Priority, m.Weight, metaText(m.Meta), m.Draining, int64(m.Update), m.Supersede, at); err != nil {
		return err
	}
	return roster.write(ctx, beatInsert, b.name, string(m.Session))
}

func metaText(meta map[string]string) string {
	if len(meta) == 0 {
		return "{}"
	}
	return array(meta)
}

// notApplied marks an error that occurred before any write, so nothing was applied.
func notApplied(err error) error {
	if driver.NotApplied(err) {
		return err
	}
	return fmt.Errorf("tenure: %w: %w", driver.ErrRetry, err)
}

// checkUnused refuses a session id that was used before (M3). The earlier user may be a live
// member, the label's last session, or a session that departed recently.
func (b *Backend) checkUnused(ctx context.Context, roster *Tx, id, former driver.SessionID) error {
	alive, _, err := b.alive(ctx, roster, membersPresent, []driver.SessionID{id})
	if err != nil {
		return err
	}
	departed, err := roster.row(ctx, departureRead, []any{b.name, string(id)}, new(int64))
	if err != nil {
		return err
	}
	if id == former || alive[id] || departed {
		return fmt.Errorf("tenure: %w: session id %q was used before: make up a new one", driver.ErrConflict, id)
	}
	return nil
}

// The results are the sessions that have a member record, and their labels.
func (b *Backend) alive(ctx context.Context, roster *Tx, how Statement, ids []driver.SessionID) (found map[driver.SessionID]bool,
	labels map[driver.SessionID]string, err error) {
	found, labels = make(map[driver.SessionID]bool), make(map[driver.SessionID]string)
	if len(ids) == 0 {
		return found, labels, nil
	}
	err = roster.rows(ctx, how, []any{b.name, list(ids, same)}, func(r Row) error {
		var id driver.SessionID
		var node string
		if err := r.Scan(&id, &node); err != nil {
			return err
		}
		found[id], labels[id] = true, node
		return nil
	})
	return found, labels, err
}

// depart removes the sessions that exist. For each, it records the revision, the reason, and the
// session that ended it.
func (b *Backend) depart(ctx context.Context, roster *Tx, ids []driver.SessionID, revision int64, how driver.Loss, by driver.SessionID) error {
	sessions := list(ids, same)
	for _, step := range []struct {
		stmt Statement
		args []any
	}{
		{departuresInsert, []any{b.name, sessions, revision}},
		{membersDelete, []any{b.name, sessions}},
		{beatsDelete, []any{b.name, sessions}},
		{departuresTrim, []any{b.name, revision - keepDepartures}},
	} {
		if err := roster.write(ctx, step.stmt, step.args...); err != nil {
			return err
		}
	}
	return b.noteEnd(ctx, roster, how, by, revision)
}

// Update replaces the mutable part of the session's row. See driver.Session.
func (s *session) Update(ctx context.Context, st driver.MemberState) error {
	if err := s.b.begin(ctx); err != nil {
		return err
	}
	s.b.observing.expect()
	if err := driver.CheckUpdate(st); err != nil {
		return err
	}
	return s.b.writeRoster(ctx, func(ctx context.Context, roster *Tx, at int64) (int64, error) {
		m, err := s.b.lockState(ctx, roster, s.id)
		switch {
		case err != nil || m.Update == st.Update:
			return at, err
		case m.Update > st.Update:
			return at, fmt.Errorf("tenure: %w: session %q has update %d already: number updates in their order",
				driver.ErrConflict, s.id, m.Update)
		}
		return at + 1, roster.write(ctx, memberUpdate, s.b.name, string(s.id), st.Priority, st.Weight, metaText(st.Meta),
			st.Draining, int64(st.Update), at+1)
	})
}

// Evict ends silent sessions. See driver.Session.
func (s *session) Evict(ctx context.Context, suspects []driver.Suspect) ([]driver.EvictResult, error) {
	if err := s.b.begin(ctx); err != nil {
		return nil, err
	}
	s.b.observing.expect()
	if err := driver.CheckSuspects(suspects); err != nil {
		return nil, err
	}
	suspects = slices.Clone(suspects)
	return inParts(len(suspects), upTo(len(suspects), s.b.info.Limits.BatchItems), func(from, to int, results []driver.EvictResult) error {
		return s.evict(ctx, suspects[from:to], results)
	}, func(err error) driver.EvictResult { return driver.EvictResult{Err: err} })
}

func (s *session) evict(ctx context.Context, suspects []driver.Suspect, results []driver.EvictResult) error {
	b := s.b
	return b.writeRoster(ctx, func(ctx context.Context, roster *Tx, at int64) (int64, error) {
		if err := s.hold(ctx, roster); err != nil {
			return at, err
		}
		versions, busy, err := b.lockMembers(ctx, roster, suspects)
		if err != nil {
			return at, err
		}
		var gone []driver.SessionID
		for i, sus := range suspects {
			current := versions[sus.Session]
			results[i] = driver.EvictResult{Current: current}
			switch {
			case busy[sus.Session]:
				results[i] = driver.EvictResult{Err: errBusy("session", string(sus.Session))}
			case current == sus.Version:
				results[i] = driver.EvictResult{Evicted: true}
				gone = append(gone, sus.Session)
			}
		}
		if len(gone) == 0 {
			return at, nil
		}
		return at + 1, b.depart(ctx, roster, gone, at+1, driver.LossEvicted, s.id)
	})
}

// hold verifies that the session has a record, and prevents the record's removal until the
// transaction ends.
func (s *session) hold(ctx context.Context, roster *Tx) error {
	found, err := roster.row(ctx, memberHold, []any{s.b.name, string(s.id)}, new(string))
	if err == nil && !found {
		err = lost(s.id)
	}
	return err
}

func (b *Backend) readBeats(ctx context.Context, roster *Tx, how Statement, of []driver.Beat) (map[driver.SessionID]driver.Version, error) {
	versions := make(map[driver.SessionID]driver.Version, len(of))
	sessions := list(of, func(b driver.Beat) driver.SessionID { return b.Session })
	err := roster.rows(ctx, how, []any{b.name, sessions}, func(r Row) error {
		var b driver.Beat
		if err := r.Scan(&b.Session, &b.Version); err != nil {
			return err
		}
		versions[b.Session] = b.Version
		return nil
	})
	return versions, err
}

// Close removes the session's record. See driver.Session.
func (s *session) Close(ctx context.Context) error {
	if err := s.b.begin(ctx); err != nil {
		return err
	}
	s.b.observing.expect()
	found := false
	err := s.b.writeRoster(ctx, func(ctx context.Context, roster *Tx, at int64) (_ int64, err error) {
		if found, err = s.b.lockMember(ctx, roster, s.id); err != nil || !found {
			return at, err
		}
		return at + 1, s.b.depart(ctx, roster, []driver.SessionID{s.id}, at+1, driver.LossClosed, s.id)
	})
	if err == nil && found {
		s.closed.Store(true)
	}
	return err
}

// scanMember reads a member's row. For a damaged row, it also returns the reason. Data from a store
// is untrusted. With a TTL of 1 ns, for example, every member would send heartbeats without a
// pause. Therefore, a row that no valid join could have written is not a member. Metadata that is
// too large or cannot be decoded is omitted, because no decision depends on it.
func scanMember(r Row) (m driver.Member, why string, err error) {
	var ttl int64
	var meta []byte
	if err := r.Scan(&m.Session, &m.Node, &ttl, &m.Priority, &m.Weight, &meta, &m.Draining, &m.Update, &m.Supersede); err != nil {
		return m, "", err
	}
	m.TTL = time.Duration(ttl)
	if boundjson.Unmarshal(meta, len(meta), 2*driver.MaxMetaEntries, &m.Meta) != nil {
		m.Meta, why = nil, "its metadata are too many bytes, or no JSON object of strings"
	}
	if err := driver.CheckMember(m, driver.Limits{}); err != nil {
		m.Meta, why = nil, err.Error()
	}
	if len(m.Meta) == 0 {
		m.Meta = nil
	}
	return m, why, nil
}
