package postgres

import (
	"context"
	stdsql "database/sql"
	"errors"
	"testing"

	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/proof/ample"
	"github.com/tenure-go/tenure/internal/proof/servers"
	"github.com/tenure-go/tenure/internal/proof/sqlfault"
)

// TestEvictedWhileGranted: until a claim or a transfer commits, neither the calling session nor the
// session that gets the shard can be evicted (M1, A1, A5).
func TestEvictedWhileGranted(t *testing.T) {
	t.Parallel()
	dsn := pool.Get(t, servers.Postgres, nil).Database(t)
	b := open(t, dsn, Options{})
	db := setup.DB(t, dsn)
	judge := sqlfault.Join(t, b, "judge")
	for name, c := range map[string]struct {
		transfer bool
		suspect  int
	}{"claimer": {false, 0}, "giver": {true, 0}, "target": {true, 1}} {
		t.Run(name, func(t *testing.T) {
			shard := driver.ShardID(name)
			members := []driver.Session{sqlfault.Join(t, b, "n1"), sqlfault.Join(t, b, "n2")}
			grant := func() ([]driver.AcquireResult, error) {
				return members[0].Acquire(t.Context(), []driver.Claim{{Shard: shard}})
			}
			if c.transfer {
				held, err := grant()
				if err != nil || held[0].Err != nil {
					t.Fatal(held, err)
				}
				grant = func() ([]driver.AcquireResult, error) {
					return members[0].Transfer(t.Context(), []driver.Transfer{{Fence: held[0].Fence, To: members[1].ID()}})
				}
			}
			// Tokens come from the namespace's row, which is locked last.
			last := sqlfault.Tx(t, db, stdsql.LevelReadCommitted)
			sqlfault.Exec(t, last, "SELECT * FROM tenure_namespaces FOR UPDATE")
			granted := make(chan bool, 1)
			go func() {
				res, err := grant()
				granted <- err == nil && res[0].Err == nil
			}()
			awaitWaiting(t, db, 1)
			suspects := []driver.Suspect{{Session: members[c.suspect].ID(), Version: 1}}
			evicted, err := judge.Evict(t.Context(), suspects)
			if err != nil {
				t.Fatal(err)
			}
			if err := last.Rollback(); err != nil {
				t.Fatal(err)
			}
			if <-granted && evicted[0].Evicted {
				t.Errorf("the %s was evicted, and the shard granted after", name)
			}
			if again, err := judge.Evict(t.Context(), suspects); err != nil || again[0].Err != nil {
				t.Errorf("evicting the %s afterwards: %+v, %v", name, again, err)
			}
		})
	}
}

// TestOwnerChangesWaitForFences: writes under a fence are either committed before the lease is
// released or claimed by another session, or not committed at all (F1).
func TestOwnerChangesWaitForFences(t *testing.T) {
	t.Parallel()
	dsn := pool.Get(t, servers.Postgres, nil).Database(t)
	b := open(t, dsn, Options{})
	db := setup.DB(t, dsn)
	s, other := sqlfault.Join(t, b, "n1"), sqlfault.Join(t, b, "n2")
	claim := func(ctx context.Context, f driver.Fence) error {
		seen := driver.Owner{Session: f.Session, Token: f.Token}
		res, err := other.Acquire(ctx, []driver.Claim{{Shard: f.Shard, Seen: seen, Preempt: true}})
		if err == nil {
			err = res[0].Err
		}
		return err
	}
	release := func(ctx context.Context, f driver.Fence) error { return s.Release(ctx, []driver.Fence{f}) }
	for name, change := range map[string]func(context.Context, driver.Fence) error{"claim": claim, "release": release} {
		t.Run(name, func(t *testing.T) {
			res, err := s.Acquire(t.Context(), []driver.Claim{{Shard: driver.ShardID(name)}})
			if err != nil || res[0].Err != nil {
				t.Fatal(res, err)
			}
			fence := res[0].Fence
			fenced := sqlfault.Tx(t, db, stdsql.LevelReadCommitted)
			if err := b.FenceTx(t.Context(), fenced, fence); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), fenceIdleTimeout/4)
			changed := change(ctx, fence)
			cancel()
			// The server may have ended the idle transaction.
			if err := fenced.Commit(); err == nil && changed == nil {
				t.Errorf("a %s took effect before a transaction that had proven the lease committed", name)
			}
			after := func() bool {
				if changed != nil {
					changed = change(t.Context(), fence)
				}
				return changed == nil || errors.Is(changed, driver.ErrHeld) // an earlier attempt was applied; its answer was lost
			}
			if !ample.Soon(t.Context(), after) {
				t.Errorf("the %s after the transaction: %v", name, changed)
			}
		})
	}
}

// TestLocks: R2.
func TestLocks(t *testing.T) {
	t.Parallel()
	dsn := pool.Get(t, servers.Postgres, nil).Database(t)
	sqlfault.CheckLocks(t, open(t, dsn, Options{}), setup.DB(t, dsn))
}
