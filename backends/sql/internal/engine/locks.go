package engine

import (
	"context"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/tenure-go/tenure/core/driver"
)

const (
	// keepFreeLocks is the number of free locks whose rows a sweep keeps, and also the number of
	// released locks after which a process sweeps. The sum of these two numbers is the contract's
	// limit.
	keepFreeLocks = driver.MaxFreeLocks / 2
	// maxSweep is the maximum number of rows that one sweep removes.
	maxSweep = 2 * driver.MaxFreeLocks
)

// freed is the number of locks that this process has released since its last sweep. It is safe for
// concurrent use.
type freed struct{ n atomic.Int64 }

// start sets a random count. Therefore, even if each of many processes releases only a few locks,
// some of them sweep.
func (f *freed) start() { f.n.Store(rand.Int64N(keepFreeLocks)) }

// add reports whether it is time to sweep.
func (f *freed) add(released int) bool {
	n := f.n.Add(int64(released))
	return n >= keepFreeLocks && f.n.CompareAndSwap(n, 0)
}

// freeLock is the row of a free lock when the sweep first reads it.
type freeLock struct {
	name     string
	token    driver.Token
	revision int64
}

// sweepLocks removes the rows of free locks that never had a commit, except the newest rows (R2). A
// lock without a row is also free. If the removal fails, for example because the role may not
// delete, a later sweep repeats it. The release before the sweep is still valid.
func (b *Backend) sweepLocks(ctx context.Context) {
	seen := b.floor.Load()
	var free []freeLock
	// In byte order, "/" follows ".", the last byte of the prefix.
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
		// No owner changes while this row is locked. The sweep skips a row that another transaction
		// has locked, so that neither transaction waits for the other.
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
		// An observer that has not yet seen one of these releases gets the full state.
		if err := data.write(ctx, namespaceTrim, b.name, max(ns.trimmed, trimmed)); err != nil {
			return err
		}
		return data.write(ctx, shardsDelete, b.name, array(names))
	})
}

// The results are the locks that have no head and have not changed since sweepLocks read them, and
// the highest revision of these locks.
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

// lockFree queues a statement that locks the rows of locks that claims expect to be free.
// Therefore, a free lock is granted regardless of its token (R2). For other shards, lockFree cannot
// know whether the owner is alive. The statement waits for no other transaction, because the
// namespace's row is already locked.
func (b *Backend) lockFree(ctx context.Context, data *Tx, fresh []string, locked map[driver.ShardID]record) error {
	locks := slices.DeleteFunc(fresh, func(name string) bool { return !driver.IsLock(driver.ShardID(name)) })
	if len(locks) == 0 {
		return nil
	}
	return b.askShards(ctx, data, shardsClaim, locks, locked)
}
