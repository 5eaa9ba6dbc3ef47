package postgres

import (
	stdsql "database/sql"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/proof/servers"
	"github.com/tenure-go/tenure/internal/proof/sqlfault"
)

// open migrates a separate database and opens a namespace in it.
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

// BenchmarkAcquire10000 claims 10,000 shards in one call, both for the first time and from an
// evicted member.
func BenchmarkAcquire10000(b *testing.B) {
	sqlfault.BenchmarkAcquire10000(b, opened, func(b *testing.B) driver.Backend {
		return open(b, pool.Get(b, servers.Postgres, nil).Database(b), Options{NoNotify: true, MaxConns: 1})
	})
}

func opened(b *testing.B) driver.Backend {
	return open(b, pool.Get(b, servers.Postgres, nil).Database(b), Options{})
}

// BenchmarkAppend measures the appends of one shard's producers. BenchmarkLeaseRow/append64 does
// the same in plain SQL.
func BenchmarkAppend(b *testing.B)   { sqlfault.BenchmarkAppend(b, opened) }
func BenchmarkCommit(b *testing.B)   { sqlfault.BenchmarkCommit(b, opened) }
func BenchmarkShards(b *testing.B)   { sqlfault.BenchmarkShards(b, opened) }
func BenchmarkBeat(b *testing.B)     { sqlfault.BenchmarkBeat(b, opened(b)) }
func BenchmarkHandOver(b *testing.B) { sqlfault.BenchmarkHandOver(b, opened(b)) }
func BenchmarkIdlePoll(b *testing.B) { sqlfault.BenchmarkIdlePoll(b, opened(b)) }

func BenchmarkLocked(b *testing.B) {
	dsn := pool.Get(b, servers.Postgres, nil).Database(b)
	db := setup.DB(b, dsn)
	sqlfault.BenchmarkLocked(b, open(b, dsn, Options{}), func(shard string) func() {
		tx := sqlfault.Tx(b, db, stdsql.LevelReadCommitted)
		sqlfault.Exec(b, tx, fmt.Sprintf("SELECT FROM tenure_shards WHERE shard = '%s' FOR UPDATE", shard))
		return func() {
			if err := tx.Rollback(); err != nil {
				b.Error(err)
			}
		}
	})
}

func BenchmarkTail(b *testing.B) {
	dsn := pool.Get(b, servers.Postgres, nil).Database(b)
	sqlfault.BenchmarkTail(b, open(b, dsn, Options{}), open(b, dsn, Options{}))
}

// BenchmarkHeartbeatTable reports the size of the table after 40,000 heartbeats of 200 members, on
// a server that does not wait for its disk.
func BenchmarkHeartbeatTable(b *testing.B) {
	server := servers.New(b, servers.Postgres, &servers.Options{NoSync: true})
	for b.Loop() {
		pages, hot := heartbeats(b, server.Database(b), 200, 200)
		b.ReportMetric(float64(pages), "pages")
		b.ReportMetric(hot, "%HOT")
	}
}

// BenchmarkLeaseRow is the baseline in plain SQL. It renews each lease in one transaction. It
// appends each entry in one transaction that locks the lease's row.
func BenchmarkLeaseRow(b *testing.B) {
	db := setup.DB(b, pool.Get(b, servers.Postgres, nil).Database(b))
	db.SetMaxOpenConns(16)
	db.SetMaxIdleConns(16)
	sqlfault.Exec(b, db,
		"CREATE TABLE lease (name text PRIMARY KEY, holder text, token bigint, expires timestamptz)",
		"CREATE TABLE log (name text, seq bigint, payload bytea, PRIMARY KEY (name, seq))",
		"INSERT INTO lease VALUES ('s0', 'me', 1, now())", // for the appends
	)
	b.Run("acquire1", func(b *testing.B) {
		for i := 0; b.Loop(); i++ {
			_, err := db.ExecContext(b.Context(), `INSERT INTO lease VALUES ($1, 'me', 1, now() + interval '10 s')
ON CONFLICT (name) DO UPDATE SET holder = 'me', token = lease.token + 1, expires = now() + interval '10 s' WHERE lease.expires < now()`, fmt.Sprint("s", i))
			if err != nil {
				b.Fatal(err)
			}
		}
	})
	var seq atomic.Int64
	appends := func(int) error {
		tx, err := db.BeginTx(b.Context(), nil)
		if err != nil {
			return err
		}
		defer tx.Rollback()
		var token int64
		if err := tx.QueryRowContext(b.Context(), "SELECT token FROM lease WHERE name = 's0' AND holder = 'me' FOR UPDATE").Scan(&token); err != nil {
			return err
		}
		if _, err := tx.ExecContext(b.Context(), "INSERT INTO log VALUES ('s0', $1, $2)", seq.Add(1), make([]byte, 128)); err != nil {
			return err
		}
		return tx.Commit()
	}
	b.Run("append1", func(b *testing.B) { sqlfault.Produce(b, 1, appends) })
	b.Run("append64", func(b *testing.B) { sqlfault.Produce(b, 64, appends) })
}

// BenchmarkMany acquires and hands over many shards, and BenchmarkMoves hands over one.
func BenchmarkMany(b *testing.B)  { sqlfault.BenchmarkMany(b, openedTwice) }
func BenchmarkMoves(b *testing.B) { sqlfault.BenchmarkMoves(b, openedTwice) }

func openedTwice(b *testing.B) [2]driver.Backend {
	dsn := pool.Get(b, servers.Postgres, nil).Database(b)
	return [2]driver.Backend{open(b, dsn, Options{}), open(b, dsn, Options{})}
}
