package sql

import (
	"context"
	"fmt"

	"github.com/tenure-go/tenure/core/driver"
)

// maxBeatsAsked bounds the beats of one query.
const maxBeatsAsked = 100_000

// observed is a position of Observe.
type observed struct {
	base, revision int64 // of the data
	roster         int64
}

// Observe blocks until something changed. See driver.Backend.
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
	err := b.poll(ctx, Observers, func() (bool, error) {
		var err error
		view, err = b.look(ctx, since, q.Beats)
		return view != nil, b.adopting(ctx, err)
	})
	if err != nil {
		return nil, err
	}
	return view, nil
}

// look returns what differs from the position, or nil.
func (b *Backend) look(ctx context.Context, since *observed, beats []driver.Beat) (*driver.View, error) {
	floor, rosterAt := b.floor.Load(), b.rosterAt.Load()
	view := new(driver.View)
	var ns namespace
	var roster int64
	err := b.store.Read(ctx, func(ctx context.Context, dataTx, rosterTx *Tx) (err error) {
		checkData := b.askData(ctx, dataTx, namespaceRead, floor)
		checkRoster := b.askRoster(ctx, rosterTx, rosterRead, rosterAt)
		if view.Beats, err = b.newBeats(ctx, rosterTx, beats); err != nil {
			return err
		}
		if ns, err = checkData(); err != nil {
			return err
		}
		roster, err = checkRoster()
		return err
	})
	if err != nil {
		return nil, err
	}
	reset := since == nil || since.base != ns.base || since.revision > ns.revision ||
		since.roster > roster || since.roster < roster-keepDepartures
	if reset {
		view.Reset, since = true, &observed{revision: -1, roster: -1}
	}
	at := observed{since.base, since.revision, since.roster}
	if since.revision != ns.revision {
		if err := b.changedShards(ctx, view, &at, floor); err != nil {
			return nil, err
		}
	}
	if since.roster != roster {
		if err := b.changedMembers(ctx, view, &at, rosterAt); err != nil {
			return nil, err
		}
	}
	if !reset && at == *since && len(view.Beats) == 0 {
		return nil, nil
	}
	if err := b.settle(ctx, false, sight{floor: at.base + at.revision, roster: at.roster}); err != nil {
		return nil, err
	}
	view.Cursor = b.cursor("o", at.base, at.revision, at.roster)
	return view, nil
}

func (b *Backend) newBeats(ctx context.Context, roster *Tx, asked []driver.Beat) ([]driver.Beat, error) {
	if len(asked) == 0 {
		return nil, nil
	}
	versions, err := b.readBeats(ctx, roster, beatsRead, asked)
	if err != nil {
		return nil, err
	}
	var changed []driver.Beat
	for _, a := range asked {
		if v := versions[a.Session]; v > a.Version {
			changed = append(changed, driver.Beat{Session: a.Session, Version: v})
		}
	}
	return changed, nil
}

// changedShards adds the shards since at, and moves at, on one snapshot.
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
		at.base, at.revision = ns.base, ns.revision
		how, args := shardsSince, []any{b.name, since}
		if view.Reset {
			how, args = shardsAll, []any{b.name}
		}
		return data.rows(ctx, how, args, func(r Row) error {
			var s driver.ShardState
			if err := r.Scan(&s.Shard, &s.Owner.Session, &s.Owner.Token); err != nil {
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

// changedMembers adds who joined and who left since at, and moves at, on one
// snapshot.
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
			if driver.CheckSession(id) == nil { // no other was ever a member
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
