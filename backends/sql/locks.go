package sql

import (
	"context"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/tenure-go/tenure/core/driver"
)

const (
	// keepFreeLocks is how many rows of free locks a sweep leaves, and after how many
	// releases of locks a process sweeps: both together are what the contract allows.
	keepFreeLocks = driver.MaxFreeLocks / 2
	// maxSweep is how many rows one sweep removes at most.
	maxSweep = 2 * driver.MaxFreeLocks
)

// freed counts the locks that this process released since it swept last. Safe for
// concurrent use.
type freed struct{ n atomic.Int64 }

// start begins anywhere, so that of many processes that release few locks each, some sweep.
func (f *freed) start() { f.n.Store(rand.Int64N(keepFreeLocks)) }

// add reports whether it is time to sweep.
func (f *freed) add(released int) bool {
	n := f.n.Add(int64(released))
	return n >= keepFreeLocks && f.n.CompareAndSwap(n, 0)
}

// freeLock is the row of a free lock as a sweep reads it first.
type freeLock struct {
	name     string
	token    driver.Token
	revision int64
}

// sweepLocks removes rows of locks that are free and never had a commit, but for the newest
// (R2): a lock without a row is free as well. What fails, as where the role may not delete
// rows, is left to a later sweep; the release before it counts all the same.
func (b *Backend) sweepLocks(ctx context.Context) {
	seen := b.floor.Load()
	var free []freeLock
	// In the order of bytes, "/" is next to ".", with which the prefix ends.
	end := strings.TrimSuffix(driver.LockPrefix, ".") + "/"
	err := b.store.ReadData(ctx, func(ctx context.Context, data *Tx) error {
		free = nil
		return data.rows(ctx, locksFree, []any{b.name, driver.LockPrefix, end, keepFreeLocks, maxSweep}, func(r Row) error {
			var l freeLock
			err := r.Scan(&l.name, &l.token, &l.revision)
			free = append(free, l)
			return err
		})
	})
	if err != nil || len(free) == 0 {
		return
	}
	_ = b.store.WriteData(ctx, func(ctx context.Context, data *Tx) error {
		// No owner changes while this row is locked. A row that another transaction has
		// locked stays, so that none waits for another.
		ns, err := b.checkData(ctx, data, namespaceLock, seen)
		if err != nil {
			return err
		}
		locked, err := b.readShards(ctx, data, shardsClaim, namesOf(free, func(l freeLock) string { return l.name }))
		if err != nil {
			return err
		}
		names, trimmed := removable(free, locked)
		if len(names) == 0 {
			return nil
		}
		// An observer that has yet to see one of these releases gets the full state.
		if err := data.write(ctx, namespaceTrim, b.name, max(ns.trimmed, trimmed)); err != nil {
			return err
		}
		return data.write(ctx, shardsDelete, b.name, array(names))
	})
}

// removable returns which of the locks are still as they were read, and have no head, and
// the highest of their revisions.
func removable(free []freeLock, locked map[driver.ShardID]record) (names []string, revision int64) {
	for _, l := range free {
		r, ok := locked[driver.ShardID(l.name)]
		if ok && r.why == "" && r.owner == (driver.Owner{Token: l.token}) && r.head == (driver.Head{}) {
			names = append(names, l.name)
			revision = max(revision, l.revision)
		}
	}
	return names, revision
}

// lockFree queues that the rows of locks are locked which a claim takes for free, so that a
// free one can be granted whatever its token (R2). Of others nobody has asked whether their
// owner lives. The namespace's row is locked before, so that this waits for no other.
func (b *Backend) lockFree(ctx context.Context, data *Tx, fresh []string, locked map[driver.ShardID]record) error {
	locks := slices.DeleteFunc(fresh, func(name string) bool { return !driver.IsLock(driver.ShardID(name)) })
	if len(locks) == 0 {
		return nil
	}
	return b.askShards(ctx, data, shardsClaim, locks, locked)
}
