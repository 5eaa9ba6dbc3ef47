package engine

import (
	"context"
	"fmt"

	"github.com/tenure-go/tenure/core/driver"
)

// maxBeatsAsked limits the number of beats in one query.
const maxBeatsAsked = 100_000

// observed is a position from which Observe can continue.
type observed struct {
	base, revision int64 // of the data
	roster         int64
}

// Observe blocks until something changes. See driver.Backend.
func (b *Backend) Observe(ctx context.Context, q driver.ObserveQuery) (*driver.View, error) {
	if err := b.begin(ctx); err != nil {
		return nil, err
	}
	if len(q.Beats) > maxBeatsAsked {
		return nil, invalid("%d beats asked for: the limit is %d", len(q.Beats), maxBeatsAsked)
	}
	for _, beat := range q.Beats {
		if err := driver.CheckSession(beat.Session); err != nil {
			return nil, err
		}
	}
	var since *observed
	if at, ok := b.parseCursor("o", q.Since, 3); ok {
		since = &observed{at[0], at[1], at[2]}
	}
	var view *driver.View
	var versions map[driver.SessionID]driver.Version
	r := &reader{b: b, of: Observers, asked: q.Beats, attention: &b.observing, from: b.lastView.goOn(q)}
	r.look = func(ctx context.Context) (found news, err error) {
		view, versions, err = b.look(ctx, since, q.Beats)
		switch {
		case view == nil:
		case !view.Reset && len(view.Beats) > 0 && len(view.Members)+len(view.Gone)+len(view.Shards) == 0:
			found = heartbeats
		default:
			found = states
		}
		return found, b.adopting(ctx, err)
	}
	if err := r.poll(ctx); err != nil {
		return nil, err
	}
	b.lastView.set(view.Cursor, versions, r.from)
	return view, nil
}

// look returns the changes since the position, or nil if nothing changed, and the versions of the
// requested sessions.
func (b *Backend) look(ctx context.Context, since *observed, beats []driver.Beat) (*driver.View,
	map[driver.SessionID]driver.Version, error) {
	floor, rosterAt := b.floor.Load(), b.rosterAt.Load()
	view := new(driver.View)
	var ns namespace
	var roster int64
	var versions map[driver.SessionID]driver.Version
	err := b.store.Read(ctx, func(ctx context.Context, data, members *Tx) (err error) {
		found := false
		if b.stmts.has(lookRead) {
			if ns, roster, versions, found, err = b.lookAtOnce(ctx, data, floor, rosterAt, beats); found || err != nil {
				return err
			}
		}
		checkData := b.askData(ctx, data, namespaceRead, floor)
		checkRoster := b.askRoster(ctx, members, rosterRead, rosterAt)
		if versions, err = b.beatsOf(ctx, members, beats); err != nil {
			return err
		}
		if ns, err = checkData(); err != nil {
			return err
		}
		roster, err = checkRoster()
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	b.peers.saw(beats, versions)
	view.Beats = newer(beats, versions)
	reset := since == nil || since.base != ns.base || since.revision > ns.revision || ns.forgot(since.revision) ||
		since.roster > roster || since.roster < roster-keepDepartures
	if reset {
		view.Reset, since = true, &observed{revision: -1, roster: -1}
	}
	at := observed{since.base, since.revision, since.roster}
	if since.revision != ns.revision {
		if err := b.changedShards(ctx, view, &at, floor); err != nil {
			return nil, nil, err
		}
	}
	if since.roster != roster {
		if err := b.changedMembers(ctx, view, &at, rosterAt); err != nil {
			return nil, nil, err
		}
	}
	if !reset && at == *since && len(view.Beats) == 0 {
		return nil, nil, nil
	}
	if err := b.settle(ctx, false, sight{floor: at.base + at.revision, roster: at.roster}); err != nil {
		return nil, nil, err
	}
	view.Cursor = b.cursor("o", at.base, at.revision, at.roster)
	b.odd.Tell(view)
	b.peers.learn(view)
	return view, versions, nil
}

// lookAtOnce reads the revisions of the namespace and its roster, and the versions of the requested
// sessions, in one statement. The result found is false if one of the rows is missing.
func (b *Backend) lookAtOnce(ctx context.Context, tx *Tx, floor, rosterAt int64, asked []driver.Beat) (
	ns namespace, roster int64, versions map[driver.SessionID]driver.Version, found bool, err error) {
	var id string
	versions = make(map[driver.SessionID]driver.Version, len(asked))
	for _, a := range asked {
		versions[a.Session] = 0
	}
	sessions := list(asked, func(b driver.Beat) driver.SessionID { return b.Session })
	err = tx.rows(ctx, lookRead, []any{b.name, sessions}, func(r Row) error {
		var beat driver.Beat
		found = true
		err := r.Scan(&ns.id, &ns.base, &ns.revision, &ns.trimmed, &ns.recorded, &ns.current, &id, &roster, &beat.Session, &beat.Version)
		if err == nil && beat.Session != "" {
			versions[beat.Session] = beat.Version
		}
		return err
	})
	if err == nil && found {
		err = b.compareData(ns, found, floor)
	}
	if err == nil && found {
		err = b.compareRoster(id, ns.incarnations, roster, found, rosterAt)
	}
	return ns, roster, versions, found, err
}

func (b *Backend) beatsOf(ctx context.Context, roster *Tx, asked []driver.Beat) (
	map[driver.SessionID]driver.Version, error) {
	versions := make(map[driver.SessionID]driver.Version, len(asked))
	if len(asked) == 0 {
		return versions, nil
	}
	found, err := b.readBeats(ctx, roster, beatsRead, asked)
	for _, a := range asked {
		versions[a.Session] = found[a.Session]
	}
	return versions, err
}

// The result contains the requested heartbeats whose versions the caller does not know yet.
func newer(asked []driver.Beat, versions map[driver.SessionID]driver.Version) []driver.Beat {
	var changed []driver.Beat
	for _, a := range asked {
		if v := versions[a.Session]; v > a.Version {
			changed = append(changed, driver.Beat{Session: a.Session, Version: v})
		}
	}
	return changed
}

// changedShards adds the shards that changed since a position, and advances that position. It reads
// one snapshot.
func (b *Backend) changedShards(ctx context.Context, view *driver.View, at *observed, seen int64) error {
	since := at.revision
	var shards []driver.ShardState
	var damaged []*driver.DamagedError
	err := b.store.ReadData(ctx, func(ctx context.Context, data *Tx) error {
		shards, damaged = nil, nil
		ns, err := b.checkData(ctx, data, namespaceRead, seen)
		if err != nil {
			return err
		}
		if !view.Reset && ns.base != at.base {
			return fmt.Errorf("tenure: the floor of namespace %q was raised just now: %w", b.name, driver.ErrRetry)
		}
		if !view.Reset && ns.forgot(since) {
			return fmt.Errorf("tenure: locks of namespace %q were removed just now: %w", b.name, driver.ErrRetry)
		}
		at.base, at.revision = ns.base, ns.revision
		how, args := shardsSince, []any{b.name, since}
		if view.Reset {
			how, args = shardsAll, []any{b.name}
		}
		return data.rows(ctx, how, args, func(r Row) error {
			var s driver.ShardState
			if view.Reset {
				err = r.Scan(&s.Shard, &s.Owner.Session, &s.Owner.Token)
			} else {
				err = scanChanged(r, &s)
			}
			if err != nil {
				return err
			}
			why := checkOwner(s.Owner, 0, ns.floor())
			if driver.CheckShard(s.Shard) != nil {
				why = whyName
			}
			if why != "" {
				damaged = note(damaged, b.damaged("shards", string(s.Shard), s.Shard, why))
				return nil
			}
			shards = append(shards, s)
			return nil
		})
	})
	if err == nil {
		view.Damaged = note(view.Damaged, damaged...)
		if view.Shards = shards; view.Reset {
			view.Floor = driver.Token(at.base)
		}
	}
	return err
}

// scanChanged reads the owner and the head of a shard that changed.
func scanChanged(r Row, s *driver.ShardState) error {
	var head driver.Head
	var nonce int64
	err := r.Scan(&s.Shard, &s.Owner.Session, &s.Owner.Token, &head.Number, &head.Seq, &head.Oldest, &nonce, &head.Token)
	head.Nonce = driver.Nonce(nonce)
	if s.Owner.Session != "" && driver.CheckHead(head) == "" {
		s.Head = &head
	}
	return err
}

// changedMembers adds the members that joined or left since a position, and advances that position.
// It reads one snapshot.
func (b *Backend) changedMembers(ctx context.Context, view *driver.View, at *observed, seen int64) error {
	since := at.roster
	var members []driver.Member
	var gone []driver.SessionID
	var damaged []*driver.DamagedError
	err := b.store.ReadRoster(ctx, func(ctx context.Context, roster *Tx) error {
		members, gone, damaged = nil, nil, nil
		revision, err := b.checkRoster(ctx, roster, rosterRead, seen)
		if err != nil {
			return err
		}
		if !view.Reset && since < revision-keepDepartures {
			return fmt.Errorf("tenure: the roster of namespace %q changes faster than it is read: %w", b.name, driver.ErrRetry)
		}
		at.roster = revision
		how, args := membersSince, []any{b.name, since}
		if view.Reset {
			how, args = membersAll, []any{b.name}
		}
		err = roster.rows(ctx, how, args, func(r Row) error {
			m, why, err := scanMember(r)
			if err != nil {
				return err
			}
			if why != "" {
				damaged = note(damaged, b.damaged("members", string(m.Session), "", why))
			}
			if driver.CheckMember(m, driver.Limits{}) == nil {
				members = append(members, m)
			}
			return nil
		})
		if err != nil || view.Reset {
			return err
		}
		return roster.rows(ctx, departuresSince, []any{b.name, since}, func(r Row) error {
			var id driver.SessionID
			if err := r.Scan(&id); err != nil {
				return err
			}
			if driver.CheckSession(id) == nil { // no member ever had an invalid id
				gone = append(gone, id)
			}
			return nil
		})
	})
	if err == nil {
		view.Members, view.Gone = members, gone
		view.Damaged = note(view.Damaged, damaged...)
	}
	return err
}
