package postgres

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tenure-go/tenure/backends/sql/internal/engine"
	"github.com/tenure-go/tenure/backends/sql/internal/enginetest"
	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/proof/ample"
	"github.com/tenure-go/tenure/internal/proof/faultproxy"
	"github.com/tenure-go/tenure/internal/proof/servers"
	"github.com/tenure-go/tenure/internal/proof/share"
	"github.com/tenure-go/tenure/internal/proof/sqlfault"
)

// TestKilledAtCommit ends a connection's server process 200 times during a commit, which takes long
// here.
func TestKilledAtCommit(t *testing.T) {
	t.Parallel()
	server := servers.New(t, servers.Postgres, &servers.Options{Config: []string{"commit_delay = 3000", "commit_siblings = 0"}})
	dsn := server.Database(t)
	db := setup.DB(t, server.Admin().Database(dsn.Name()))
	last := 0
	out := sqlfault.FaultWhileWriting(t, open(t, dsn, Options{MaxConns: 1}), int64(share.Of(t, "kills", 200, 40)), func(ctx context.Context) (int, error) {
		var pid int
		err := db.QueryRowContext(ctx, `SELECT CASE WHEN pg_terminate_backend(pid) THEN pid END FROM (SELECT pid FROM pg_stat_activity
  WHERE application_name = 'tenure' AND pid <> $1 AND state = 'active' AND query = 'COMMIT' LIMIT 1) AS committing`, last).Scan(&pid)
		if errors.Is(err, sql.ErrNoRows) {
			return 0, nil
		}
		last = pid
		return 1, err
	})
	if out.UnknownApplied == 0 {
		t.Errorf("no commit was applied and not acknowledged: %+v", out)
	}
}

// TestServerKilled crashes the whole server by killing one of its processes.
func TestServerKilled(t *testing.T) {
	t.Parallel()
	server := servers.New(t, servers.Postgres, nil)
	dsn := server.Database(t)
	sqlfault.FaultWhileWriting(t, open(t, dsn, Options{}), int64(share.Of(t, "crashes", 3, 1)), func(ctx context.Context) (int, error) {
		return 1, server.Restart(ctx)
	})
}

func TestNetwork(t *testing.T) {
	t.Parallel()
	dsn := pool.Get(t, servers.Postgres, nil).Database(t)
	sqlfault.CheckNetwork(t, dsn.Addr(), faultproxy.PostgresFrames, func(addr string) driver.Backend {
		return open(t, dsn.At(addr), Options{})
	})
}

// TestPings: a ping does not wait for reads.
func TestPings(t *testing.T) {
	t.Parallel()
	o, err := (&Options{Migrate: true, Create: true, NoNotify: true}).withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	stmts, err := compile(o)
	if err != nil {
		t.Fatal(err)
	}
	st, err := openStore(t.Context(), pool.Get(t, servers.Postgres, nil).Database(t).Reveal(), "app", o, stmts)
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
	dsn := pool.Get(t, servers.Postgres, nil).Database(t)
	sqlfault.CheckPageBytes(t, dsn.Addr(), func(addr string) driver.Backend { return open(t, dsn.At(addr), Options{}) })
}

// TestStoppedTransaction: an open transaction delays only the shards and the session that it
// concerns.
func TestStoppedTransaction(t *testing.T) {
	t.Parallel()
	dsn := pool.Get(t, servers.Postgres, nil).Database(t)
	b := open(t, dsn, Options{})
	former, heir := sqlfault.Join(t, b, "n1"), sqlfault.Join(t, b, "n2")
	_, next := sqlfault.Acquire(t, former, sqlfault.Claims(3))
	other := sqlfault.Join(t, b, "n3")
	stopped := sqlfault.Tx(t, setup.DB(t, dsn), sql.LevelReadCommitted)
	sqlfault.Exec(t, stopped, "SELECT * FROM tenure_shards WHERE shard = 'shard-00001' FOR UPDATE",
		"SELECT * FROM tenure_members WHERE node = 'n3' FOR KEY SHARE")
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

// TestDeadlock causes a deadlock with a commit that waits for an item while it holds its shard's
// row. The commit writes nothing, and returns an error that reports this.
func TestDeadlock(t *testing.T) {
	t.Parallel()
	server := pool.Get(t, servers.Postgres, nil)
	dsn := server.Database(t)
	admin := setup.DB(t, server.Admin().Database(dsn.Name()))
	// A connection looks for a deadlock once, 8 s after it began to wait. By then, the other
	// connection must also wait, even on a busy machine.
	if _, err := admin.ExecContext(t.Context(), fmt.Sprintf("ALTER DATABASE %q SET deadlock_timeout = '8s'", dsn.Name())); err != nil {
		t.Fatal(err)
	}
	b := open(t, dsn, Options{})
	s := sqlfault.Join(t, b, "n1")
	granted, _ := sqlfault.Acquire(t, s, sqlfault.Claims(1))
	sqlfault.Commit(t, s, sqlfault.PutOf(granted[0].Fence, 1, "k"))
	db := setup.DB(t, dsn)
	other := sqlfault.Tx(t, admin, sql.LevelReadCommitted)
	sqlfault.Exec(t, other, "SET LOCAL deadlock_timeout = '1min'", "SELECT * FROM tenure_items WHERE key = 'k' FOR UPDATE")
	committed := make(chan error, 1)
	go func() {
		_, err := s.Commit(t.Context(), []driver.Write{sqlfault.PutOf(granted[0].Fence, 2, "k")})
		committed <- err
	}()
	waiting := func() (n int) {
		if err := db.QueryRowContext(t.Context(), "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'").Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	ample.Wait(t, "the commit does not wait for a lock", func() bool { return waiting() > 0 })
	sqlfault.Exec(t, other, "SELECT * FROM tenure_shards WHERE shard = 'shard-00000' FOR UPDATE")
	if err := <-committed; !errors.Is(err, driver.ErrRetry) {
		t.Errorf("commit in a deadlock: %v, want ErrRetry", err)
	}
	if page, err := b.ReadLog(t.Context(), "shard-00000", 0, 1); err != nil || page.Head.Number != 1 {
		t.Errorf("%+v, %v", page, err)
	}
}

// TestTooSlow: a call ends with its context although another transaction holds a lock. No statement
// is left waiting.
func TestTooSlow(t *testing.T) {
	t.Parallel()
	dsn := pool.Get(t, servers.Postgres, nil).Database(t)
	b := open(t, dsn, Options{})
	s := sqlfault.Join(t, b, "n1")
	granted, _ := sqlfault.Acquire(t, s, sqlfault.Claims(1))
	other := sqlfault.Tx(t, setup.DB(t, dsn), sql.LevelReadCommitted)
	sqlfault.Exec(t, other, "SELECT * FROM tenure_shards FOR UPDATE")
	for what, c := range map[string]struct {
		op      driver.Op
		unknown bool // COMMIT was sent with the statement that waits
	}{
		"of an entry": {driver.Op{Kind: driver.OpAppend, Value: []byte("a")}, true},
		"of an item":  {driver.Op{Kind: driver.OpPut, Key: "a"}, false},
	} {
		ctx, giveUp := context.WithCancelCause(t.Context())
		ended := make(chan error, 1)
		go func() {
			_, err := s.Commit(ctx, []driver.Write{{Fence: granted[0].Fence, Number: 1, Nonce: 7, Ops: []driver.Op{c.op}}})
			ended <- err
		}()
		awaitWaiting(t, setup.DB(t, dsn), 1)
		giveUp(driver.ErrSessionLost) // the caller's reason does not show the outcome (E1)
		err := <-ended
		if !errors.Is(err, context.Canceled) || errors.Is(err, driver.ErrSessionLost) || driver.Unknown(err) != c.unknown || !c.unknown && !errors.Is(err, driver.ErrRetry) {
			t.Errorf("commit %s behind a lock: %v", what, err)
		}
		awaitWaiting(t, setup.DB(t, dsn), 0)
	}
	if err := s.Beat(t.Context()); err != nil {
		t.Errorf("a heartbeat meanwhile: %v", err)
	}
	if err := other.Rollback(); err != nil {
		t.Fatal(err)
	}
	sqlfault.Commit(t, s, sqlfault.AppendOf(granted[0].Fence, 1, []byte("b")))
}

// TestHeartbeatsAreHOT sends heartbeats for many members, and checks the state of the table
// afterwards.
func TestHeartbeatsAreHOT(t *testing.T) {
	t.Parallel()
	// This is a separate server, because open transactions of other tests would keep old row
	// versions.
	server := servers.New(t, servers.Postgres, nil)
	members := share.Of(t, "members", 200, 50)
	pages, hot := heartbeats(t, server.Database(t), members, 60) // until the table has its size, some are not HOT
	t.Logf("60 heartbeats of each of %d members: %d pages, %.1f %% HOT", members, pages, hot)
	if pages > 20 || hot < 90 {
		t.Errorf("%d pages and %.1f %% HOT, want at most 20 and at least 90", pages, hot)
	}
}

// heartbeats returns the number of the table's pages afterwards, and the percentage of updates that
// changed no index.
func heartbeats(t testing.TB, dsn servers.DSN, members, rounds int) (pages int, hot float64) {
	b := open(t, dsn, Options{NoNotify: true})
	sqlfault.Heartbeats(t, b, members, rounds)
	if err := b.Close(); err != nil { // the server updates its statistics at the end of a session
		t.Fatal(err)
	}
	db := setup.DB(t, dsn)
	ample.Wait(t, "the server's statistics lack updates", func() bool {
		var updates int
		err := db.QueryRowContext(t.Context(), `SELECT pg_relation_size(relid) / 8192, n_tup_upd, 100.0 * n_tup_hot_upd / greatest(n_tup_upd, 1)
FROM pg_stat_user_tables WHERE relname = 'tenure_beats'`).Scan(&pages, &updates, &hot)
		if err != nil {
			t.Fatal(err)
		}
		return updates >= members*rounds
	})
	return pages, hot
}

func TestIdleCost(t *testing.T) {
	t.Parallel()
	dsn := pool.Get(t, servers.Postgres, nil).Database(t)
	if err := Migrate(t.Context(), dsn.Reveal(), nil); err != nil {
		t.Fatal(err)
	}
	sqlfault.CheckIdleCost(t, func(namespace string, calls *sqlfault.Calls) driver.Backend {
		b, err := openFaulty(t.Context(), dsn.Reveal(), namespace, Options{PollPeriod: 10 * time.Second}, calls, sqlfault.How{Wire: new(sqlfault.Wire)})
		if err != nil {
			t.Fatal(err)
		}
		unlimited(t, b.(*Backend).pg)
		return b
	})
}

// unlimited lets this process's transactions be idle while a busy machine does not run the process.
// Otherwise, the server would end the transactions, as with a suspended process.
func unlimited(t *testing.T, s *store) {
	t.Helper()
	for _, pool := range []*pgxpool.Pool{s.data, s.roster} {
		for range pool.Config().MaxConns {
			conn, err := pool.Acquire(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Release() // at the end, so that each is a different one
			if _, err := conn.Exec(t.Context(), "SET idle_in_transaction_session_timeout = 0"); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestWakes: commits do not wake Observe in another process.
func TestWakes(t *testing.T) {
	t.Parallel()
	dsn := pool.Get(t, servers.Postgres, nil).Database(t)
	o, calls := Options{PollPeriod: 10 * time.Second}, new(sqlfault.Calls)
	writer := open(t, dsn, o)
	reader, err := openFaulty(t.Context(), dsn.Reveal(), "app", o, calls, sqlfault.How{Wire: new(sqlfault.Wire)})
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	sqlfault.CheckWakes(t, writer, reader, calls)
}

// TestNotifyFlood: a role without any grant sends notifications as fast as it can. A member makes
// few reads because of them, and a hand-over succeeds.
func TestNotifyFlood(t *testing.T) {
	t.Parallel()
	server := pool.Get(t, servers.Postgres, nil)
	dsn := server.Database(t)
	writer, calls := open(t, dsn, Options{}), new(sqlfault.Calls)
	polling := Options{PollPeriod: 10 * time.Second} // so that nearly all reads follow notifications
	reader, err := openFaulty(t.Context(), dsn.Reveal(), "app", polling, calls, sqlfault.How{Wire: new(sqlfault.Wire)})
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	s, heir := sqlfault.Join(t, writer, "n1"), sqlfault.Join(t, reader, "n2")
	granted, _ := sqlfault.Acquire(t, s, sqlfault.Claims(1))
	view, err := reader.Observe(t.Context(), driver.ObserveQuery{})
	if err != nil {
		t.Fatal(err)
	}
	nobody := "nobody_" + dsn.Name()[len(dsn.Name())-8:]
	admin := setup.DB(t, server.Admin().Database(dsn.Name()))
	sqlfault.Exec(t, admin, fmt.Sprintf("CREATE ROLE %s LOGIN PASSWORD '%s'", nobody, dsn.Password()))
	t.Cleanup(func() { _, _ = admin.Exec("DROP ROLE " + nobody) })
	db := setup.DB(t, dsn.As(nobody, dsn.Password()))

	const (
		lasts  = 2 * time.Second
		enough = 5000 // least number of notifications
		most   = 40   // largest number of reads
	)
	stop, flooded := make(chan struct{}), make(chan error, 1)
	var sent atomic.Int64
	go func() {
		for n := 0; ; n++ {
			select {
			case <-stop:
				flooded <- nil
				return
			default:
			}
			text := fmt.Sprintf("SELECT pg_notify('tenure_changed', x || '.observers app') FROM generate_series(%d, %d) AS x", n*10, n*10+9)
			if _, err := db.ExecContext(t.Context(), text); err != nil {
				flooded <- err
				return
			}
			sent.Add(10)
		}
	}()
	observed := make(chan error, 1)
	go func() {
		v, err := reader.Observe(t.Context(), driver.ObserveQuery{Since: view.Cursor})
		if err == nil && (len(v.Shards) != 1 || v.Shards[0].Owner.Session != heir.ID()) {
			err = fmt.Errorf("the view is %+v", v)
		}
		observed <- err
	}()
	before := calls.Reads.Load()
	time.Sleep(lasts)
	ample.Wait(t, "too few notifications are sent", func() bool { return sent.Load() >= enough })
	res, err := s.Transfer(t.Context(), []driver.Transfer{{Fence: granted[0].Fence, To: heir.ID()}})
	if err != nil || res[0].Err != nil {
		t.Fatal(res, err)
	}
	select {
	case err := <-observed:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(ample.Time):
		t.Error("the hand-over is not seen during the flood")
	}
	reads := calls.Reads.Load() - before
	sqlfault.Commit(t, heir, sqlfault.AppendOf(res[0].Fence, 1, []byte("a")))
	close(stop)
	if err := <-flooded; err != nil {
		t.Error(err)
	}
	t.Logf("%d notifications caused %d reads", sent.Load(), reads)
	if reads > most {
		t.Errorf("%d reads, want at most %d", reads, most)
	}
}

// TestHints: a notification wakes the readers that it names, or all readers if it names none.
func TestHints(t *testing.T) {
	t.Parallel()
	h := &link{self: "ME", of: "a/b"}
	other := &link{self: "YOU", of: "a/b"}
	const both = engine.Observers | engine.Tailers
	for readers, want := range map[engine.Readers]engine.Readers{
		0: 0, engine.Observers: engine.Observers, engine.Tailers: engine.Tailers, engine.Watchers: engine.Watchers, both: both,
		engine.Observers | engine.Watchers: engine.Observers, engine.Tailers | engine.Watchers: both, engine.Everybody: both,
	} {
		if got := h.heard(other.message(readers)); got != want {
			t.Errorf("%q wakes %d, want %d", other.message(readers), got, want)
		}
		if got := h.heard(h.message(readers)); got != 0 {
			t.Errorf("%q, which is its own, wakes %d", h.message(readers), got)
		}
	}
	for message, want := range map[string]engine.Readers{
		"YOU a/b": engine.Observers | engine.Tailers, "YOU.later a/b": engine.Observers | engine.Tailers, "YOU a": 0, "YOU.tailers a/b/c": 0, "": 0, "ME a/b": 0,
	} {
		if got := h.heard(message); got != want {
			t.Errorf("%q wakes %d, want %d", message, got, want)
		}
	}
}

// FuzzHeard hears arbitrary messages from a role. A message wakes a valid set of readers, which may
// be empty.
func FuzzHeard(f *testing.F) {
	h := &link{self: "ME", of: "a/b"}
	for _, message := range []string{"YOU.observers a/b", "YOU.tailers a/b", "YOU.watchers a/b", "YOU a/b", "ME a/b", "a/b", ". a/b", "YOU.observers", " a/b", "", "\x00 a/b"} {
		f.Add(message)
	}
	f.Fuzz(func(t *testing.T, message string) {
		got := h.heard(message)
		from, of, _ := strings.Cut(message, " ")
		mine := from == h.self || strings.HasPrefix(from, h.self+".")
		if wakes := of == h.of && !mine; wakes != (got != 0) || got&^engine.Everybody != 0 {
			t.Errorf("%q wakes %d", message, got)
		}
	})
}

// TestReadOnlyByDefault: transactions set their own mode, so a change of the default at run time
// does not stop any member.
func TestReadOnlyByDefault(t *testing.T) {
	t.Parallel()
	dsn := pool.Get(t, servers.Postgres, nil).Database(t)
	b := open(t, dsn, Options{})
	s := sqlfault.Join(t, b, "n1")
	granted, _ := sqlfault.Acquire(t, s, sqlfault.Claims(1))
	db := setup.DB(t, dsn)
	sqlfault.Exec(t, db, fmt.Sprintf("ALTER DATABASE %q SET default_transaction_read_only = on", dsn.Name()),
		"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()")
	write := sqlfault.AppendOf(granted[0].Fence, 1, []byte("a"))
	for {
		res, err := s.Commit(t.Context(), []driver.Write{write})
		if err == nil && res[0].Err == nil {
			break
		}
		var ended *pgconn.PgError // of the former connections
		if !errors.As(err, &ended) || ended.Code != "57P01" {
			t.Fatal(res, err)
		}
	}
	_, err := Open(t.Context(), dsn.Reveal(), "app", nil)
	if !errors.Is(err, driver.ErrUnsupported) || !strings.Contains(err.Error(), "default_transaction_read_only is on") {
		t.Errorf("open: %v", err)
	}
}

// TestStandby: on a server that returns as a standby, nothing is granted or committed, and the
// error states the reason. No session is lost, and everything can be read. After the standby's
// promotion, sessions continue, with leases under new tokens (I2).
func TestStandby(t *testing.T) {
	t.Parallel()
	server := servers.New(t, servers.Postgres, nil)
	dsn := server.Database(t)
	b := open(t, dsn, Options{})
	s := sqlfault.Join(t, b, "n1")
	granted, _ := sqlfault.Acquire(t, s, sqlfault.Claims(1))
	var data string
	if err := setup.DB(t, server.Admin()).QueryRowContext(t.Context(), "SHOW data_directory").Scan(&data); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(data, "standby.signal"), nil, 0o644); err != nil {
		t.Skip("the server's files cannot be reached: ", err)
	}
	if err := server.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	refused := func(what string, call func() error) {
		t.Helper()
		for { // calls in flight at the restart, and connections that ended with it, come first
			err := call()
			if err == nil || driver.NotApplied(err) && !errors.Is(err, driver.ErrRetry) {
				t.Fatalf("%s: %v, want ErrRetry", what, err)
			}
			if errors.Is(err, driver.ErrRetry) && strings.Contains(err.Error(), "target_session_attrs=read-write") {
				return
			}
			if t.Context().Err() != nil || strings.Contains(err.Error(), "read-write mode") {
				t.Fatalf("%s: %v: want to be told to connect to the primary", what, err)
			}
		}
	}
	refused("commit", func() error {
		_, err := s.Commit(t.Context(), []driver.Write{sqlfault.AppendOf(granted[0].Fence, 1, []byte("a"))})
		return err
	})
	refused("heartbeat", func() error { return s.Beat(t.Context()) })
	for try := range readConns + 1 { // the connections for reads also ended with the restart
		_, err := b.Observe(t.Context(), driver.ObserveQuery{})
		if err == nil {
			break
		}
		if try == readConns {
			t.Errorf("observe: %v", err)
		}
	}
	if _, err := Open(t.Context(), dsn.Reveal(), "app", nil); !errors.Is(err, driver.ErrUnsupported) || !strings.Contains(err.Error(), "standby") {
		t.Errorf("open: %v", err)
	}
	sqlfault.Exec(t, setup.DB(t, server.Admin()), "SELECT pg_promote()")
	for { // ended connections, and calls that find another history, come first
		err := s.Beat(t.Context())
		if err == nil {
			break
		}
		if driver.NotApplied(err) && !errors.Is(err, driver.ErrRetry) || t.Context().Err() != nil {
			t.Fatalf("heartbeat after the promotion: %v", err)
		}
	}
	old := granted[0].Fence
	res, err := s.Commit(t.Context(), []driver.Write{sqlfault.AppendOf(old, 1, []byte("b"))})
	if err == nil {
		err = res[0].Err
	}
	if !errors.Is(err, driver.ErrFenced) {
		t.Errorf("commit under a lease of before the promotion: %v, want ErrFenced", err)
	}
	v, err := b.Observe(t.Context(), driver.ObserveQuery{})
	if err != nil || len(v.Shards) != 1 || v.Shards[0].Owner.Session != s.ID() || v.Shards[0].Owner.Token <= old.Token {
		t.Fatalf("after the promotion the view is %+v: %v", v, err)
	}
	raised := driver.Fence{Shard: old.Shard, Session: s.ID(), Token: v.Shards[0].Owner.Token}
	again, err := s.Transfer(t.Context(), []driver.Transfer{{Fence: raised, To: s.ID()}})
	if err != nil || again[0].Err != nil {
		t.Fatalf("a new token after the promotion: %+v, %v", again, err)
	}
	sqlfault.Commit(t, s, sqlfault.AppendOf(again[0].Fence, 1, []byte("b")))
}
