package postgres

import (
	"crypto/rand"
	stdsql "database/sql"
	"fmt"
	"testing"
	"time"

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
	db, err := stdsql.Open("pgx", dsn.Reveal())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

func join(t testing.TB, b driver.Backend, node string) driver.Session {
	t.Helper()
	s, err := b.Join(t.Context(), driver.Member{Session: driver.SessionID(rand.Text()), Node: node, TTL: 10 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// claims returns claims on n shards without a record.
func claims(n int) []driver.Claim {
	c := make([]driver.Claim, n)
	for i := range c {
		c[i].Shard = driver.ShardID(fmt.Sprintf("shard-%05d", i))
	}
	return c
}

// acquire makes claims that must all be granted, and returns what they return, and
// the claims that would follow.
func acquire(t testing.TB, s driver.Session, batch []driver.Claim) (results []driver.AcquireResult, next []driver.Claim) {
	t.Helper()
	results, err := s.Acquire(t.Context(), batch)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range results {
		if r.Err != nil {
			t.Fatal(r.Err)
		}
		next = append(next, driver.Claim{Shard: r.Fence.Shard, Seen: driver.Owner{Session: s.ID(), Token: r.Fence.Token}})
	}
	return results, next
}

func appendOf(f driver.Fence, number driver.WriteNo, payloads ...[]byte) driver.Write {
	w := driver.Write{Fence: f, Number: number, Nonce: 7}
	for _, p := range payloads {
		w.Ops = append(w.Ops, driver.Op{Kind: driver.OpAppend, Value: p})
	}
	return w
}

// commit makes one write that must succeed.
func commit(t testing.TB, s driver.Session, w driver.Write) driver.CommitResult {
	t.Helper()
	res, err := s.Commit(t.Context(), []driver.Write{w})
	if err != nil || res[0].Err != nil {
		t.Fatal(err, res)
	}
	return res[0]
}

// BenchmarkAcquire10000 claims 10,000 shards in one call: for the first time, and
// from a member that was evicted.
func BenchmarkAcquire10000(b *testing.B) {
	be := open(b, pool.Get(b, servers.Postgres, nil).Database(b), Options{})
	b.Run("takeover", func(b *testing.B) {
		s := join(b, be, "n0")
		_, next := acquire(b, s, claims(10_000))
		for i := 0; b.Loop(); i++ {
			b.StopTimer()
			heir := join(b, be, fmt.Sprint("n", i+1))
			b.StartTimer()
			res, err := heir.Evict(b.Context(), []driver.Suspect{{Session: s.ID(), Version: 1}})
			if err != nil || !res[0].Evicted {
				b.Fatal(err, res)
			}
			_, next = acquire(b, heir, next)
			s = heir
		}
	})
	b.Run("first", func(b *testing.B) {
		for i := 0; b.Loop(); i++ {
			b.StopTimer()
			fresh := open(b, pool.Get(b, servers.Postgres, nil).Database(b), Options{NoNotify: true, MaxConns: 1})
			s := join(b, fresh, "n")
			b.StartTimer()
			acquire(b, s, claims(10_000))
			b.StopTimer()
			fresh.Close()
			b.StartTimer()
		}
	})
}

// BenchmarkCommit appends batches of 128-byte entries to one shard's log, as group
// commit does for as many producers.
func BenchmarkCommit(b *testing.B) {
	for _, n := range []int{1, 64, 500} {
		b.Run(fmt.Sprintf("append%d", n), func(b *testing.B) {
			s := join(b, open(b, pool.Get(b, servers.Postgres, nil).Database(b), Options{}), "n1")
			granted, _ := acquire(b, s, claims(1))
			payloads := make([][]byte, n)
			for i := range payloads {
				payloads[i] = make([]byte, 128)
			}
			number := driver.WriteNo(0)
			for b.Loop() {
				number++
				commit(b, s, appendOf(granted[0].Fence, number, payloads...))
			}
			b.ReportMetric(float64(int(number)*n)/b.Elapsed().Seconds(), "entries/s")
		})
	}
}

// BenchmarkBeat changes one session's record.
func BenchmarkBeat(b *testing.B) {
	s := join(b, open(b, pool.Get(b, servers.Postgres, nil).Database(b), Options{}), "n1")
	for b.Loop() {
		if err := s.Beat(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkHeartbeatTable is what 40,000 heartbeats of 200 members leave behind.
func BenchmarkHeartbeatTable(b *testing.B) {
	for b.Loop() {
		pages, hot := heartbeats(b, pool.Get(b, servers.Postgres, nil).Database(b), 200, 200)
		b.ReportMetric(float64(pages), "pages")
		b.ReportMetric(hot, "%HOT")
	}
}

// BenchmarkHandover passes a lease to another member, whose first write follows.
func BenchmarkHandover(b *testing.B) {
	be := open(b, pool.Get(b, servers.Postgres, nil).Database(b), Options{})
	from, to := join(b, be, "n1"), join(b, be, "n2")
	granted, _ := acquire(b, from, claims(1))
	fence := granted[0].Fence
	for b.Loop() {
		res, err := from.Transfer(b.Context(), []driver.Handover{{Fence: fence, To: to.ID()}})
		if err != nil || res[0].Err != nil {
			b.Fatal(err, res)
		}
		fence = res[0].Fence
		commit(b, to, appendOf(fence, res[0].Head.Number+1, []byte("first")))
		from, to = to, from
	}
}

// BenchmarkTail is how late a follower in another process has an entry, from the
// acknowledgement of the commit.
func BenchmarkTail(b *testing.B) {
	dsn := pool.Get(b, servers.Postgres, nil).Database(b)
	s := join(b, open(b, dsn, Options{}), "n1")
	granted, _ := acquire(b, s, claims(1))
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
		commit(b, s, appendOf(granted[0].Fence, number, make([]byte, 128)))
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
	be := open(b, pool.Get(b, servers.Postgres, nil).Database(b), Options{})
	join(b, be, "n1")
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

// BenchmarkLeaseRow is the plain SQL baseline: one transaction per lease renewed,
// and one per entry appended under a lock of the lease's row.
func BenchmarkLeaseRow(b *testing.B) {
	db := openDB(b, pool.Get(b, servers.Postgres, nil).Database(b))
	for _, text := range []string{
		"CREATE TABLE lease (name text PRIMARY KEY, holder text, token bigint, expires timestamptz)",
		"CREATE TABLE log (name text, seq bigint, payload bytea, PRIMARY KEY (name, seq))",
	} {
		if _, err := db.ExecContext(b.Context(), text); err != nil {
			b.Fatal(err)
		}
	}
	b.Run("acquire1", func(b *testing.B) {
		for i := 0; b.Loop(); i++ {
			_, err := db.ExecContext(b.Context(), `INSERT INTO lease VALUES ($1, 'me', 1, now() + interval '10 s')
ON CONFLICT (name) DO UPDATE SET holder = 'me', token = lease.token + 1, expires = now() + interval '10 s' WHERE lease.expires < now()`, fmt.Sprint("s", i))
			if err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("append1", func(b *testing.B) {
		for seq := 1; b.Loop(); seq++ {
			tx, err := db.BeginTx(b.Context(), nil)
			if err != nil {
				b.Fatal(err)
			}
			var token int64
			if err := tx.QueryRowContext(b.Context(), "SELECT token FROM lease WHERE name = 's0' AND holder = 'me' FOR UPDATE").Scan(&token); err != nil {
				b.Fatal(err)
			}
			if _, err := tx.ExecContext(b.Context(), "INSERT INTO log VALUES ('s0', $1, $2)", time.Now().UnixNano(), make([]byte, 128)); err != nil {
				b.Fatal(err)
			}
			if err := tx.Commit(); err != nil {
				b.Fatal(err)
			}
		}
	})
}
