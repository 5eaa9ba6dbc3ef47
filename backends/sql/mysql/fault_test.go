package mysql

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/tenure-go/tenure/backends/sql/internal/engine"
	"github.com/tenure-go/tenure/backends/sql/internal/enginetest"
	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/proof/ample"
	"github.com/tenure-go/tenure/internal/proof/faultproxy"
	"github.com/tenure-go/tenure/internal/proof/servers"
	"github.com/tenure-go/tenure/internal/proof/share"
	"github.com/tenure-go/tenure/internal/proof/sqlfault"
)

// TestKilledAtCommit makes the server end the connection 200 times, during a commit or just before
// it.
func TestKilledAtCommit(t *testing.T) {
	t.Parallel()
	server := servers.New(t, servers.MariaDB, nil)
	dsn := server.Database(t)
	db := setup.DB(t, server.Admin())
	last := 0
	sqlfault.FaultWhileWriting(t, open(t, dsn, Options{MaxConns: 1}), int64(share.Of(t, "kills", 200, 40)), func(ctx context.Context) (int, error) {
		var id int
		err := db.QueryRowContext(ctx, `SELECT id FROM information_schema.processlist
WHERE user = ? AND id <> ? AND command IN ('Query', 'Execute') AND info IN ('COMMIT') LIMIT 1`, dsn.User(), last).Scan(&id)
		if errors.Is(err, sql.ErrNoRows) {
			return 0, nil
		}
		if err != nil {
			return 0, err
		}
		last = id
		if _, err := db.ExecContext(ctx, "KILL CONNECTION ?", id); err != nil && number(err) != 1094 { // it is gone
			return 0, err
		}
		return 1, nil
	})
}

func TestServerKilled(t *testing.T) {
	t.Parallel()
	server := servers.New(t, servers.MariaDB, nil)
	dsn := server.Database(t)
	sqlfault.FaultWhileWriting(t, open(t, dsn, Options{}), int64(share.Of(t, "crashes", 3, 1)), func(ctx context.Context) (int, error) {
		return 1, server.Restart(ctx)
	})
}

func TestNetwork(t *testing.T) {
	t.Parallel()
	dsn := pool.Get(t, servers.MariaDB, nil).Database(t)
	sqlfault.CheckNetwork(t, dsn.Addr(), faultproxy.MySQLFrames, func(addr string) driver.Backend {
		return open(t, dsn.At(addr), Options{})
	})
}

// TestPings: a ping does not wait for reads.
func TestPings(t *testing.T) {
	t.Parallel()
	o, err := (&Options{Migrate: true, Create: true}).withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := parse(pool.Get(t, servers.MariaDB, nil).Database(t).Reveal(), o)
	if err != nil {
		t.Fatal(err)
	}
	stmts, err := compile(tables(cfg, o))
	if err != nil {
		t.Fatal(err)
	}
	st, err := openStore(t.Context(), cfg, o, stmts)
	if err != nil {
		t.Fatal(err)
	}
	b, err := engine.New(t.Context(), config("app", o, st, stmts))
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	enginetest.CheckPings(t, b, st, readConns)
}

// TestPageBytes: the server does not send the part of a log that exceeds a page.
func TestPageBytes(t *testing.T) {
	t.Parallel()
	dsn := pool.Get(t, servers.MariaDB, nil).Database(t)
	sqlfault.CheckPageBytes(t, dsn.Addr(), func(addr string) driver.Backend { return open(t, dsn.At(addr), Options{}) })
}

// TestReadOnly: on a read-only server, nothing is granted or committed, no session is lost, and
// everything can be read.
func TestReadOnly(t *testing.T) {
	t.Parallel()
	server := servers.New(t, servers.MariaDB, nil)
	dsn := server.Database(t)
	b := open(t, dsn, Options{})
	reader := open(t, dsn, Options{})
	s := sqlfault.Join(t, b, "n1")
	granted, _ := sqlfault.Acquire(t, s, sqlfault.Claims(1))
	admin := setup.DB(t, server.Admin())
	sqlfault.Exec(t, admin, "SET GLOBAL read_only = 1")
	if view, err := reader.Observe(t.Context(), driver.ObserveQuery{}); err != nil || len(view.Shards) != 1 {
		t.Errorf("observing what is new, without the right to write a barrier: %+v, %v", view, err)
	}
	_, err := s.Commit(t.Context(), []driver.Write{sqlfault.AppendOf(granted[0].Fence, 1, []byte("a"))})
	if !errors.Is(err, driver.ErrRetry) {
		t.Errorf("commit: %v", err)
	}
	if err := s.Beat(t.Context()); !errors.Is(err, driver.ErrRetry) {
		t.Errorf("heartbeat: %v", err)
	}
	if _, err := b.Observe(t.Context(), driver.ObserveQuery{}); err != nil {
		t.Errorf("observe: %v", err)
	}
	if _, err := Open(t.Context(), dsn.Reveal(), "app", nil); !errors.Is(err, driver.ErrUnsupported) {
		t.Errorf("open: %v", err)
	}
	sqlfault.Exec(t, admin, "SET GLOBAL read_only = 0")
	sqlfault.Commit(t, s, sqlfault.AppendOf(granted[0].Fence, 1, []byte("b")))
	if err := s.Beat(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestStoppedTransaction: an open transaction delays only its own shards and session.
func TestStoppedTransaction(t *testing.T) {
	t.Parallel()
	dsn := pool.Get(t, servers.MariaDB, nil).Database(t)
	b := open(t, dsn, Options{})
	former, heir := sqlfault.Join(t, b, "n1"), sqlfault.Join(t, b, "n2")
	_, next := sqlfault.Acquire(t, former, sqlfault.Claims(3))
	other := sqlfault.Join(t, b, "n3")
	stopped := sqlfault.Tx(t, setup.DB(t, dsn), sql.LevelReadCommitted)
	sqlfault.Exec(t, stopped, "SELECT * FROM tenure_shards WHERE namespace = 'app' AND shard = 'shard-00001' FOR UPDATE",
		"SELECT * FROM tenure_members WHERE namespace = 'app' AND session = '"+string(other.ID())+"' LOCK IN SHARE MODE")
	evicted, err := heir.Evict(t.Context(), []driver.Suspect{{Session: other.ID(), Version: 1}, {Session: former.ID(), Version: 1}})
	if err != nil || !errors.Is(evicted[0].Err, driver.ErrRetry) || !evicted[1].Evicted {
		t.Fatal(evicted, err)
	}
	got, err := heir.Acquire(t.Context(), next)
	if err != nil || got[0].Err != nil || !errors.Is(got[1].Err, driver.ErrRetry) || got[2].Err != nil {
		t.Fatal(got, err)
	}
	if err := stopped.Rollback(); err != nil {
		t.Fatal(err)
	}
	if got, err = heir.Acquire(t.Context(), next[1:2]); err != nil || got[0].Err != nil {
		t.Fatal(got, err)
	}
}

// TestLockWaitAndDeadlock: a lock wait and a deadlock both count as refusals.
func TestLockWaitAndDeadlock(t *testing.T) {
	t.Parallel()
	dsn := pool.Get(t, servers.MariaDB, nil).Database(t)
	b := open(t, dsn, Options{})
	s := sqlfault.Join(t, b, "n1")
	granted, _ := sqlfault.Acquire(t, s, sqlfault.Claims(1))
	keys := []string{"a", "b", "c", "d", "e", "f", "g", "h"}
	sqlfault.Commit(t, s, sqlfault.PutOf(granted[0].Fence, 1, keys...))
	put := func() error {
		_, err := s.Commit(t.Context(), []driver.Write{sqlfault.PutOf(granted[0].Fence, 2, keys[0])})
		return err
	}
	other := sqlfault.Tx(t, setup.DB(t, dsn), sql.LevelReadCommitted)
	const lockShard = "SELECT * FROM tenure_shards WHERE namespace = 'app' AND shard = 'shard-00000' FOR UPDATE"
	sqlfault.Exec(t, other, lockShard)
	if err := put(); !errors.Is(err, driver.ErrRetry) || number(err) != errLockWait {
		t.Errorf("commit behind a lock: %v", err)
	}
	if err := other.Rollback(); err != nil {
		t.Fatal(err)
	}
	// The transaction with the fewest changes is the deadlock's victim.
	other = sqlfault.Tx(t, setup.DB(t, dsn), sql.LevelReadCommitted)
	sqlfault.Exec(t, other, "UPDATE tenure_items SET value = 'w' WHERE namespace = 'app' AND shard = 'shard-00000'")
	committed := make(chan error, 1)
	go func() { committed <- put() }()
	awaitLockWait(t, dsn)
	sqlfault.Exec(t, other, lockShard)
	if err := <-committed; !errors.Is(err, driver.ErrRetry) || number(err) != errDeadlock {
		t.Errorf("commit in a deadlock: %v", err)
	}
	if err := other.Rollback(); err != nil {
		t.Fatal(err)
	}
	if err := put(); err != nil {
		t.Error(err)
	}
}

// awaitLockWait returns when a statement in the database waits for a lock.
func awaitLockWait(t *testing.T, dsn servers.DSN) {
	t.Helper()
	admin := setup.DB(t, pool.Get(t, servers.MariaDB, nil).Admin())
	ample.Wait(t, "no statement waits for a lock", func() bool {
		// InnoDB renews the table only if it was not read for 100 ms.
		time.Sleep(150 * time.Millisecond)
		var waiting int
		err := admin.QueryRowContext(t.Context(), `SELECT count(*) FROM information_schema.innodb_trx AS x JOIN information_schema.processlist AS p
ON p.id = x.trx_mysql_thread_id WHERE x.trx_state = 'LOCK WAIT' AND p.db = ?`, dsn.Name()).Scan(&waiting)
		if err != nil {
			t.Fatal(err)
		}
		return waiting > 0
	})
}

// TestTooSlow: a call ends with its context although another transaction holds a lock, and
// heartbeats continue.
func TestTooSlow(t *testing.T) {
	t.Parallel()
	dsn := pool.Get(t, servers.MariaDB, nil).Database(t)
	b := open(t, dsn, Options{})
	s := sqlfault.Join(t, b, "n1")
	granted, _ := sqlfault.Acquire(t, s, sqlfault.Claims(1))
	other := sqlfault.Tx(t, setup.DB(t, dsn), sql.LevelReadCommitted)
	sqlfault.Exec(t, other, "SELECT * FROM tenure_shards FOR UPDATE")
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := s.Commit(ctx, []driver.Write{sqlfault.AppendOf(granted[0].Fence, 1, []byte("a"))})
	if !errors.Is(err, driver.ErrRetry) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("commit behind a lock: %v", err)
	}
	if err := s.Beat(t.Context()); err != nil {
		t.Errorf("a heartbeat meanwhile: %v", err)
	}
	if err := other.Rollback(); err != nil {
		t.Fatal(err)
	}
	for err = driver.ErrRetry; errors.Is(err, driver.ErrRetry); { // the abandoned statement may still hold the row
		_, err = s.Commit(t.Context(), []driver.Write{sqlfault.AppendOf(granted[0].Fence, 1, []byte("b"))})
	}
	if err != nil {
		t.Error(err)
	}
}

func TestFence(t *testing.T) {
	t.Parallel()
	dsn := pool.Get(t, servers.MariaDB, nil).Database(t)
	b := open(t, dsn, Options{})
	db := setup.DB(t, dsn)
	sqlfault.Exec(t, db, "CREATE TABLE deposits (amount INT)")
	s := sqlfault.Join(t, b, "n1")
	granted, _ := sqlfault.Acquire(t, s, sqlfault.Claims(1))
	fence := granted[0].Fence
	for _, level := range []sql.IsolationLevel{sql.LevelReadCommitted, sql.LevelRepeatableRead, sql.LevelSerializable} {
		first, old := sqlfault.Tx(t, db, level), sqlfault.Tx(t, db, level)
		if err := b.FenceTx(t.Context(), first, fence); err != nil {
			t.Fatalf("%v: %v", level, err)
		}
		sqlfault.Exec(t, first, "INSERT INTO deposits VALUES (1)")
		if err := first.Commit(); err != nil {
			t.Fatal(err)
		}
		sqlfault.Exec(t, old, "SELECT count(*) FROM tenure_nodes") // takes the snapshot, before the takeover
		res, err := s.Transfer(t.Context(), []driver.Transfer{{Fence: fence, To: s.ID()}})
		if err != nil || res[0].Err != nil {
			t.Fatal(res, err)
		}
		var fenced *driver.FencedError
		err = b.FenceTx(t.Context(), old, fence)
		if !errors.Is(err, driver.ErrRetry) && (!errors.As(err, &fenced) || fenced.Fence != fence) {
			t.Errorf("%v: the former fence: %v", level, err)
		}
		if want := (driver.Owner{Session: s.ID(), Token: res[0].Fence.Token}); fenced != nil && fenced.Current != want {
			t.Errorf("%v: the former fence: the owner is %+v, want %+v", level, fenced.Current, want)
		}
		if err := old.Rollback(); err != nil {
			t.Fatal(err)
		}
		fence = res[0].Fence
	}
}

func TestIdleCost(t *testing.T) {
	t.Parallel()
	dsn := pool.Get(t, servers.MariaDB, nil).Database(t)
	if err := Migrate(t.Context(), dsn.Reveal(), nil); err != nil {
		t.Fatal(err)
	}
	sqlfault.CheckIdleCost(t, func(namespace string, calls *sqlfault.Calls) driver.Backend {
		b, err := openFaulty(t.Context(), dsn.Reveal(), namespace, Options{PollPeriod: 10 * time.Second}, calls, sqlfault.How{Wire: new(sqlfault.Wire)})
		if err != nil {
			t.Fatal(err)
		}
		return b
	})
}

// TestWakes: commits do not wake Observe in the same process.
func TestWakes(t *testing.T) {
	t.Parallel()
	dsn := pool.Get(t, servers.MariaDB, nil).Database(t)
	if err := Migrate(t.Context(), dsn.Reveal(), nil); err != nil {
		t.Fatal(err)
	}
	calls := new(sqlfault.Calls)
	b, err := openFaulty(t.Context(), dsn.Reveal(), "app", Options{PollPeriod: 10 * time.Second}, calls, sqlfault.How{Wire: new(sqlfault.Wire)})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	sqlfault.CheckWakes(t, b, b, calls)
}

// TestHeartbeatTable sends heartbeats for 200 members, and checks the size of the table afterwards.
func TestHeartbeatTable(t *testing.T) {
	t.Parallel()
	pages := heartbeats(t, pool.Get(t, servers.MariaDB, nil).Database(t), 200, 20)
	t.Logf("4000 heartbeats of 200 members: %d pages", pages)
	if pages > 8 {
		t.Errorf("%d pages, want at most 8", pages)
	}
}

// heartbeats sends the heartbeats, and returns the number of the table's pages, of 16 KiB,
// afterwards.
func heartbeats(t testing.TB, dsn servers.DSN, members, rounds int) (pages int) {
	sqlfault.Heartbeats(t, open(t, dsn, Options{}), members, rounds)
	db := setup.DB(t, dsn)
	sqlfault.Exec(t, db, "ANALYZE TABLE tenure_beats")
	err := db.QueryRowContext(t.Context(), `SELECT (data_length + index_length) DIV 16384 FROM information_schema.tables
WHERE table_schema = DATABASE() AND table_name = 'tenure_beats'`).Scan(&pages)
	if err != nil {
		t.Fatal(err)
	}
	return pages
}
