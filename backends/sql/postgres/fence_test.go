package postgres

import (
	stdsql "database/sql"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/proof/servers"
	"github.com/tenure-go/tenure/internal/proof/sqlfault"
)

func TestFence(t *testing.T) {
	t.Parallel()
	dsn := pool.Get(t, servers.Postgres, nil).Database(t)
	b := open(t, dsn, Options{})
	db := setup.DB(t, dsn)
	sqlfault.Exec(t, db, "CREATE TABLE deposits (amount int)")
	conn, err := pgx.Connect(t.Context(), dsn.Reveal())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	s, next := sqlfault.Join(t, b, "n1"), sqlfault.Join(t, b, "n2")
	granted, _ := sqlfault.Acquire(t, s, sqlfault.Claims(1))
	fence := granted[0].Fence

	for _, level := range []stdsql.IsolationLevel{stdsql.LevelReadCommitted, stdsql.LevelRepeatableRead, stdsql.LevelSerializable} {
		first, second := sqlfault.Tx(t, db, level), sqlfault.Tx(t, db, level)
		for _, tx := range []*stdsql.Tx{first, second} { // fences of one lease do not wait for each other
			if err := b.FenceTx(t.Context(), tx, fence); err != nil {
				t.Fatalf("%v: %v", level, err)
			}
			sqlfault.Exec(t, tx, "INSERT INTO deposits VALUES (1)")
		}
		sqlfault.Commit(t, s, sqlfault.AppendOf(fence, granted[0].Head.Number+1, []byte("beside"))) // commits do not wait for them either
		granted[0].Head.Number++
		if err := errors.Join(first.Commit(), second.Commit()); err != nil {
			t.Fatalf("%v: %v", level, err)
		}
	}
	byPgx, err := conn.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := b.FencePgx(t.Context(), byPgx, fence); err != nil {
		t.Fatal(err)
	}
	var limit string
	if err := byPgx.QueryRow(t.Context(), "SHOW idle_in_transaction_session_timeout").Scan(&limit); err != nil || limit != fenceIdleTimeout.String() {
		t.Errorf("time-out %s, %v, want %v", limit, err, fenceIdleTimeout)
	}

	// A takeover waits for the transactions that hold the fence.
	transferred := make(chan driver.AcquireResult, 1)
	go func() {
		for {
			res, err := s.Transfer(t.Context(), []driver.Transfer{{Fence: fence, To: next.ID()}})
			if err == nil && !errors.Is(res[0].Err, driver.ErrRetry) || t.Context().Err() != nil {
				transferred <- res[0]
				return
			}
		}
	}()
	select {
	case res := <-transferred:
		t.Errorf("transferred under a fence: %+v", res)
	case <-time.After(100 * time.Millisecond):
	}
	if err := byPgx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	res := <-transferred
	if res.Err != nil {
		t.Fatal(res.Err)
	}
	var fenced *driver.FencedError
	late := sqlfault.Tx(t, db, stdsql.LevelReadCommitted)
	if err := b.FenceTx(t.Context(), late, fence); !errors.As(err, &fenced) || fenced.Current.Token != res.Fence.Token {
		t.Errorf("the former fence: %v", err)
	}
	if err := b.FencePgx(t.Context(), byPgx, fence); err == nil {
		t.Error("a fence in a transaction that has ended")
	}
}

// TestFenceOfOldSnapshot: a transaction with an outdated snapshot may not write.
func TestFenceOfOldSnapshot(t *testing.T) {
	t.Parallel()
	dsn := pool.Get(t, servers.Postgres, nil).Database(t)
	b := open(t, dsn, Options{})
	s := sqlfault.Join(t, b, "n1")
	granted, _ := sqlfault.Acquire(t, s, sqlfault.Claims(1))
	old := sqlfault.Tx(t, setup.DB(t, dsn), stdsql.LevelRepeatableRead)
	sqlfault.Exec(t, old, "SELECT 1 FROM tenure_shards")
	res, err := s.Transfer(t.Context(), []driver.Transfer{{Fence: granted[0].Fence, To: s.ID()}})
	if err != nil || res[0].Err != nil {
		t.Fatal(res, err)
	}
	if err := b.FenceTx(t.Context(), old, granted[0].Fence); !errors.Is(err, driver.ErrRetry) {
		t.Errorf("fence with an old snapshot: %v, want ErrRetry (a serialization failure)", err)
	}
}
