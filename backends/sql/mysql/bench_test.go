package mysql

import (
	stdsql "database/sql"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tenure-go/tenure/backends/sql/sqlfault"
	"github.com/tenure-go/tenure/conformance/servers"
	"github.com/tenure-go/tenure/core/driver"
)

// open migrates a database of the test's own and opens a namespace in it.
func open(t testing.TB, dsn servers.DSN, o Options) *Backend {
	t.Helper()
	o.Create, o.Migrate = true, true
	b, err := Open(t.Context(), dsn.Reveal(), "app", &o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	return b
}

func openDB(t testing.TB, dsn servers.DSN) *stdsql.DB {
	t.Helper()
	db, err := stdsql.Open("mysql", dsn.Reveal())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

// BenchmarkAcquire10000 claims 10,000 shards in one call: for the first time, and
// from a member that was evicted.
func BenchmarkAcquire10000(b *testing.B) {
	b.Run("takeover", func(b *testing.B) {
		be := open(b, pool.Get(b, servers.MariaDB, nil).Database(b), Options{})
		s := sqlfault.Join(b, be, "n0")
		_, next := sqlfault.Acquire(b, s, sqlfault.Claims(10_000))
		for i := 0; b.Loop(); i++ {
			b.StopTimer()
			heir := sqlfault.Join(b, be, fmt.Sprint("n", i+1))
			b.StartTimer()
			res, err := heir.Evict(b.Context(), []driver.Suspect{{Session: s.ID(), Version: 1}})
			if err != nil || !res[0].Evicted {
				b.Fatal(err, res)
			}
			_, next = sqlfault.Acquire(b, heir, next)
			s = heir
		}
	})
	b.Run("first", func(b *testing.B) {
		for b.Loop() {
			b.StopTimer()
			s := sqlfault.Join(b, open(b, pool.Get(b, servers.MariaDB, nil).Database(b), Options{MaxConns: 1}), "n")
			b.StartTimer()
			sqlfault.Acquire(b, s, sqlfault.Claims(10_000))
		}
	})
}

// BenchmarkCommit appends batches of 128-byte entries to one shard's log, as group
// commit does for as many producers.
func BenchmarkCommit(b *testing.B) {
	for _, n := range []int{1, 64, 500} {
		b.Run(fmt.Sprintf("append%d", n), func(b *testing.B) {
			s := sqlfault.Join(b, open(b, pool.Get(b, servers.MariaDB, nil).Database(b), Options{}), "n1")
			granted, _ := sqlfault.Acquire(b, s, sqlfault.Claims(1))
			payloads := make([][]byte, n)
			for i := range payloads {
				payloads[i] = make([]byte, 128)
			}
			number := driver.WriteNo(0)
			for b.Loop() {
				number++
				sqlfault.Commit(b, s, sqlfault.AppendOf(granted[0].Fence, number, payloads...))
			}
			b.ReportMetric(float64(int(number)*n)/b.Elapsed().Seconds(), "entries/s")
		})
	}
}

// BenchmarkAppend is what one shard's producers get. BenchmarkLeaseRow/append64 is
// the same in plain SQL.
func BenchmarkAppend(b *testing.B) {
	sqlfault.BenchmarkAppend(b, func(b *testing.B) driver.Backend {
		return open(b, pool.Get(b, servers.MariaDB, nil).Database(b), Options{})
	})
}

// BenchmarkBeat changes one session's record.
func BenchmarkBeat(b *testing.B) {
	s := sqlfault.Join(b, open(b, pool.Get(b, servers.MariaDB, nil).Database(b), Options{}), "n1")
	for b.Loop() {
		if err := s.Beat(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkHeartbeatTable is what 40,000 heartbeats of 200 members leave behind, on
// a server that does not wait for its disk.
func BenchmarkHeartbeatTable(b *testing.B) {
	server := servers.New(b, servers.MariaDB, &servers.Options{NoSync: true})
	for b.Loop() {
		b.ReportMetric(float64(heartbeats(b, server.Database(b), 200, 200)), "pages")
	}
}

// BenchmarkHandover passes a lease to another member, whose first write follows.
func BenchmarkHandover(b *testing.B) {
	be := open(b, pool.Get(b, servers.MariaDB, nil).Database(b), Options{})
	from, to := sqlfault.Join(b, be, "n1"), sqlfault.Join(b, be, "n2")
	granted, _ := sqlfault.Acquire(b, from, sqlfault.Claims(1))
	fence := granted[0].Fence
	for b.Loop() {
		res, err := from.Transfer(b.Context(), []driver.Handover{{Fence: fence, To: to.ID()}})
		if err != nil || res[0].Err != nil {
			b.Fatal(err, res)
		}
		fence = res[0].Fence
		sqlfault.Commit(b, to, sqlfault.AppendOf(fence, res[0].Head.Number+1, []byte("first")))
		from, to = to, from
	}
}

// BenchmarkTail is how late a follower in another process has an entry, from the
// acknowledgement of the commit.
func BenchmarkTail(b *testing.B) {
	dsn := pool.Get(b, servers.MariaDB, nil).Database(b)
	s := sqlfault.Join(b, open(b, dsn, Options{}), "n1")
	granted, _ := sqlfault.Acquire(b, s, sqlfault.Claims(1))
	follower := open(b, dsn, Options{})
	page, err := follower.TailLog(b.Context(), "", 100)
	if err != nil {
		b.Fatal(err)
	}
	type arrival struct {
		at  time.Time
		err error
	}
	arrived := make(chan arrival, 1)
	number, lag := driver.WriteNo(0), time.Duration(0)
	for b.Loop() {
		number++
		go func() {
			var err error
			page, err = follower.TailLog(b.Context(), page.Cursor, 100)
			arrived <- arrival{time.Now(), err}
		}()
		sqlfault.Commit(b, s, sqlfault.AppendOf(granted[0].Fence, number, make([]byte, 128)))
		committed := time.Now()
		a := <-arrived
		if a.err != nil {
			b.Fatal(a.err)
		}
		lag += max(0, a.at.Sub(committed))
	}
	b.ReportMetric(float64(lag.Microseconds())/float64(number), "lag-µs/op")
}

// BenchmarkIdlePoll is one look at the store by a blocked Observe: its cost times
// the polls per second is what an idle process costs.
func BenchmarkIdlePoll(b *testing.B) {
	be := open(b, pool.Get(b, servers.MariaDB, nil).Database(b), Options{})
	sqlfault.Join(b, be, "n1")
	view, err := be.Observe(b.Context(), driver.ObserveQuery{})
	if err != nil {
		b.Fatal(err)
	}
	beats := []driver.Beat{{Session: view.Members[0].Session}}
	for b.Loop() {
		if _, err := be.Observe(b.Context(), driver.ObserveQuery{Since: view.Cursor, Beats: beats}); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkLeaseRow is the plain SQL baseline: one statement per lease taken, and
// one transaction per entry appended under a lock of the lease's row.
func BenchmarkLeaseRow(b *testing.B) {
	db := openDB(b, pool.Get(b, servers.MariaDB, nil).Database(b))
	db.SetMaxOpenConns(16)
	db.SetMaxIdleConns(16)
	exec(b, db, "CREATE TABLE lease (name VARCHAR(64) PRIMARY KEY, holder VARCHAR(64), token BIGINT, expires DATETIME(6))",
		"CREATE TABLE log (name VARCHAR(64), seq BIGINT, payload BLOB, PRIMARY KEY (name, seq))",
		"INSERT INTO lease VALUES ('s0', 'me', 1, now())") // of the appends
	b.Run("acquire1", func(b *testing.B) {
		for i := 0; b.Loop(); i++ {
			_, err := db.ExecContext(b.Context(), `INSERT INTO lease VALUES (?, 'me', 1, now() + INTERVAL 10 SECOND)
ON DUPLICATE KEY UPDATE token = token + 1, expires = now() + INTERVAL 10 SECOND`, fmt.Sprint("s", i))
			if err != nil {
				b.Fatal(err)
			}
		}
	})
	var seq atomic.Int64
	appends := func() error {
		tx, err := db.BeginTx(b.Context(), nil)
		if err != nil {
			return err
		}
		defer tx.Rollback()
		var token int64
		if err := tx.QueryRowContext(b.Context(), "SELECT token FROM lease WHERE name = 's0' AND holder = 'me' FOR UPDATE").Scan(&token); err != nil {
			return err
		}
		if _, err := tx.ExecContext(b.Context(), "INSERT INTO log VALUES ('s0', ?, ?)", seq.Add(1), make([]byte, 128)); err != nil {
			return err
		}
		return tx.Commit()
	}
	b.Run("append1", func(b *testing.B) { sqlfault.Produce(b, 1, appends) })
	b.Run("append64", func(b *testing.B) { sqlfault.Produce(b, 64, appends) })
}
