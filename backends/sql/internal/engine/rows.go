package engine

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/tenure-go/tenure/core/driver"
)

// A transaction that is suspended between two statements keeps its locks, but must not delay other
// shards or sessions. Therefore, claims and evictions skip locked rows. A claim or eviction retries
// for the duration of an ordinary transaction, and then returns ErrRetry for rows that are still
// locked.
const (
	lockTries = 40
	lockPause = 2 * time.Millisecond
)

func errBusy(what, name string) error {
	return fmt.Errorf("tenure: %s %q: %w: another transaction has its row locked", what, name, driver.ErrRetry)
}

// untilLocked calls lock until no rows are left to lock, but at most lockTries times.
func untilLocked(ctx context.Context, lock func() (left int, err error)) error {
	var timer *time.Timer
	for try := 1; ; try++ {
		left, err := lock()
		if err != nil || left == 0 || try == lockTries {
			return err
		}
		if timer == nil {
			timer = time.NewTimer(lockPause)
			defer timer.Stop()
		} else {
			timer.Reset(lockPause)
		}
		select {
		case <-timer.C:
		case <-ctx.Done():
			return fmt.Errorf("tenure: %w: the context ended while rows were locked: %w", driver.ErrRetry, driver.Ended(ctx))
		}
	}
}

// readShards reads the shards' rows, and locks them if the statement does. Rows are locked in
// order, which prevents deadlocks.
func (b *Backend) readShards(ctx context.Context, data *Tx, how Statement, names []string) (map[driver.ShardID]record, error) {
	records := make(map[driver.ShardID]record, len(names))
	err := b.askShards(ctx, data, how, names, records)
	if err == nil {
		err = data.flush(ctx)
	}
	return records, err
}

// askShards queues the read of readShards. The records are set once the queue has run.
func (b *Backend) askShards(ctx context.Context, data *Tx, how Statement, names []string, records map[driver.ShardID]record) error {
	if !slices.IsSorted(names) {
		names = slices.Sorted(slices.Values(names))
	}
	return data.queue(ctx, how, []any{b.name, array(names)}, func(r Row) error {
		var shard driver.ShardID
		var rec record
		var nonce int64
		err := r.Scan(&shard, &rec.owner.Session, &rec.owner.Token, &rec.granted,
			&rec.head.Number, &rec.head.Seq, &rec.head.Oldest, &nonce, &rec.head.Token)
		rec.head.Nonce = driver.Nonce(nonce)
		rec.judge(math.MaxInt64)
		records[shard] = rec
		return err
	})
}

// judge sets the reason if the row is unusable, for example because its token is above floor and
// thus was never granted. It also clears an invalid owner.
func (r *record) judge(floor int64) {
	if why := checkOwner(r.owner, r.granted, floor); why != "" {
		r.owner, r.why = driver.Owner{}, cmp.Or(r.why, why)
	} else if r.why == "" {
		r.why = driver.CheckHead(r.head)
	}
}

// claimShards locks and reads the rows that exist and that no other transaction has locked.
func (b *Backend) claimShards(ctx context.Context, data *Tx, names []string) (map[driver.ShardID]record, error) {
	records := make(map[driver.ShardID]record, len(names))
	if len(names) == 0 {
		return records, nil
	}
	rest := slices.Sorted(slices.Values(names))
	err := untilLocked(ctx, func() (int, error) {
		locked, err := b.readShards(ctx, data, shardsClaim, rest)
		if err != nil || len(locked) == len(rest) {
			return 0, join(records, locked, err)
		}
		rest = slices.DeleteFunc(rest, func(name string) bool { _, ok := locked[driver.ShardID(name)]; return ok })
		busy, err := b.readShards(ctx, data, shardsRead, rest)
		return len(busy), join(records, locked, err)
	})
	return records, err
}

func join[K comparable, V any](to, from map[K]V, err error) error {
	for k, v := range from {
		to[k] = v
	}
	return err
}

// readRest reads the remaining rows without locking them. While the namespace's row is locked,
// missing rows stay missing.
func (b *Backend) readRest(ctx context.Context, data *Tx, names []string, locked map[driver.ShardID]record) (map[driver.ShardID]record, error) {
	if len(locked) == len(names) {
		return nil, nil
	}
	var rest []string
	for _, name := range names {
		if _, ok := locked[driver.ShardID(name)]; !ok {
			rest = append(rest, name)
		}
	}
	return b.readShards(ctx, data, shardsRead, rest)
}

// lockMembers locks members for removal. It returns their versions, and the members that another
// transaction has locked.
func (b *Backend) lockMembers(ctx context.Context, roster *Tx, of []driver.Beat) (versions map[driver.SessionID]driver.Version, busy map[driver.SessionID]bool, err error) {
	versions = make(map[driver.SessionID]driver.Version, len(of))
	rest := slices.Clone(of)
	err = untilLocked(ctx, func() (int, error) {
		locked, err := b.readBeats(ctx, roster, membersLock, rest)
		if err != nil || len(locked) == len(rest) {
			busy = nil
			return 0, join(versions, locked, err)
		}
		rest = slices.DeleteFunc(rest, func(b driver.Beat) bool { _, ok := locked[b.Session]; return ok })
		left, _, err := b.alive(ctx, roster, membersPresent, namesOf(rest, func(b driver.Beat) driver.SessionID { return b.Session }))
		busy = left
		return len(left), join(versions, locked, err)
	})
	return versions, busy, err
}

func namesOf[T any, S ~string](items []T, name func(T) S) []S {
	names := make([]S, len(items))
	for i, it := range items {
		names[i] = name(it)
	}
	return names
}

// lockMember locks one member for removal, and reports whether the member exists.
func (b *Backend) lockMember(ctx context.Context, roster *Tx, id driver.SessionID) (bool, error) {
	versions, busy, err := b.lockMembers(ctx, roster, []driver.Beat{{Session: id}})
	if err == nil && busy[id] {
		err = errBusy("session", string(id))
	}
	return len(versions) > 0, err
}

// lockState locks a member for an update, and returns the member.
func (b *Backend) lockState(ctx context.Context, roster *Tx, id driver.SessionID) (m driver.Member, err error) {
	found, busy, why := false, false, ""
	err = untilLocked(ctx, func() (int, error) {
		err := roster.rows(ctx, memberLock, []any{b.name, string(id)}, func(r Row) (err error) {
			found = true
			m, why, err = scanMember(r)
			return err
		})
		if err != nil || found {
			busy = false
			return 0, err
		}
		left, _, err := b.alive(ctx, roster, membersPresent, []driver.SessionID{id})
		busy = left[id]
		return len(left), err
	})
	switch {
	case err != nil:
		return m, err
	case busy:
		return m, errBusy("session", string(id))
	case !found:
		return m, lost(id)
	case why != "" && driver.CheckMember(m, driver.Limits{}) != nil: // an update replaces bad metadata
		return m, b.damaged("members", string(id), "", why)
	}
	return m, nil
}
