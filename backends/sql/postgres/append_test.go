package postgres

import (
	stdsql "database/sql"
	"errors"
	"fmt"
	"hash/fnv"
	"sync"
	"testing"

	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/proof/ample"
	"github.com/tenure-go/tenure/internal/proof/servers"
	"github.com/tenure-go/tenure/internal/proof/share"
	"github.com/tenure-go/tenure/internal/proof/sqlfault"
)

// inOneBucket returns claims on n shards that share one counter.
func inOneBucket(n int) (claims []driver.Claim) {
	for i := 0; len(claims) < n; i++ {
		h := fnv.New32a()
		_, _ = fmt.Fprint(h, "s", i)
		if h.Sum32()%buckets == 0 {
			claims = append(claims, driver.Claim{Shard: driver.ShardID(fmt.Sprint("s", i))})
		}
	}
	return claims
}

// waiters counts the transactions in the database that are waiting for locks.
const waiters = `SELECT count(DISTINCT pid) FROM pg_locks JOIN pg_stat_activity USING (pid)
WHERE NOT granted AND datname = current_database()`

// awaitWaiting returns when the given number of transactions in the database are waiting for locks.
func awaitWaiting(t *testing.T, db *stdsql.DB, want int) {
	t.Helper()
	ample.Wait(t, fmt.Sprintf("not %d transactions wait for a lock", want), func() bool {
		var n int
		if err := db.QueryRowContext(t.Context(), waiters).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n == want
	})
}

// TestAppendAfterWait: a statement that decides and writes bases its decision on the rows as they
// are once it has locked them.
func TestAppendAfterWait(t *testing.T) {
	t.Parallel()
	dsn := pool.Get(t, servers.Postgres, nil).Database(t)
	b := open(t, dsn, Options{})
	db := setup.DB(t, dsn)
	s := sqlfault.Join(t, b, "n1")
	position := func() (n int64) {
		if err := db.QueryRowContext(t.Context(), "SELECT sum(position) FROM tenure_tails").Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	granted, _ := sqlfault.Acquire(t, s, inOneBucket(6))
	for _, c := range []struct {
		name, change string
		of           []driver.AcquireResult
		want         error
	}{
		{"of two shards with one counter", "UPDATE tenure_tails SET position = position + 1 WHERE bucket = 0", granted[:2], nil},
		{"for a fence", "SELECT FROM tenure_shards WHERE shard = '%s' FOR UPDATE", granted[2:3], nil},
		{"for a takeover", "WITH raised AS (UPDATE tenure_namespaces SET revision = revision + 1)\n" +
			"UPDATE tenure_shards SET session = 'other', token = token + 1 WHERE shard = '%s'", granted[3:4], driver.ErrFenced},
		{"for a release", "UPDATE tenure_shards SET session = '' WHERE shard = '%s'", granted[4:5], driver.ErrFenced},
		{"for a commit", "UPDATE tenure_shards SET number = number + 1, oldest = 1, nonce = 1, commit_token = token WHERE shard = '%s'", granted[5:6], driver.ErrConflict},
	} {
		other := sqlfault.Tx(t, db, stdsql.LevelReadCommitted)
		text := c.change
		if len(c.of) == 1 {
			text = fmt.Sprintf(c.change, c.of[0].Fence.Shard)
		}
		sqlfault.Exec(t, other, text)
		answers := make([]driver.CommitResult, len(c.of))
		var commits sync.WaitGroup
		for i, g := range c.of {
			commits.Go(func() {
				res, err := s.Commit(t.Context(), []driver.Write{sqlfault.AppendOf(g.Fence, 1, []byte("one"), []byte("two"))})
				if err != nil {
					res = []driver.CommitResult{{Err: err}}
				}
				answers[i] = res[0]
			})
		}
		awaitWaiting(t, db, len(c.of))
		before := position()
		if err := other.Commit(); err != nil {
			t.Fatal(err)
		}
		commits.Wait()
		added := int64(0)
		if len(c.of) == 2 {
			added++ // by the other transaction
		}
		for i, g := range c.of {
			res := answers[i]
			want := driver.Head{Number: 1, Seq: 2, Oldest: 1, Nonce: 7, Token: g.Fence.Token}
			if !errors.Is(res.Err, c.want) || c.want == nil && res.Head != want {
				t.Errorf("a wait %s: %+v; want %+v, %v", c.name, res, want, c.want)
			}
			entries := 0
			if c.want == nil {
				entries = 2
			}
			page, err := b.ReadLog(t.Context(), g.Fence.Shard, 0, 10)
			if err != nil || len(page.Entries) != entries {
				t.Errorf("a wait %s: the log has %+v, %v; want %d entries", c.name, page, err, entries)
			}
			added += int64(entries)
		}
		if n := position() - before; n != added {
			t.Errorf("a wait %s: the counters rose by %d, want %d", c.name, n, added)
		}
	}
}

// TestBatchAfterWait: a batch that waited for a row bases its decision on the row as it is after
// the wait. The test has several rounds, because the batch may exhaust its patience.
func TestBatchAfterWait(t *testing.T) {
	t.Parallel()
	rounds := share.Of(t, "rounds", 20, 7)
	dsn := pool.Get(t, servers.Postgres, nil).Database(t)
	b := open(t, dsn, Options{})
	db := setup.DB(t, dsn)
	s := sqlfault.Join(t, b, "n1")
	granted, _ := sqlfault.Acquire(t, s, sqlfault.Claims(rounds+1))
	for i := range rounds {
		taken, kept := granted[i].Fence, granted[rounds].Fence
		other := sqlfault.Tx(t, db, stdsql.LevelReadCommitted)
		sqlfault.Exec(t, other, fmt.Sprintf("UPDATE tenure_shards SET session = 'other' WHERE shard = '%s'", taken.Shard))
		var res []driver.CommitResult
		done := make(chan error, 1)
		go func() {
			var err error
			res, err = s.Commit(t.Context(), []driver.Write{
				sqlfault.AppendOf(taken, 1, []byte("a")), sqlfault.AppendOf(kept, driver.WriteNo(i+1), []byte("b"))})
			done <- err
		}()
		var waiting int
		for len(done) == 0 && waiting == 0 {
			if err := db.QueryRowContext(t.Context(), waiters).Scan(&waiting); err != nil {
				t.Fatal(err)
			}
		}
		if err := other.Commit(); err != nil {
			t.Fatal(err)
		}
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if refused := res[0].Err; !errors.Is(refused, driver.ErrFenced) && !errors.Is(refused, driver.ErrRetry) || res[1].Err != nil {
			t.Fatalf("commits of a shard that was taken, and of another one: %+v", res)
		}
	}
}

// TestAppendsShareACounter: one counter orders the entries of several shards. A follower gets all
// concurrent commits of these shards, and each shard's commits in order.
func TestAppendsShareACounter(t *testing.T) {
	t.Parallel()
	const shards, commits = 4, 50
	dsn := pool.Get(t, servers.Postgres, nil).Database(t)
	b := open(t, dsn, Options{})
	s := sqlfault.Join(t, b, "n1")
	granted, _ := sqlfault.Acquire(t, s, inOneBucket(shards))
	page, err := b.TailLog(t.Context(), "", 1)
	if err != nil {
		t.Fatal(err)
	}
	failed := make(chan error, shards)
	for _, g := range granted {
		go func() {
			for number := driver.WriteNo(1); number <= commits; number++ {
				res, err := s.Commit(t.Context(), []driver.Write{sqlfault.AppendOf(g.Fence, number, []byte("one"), nil)})
				if err == nil {
					err = res[0].Err
				}
				if err != nil {
					failed <- err
					return
				}
			}
			failed <- nil
		}()
	}
	seen := map[driver.ShardID]driver.Seq{}
	for n := 0; n < shards*commits*2; n += len(page.Entries) {
		if page, err = b.TailLog(t.Context(), page.Cursor, 100); err != nil || page.Reset {
			t.Fatal(page, err)
		}
		for _, e := range page.Entries {
			if seen[e.Shard]++; e.Seq != seen[e.Shard] {
				t.Fatalf("shard %q: entry %d follows %d", e.Shard, e.Seq, seen[e.Shard]-1)
			}
		}
	}
	for range granted {
		if err := <-failed; err != nil {
			t.Error(err)
		}
	}
}

// TestAppendWithoutACounter: without a counter, no head is written without its entry.
func TestAppendWithoutACounter(t *testing.T) {
	t.Parallel()
	dsn := pool.Get(t, servers.Postgres, nil).Database(t)
	b := open(t, dsn, Options{})
	s := sqlfault.Join(t, b, "n1")
	granted, _ := sqlfault.Acquire(t, s, sqlfault.Claims(1))
	sqlfault.Exec(t, setup.DB(t, dsn), "DELETE FROM tenure_tails")
	res, err := s.Commit(t.Context(), []driver.Write{sqlfault.AppendOf(granted[0].Fence, 1, []byte("a"))})
	if !errors.Is(err, driver.ErrRetry) {
		t.Errorf("commit: %+v, %v", res, err)
	}
	page, err := b.ReadLog(t.Context(), granted[0].Fence.Shard, 0, 1)
	if err != nil || page.Head != (driver.Head{}) {
		t.Errorf("the log: %+v, %v", page, err)
	}
}

// TestAppendWithoutRow: a commit to a shard without a row is refused, and inserts no row.
func TestAppendWithoutRow(t *testing.T) {
	t.Parallel()
	dsn := pool.Get(t, servers.Postgres, nil).Database(t)
	b := open(t, dsn, Options{})
	db := setup.DB(t, dsn)
	s := sqlfault.Join(t, b, "n1")
	granted, _ := sqlfault.Acquire(t, s, sqlfault.Claims(2))
	sqlfault.Exec(t, db, fmt.Sprintf("DELETE FROM tenure_shards WHERE shard = '%s'", granted[0].Fence.Shard))
	for _, alone := range []bool{false, true} {
		writes := []driver.Write{sqlfault.AppendOf(granted[0].Fence, 1, []byte("a"))}
		if !alone {
			writes = append(writes, sqlfault.AppendOf(granted[1].Fence, 1, []byte("b")))
		}
		res, err := s.Commit(t.Context(), writes)
		if err != nil || !errors.Is(res[0].Err, driver.ErrFenced) || len(res) == 2 && res[1].Err != nil {
			t.Errorf("commits: %+v, %v; want the first fenced, and the other applied", res, err)
		}
	}
	var rows int
	if err := db.QueryRowContext(t.Context(), "SELECT count(*) FROM tenure_shards").Scan(&rows); err != nil || rows != 1 {
		t.Errorf("%d shards have rows, %v; want 1", rows, err)
	}
}

// TestAppendsOfABatch: if one commit of a batch is refused, the others are still applied. Each
// entry has a place among the entries of its bucket.
func TestAppendsOfABatch(t *testing.T) {
	t.Parallel()
	b := open(t, pool.Get(t, servers.Postgres, nil).Database(t), Options{})
	s := sqlfault.Join(t, b, "n1")
	granted, _ := sqlfault.Acquire(t, s, inOneBucket(4))
	page, err := b.TailLog(t.Context(), "", 1)
	if err != nil {
		t.Fatal(err)
	}
	writes := make([]driver.Write, len(granted))
	for i, g := range granted {
		writes[i] = sqlfault.AppendOf(g.Fence, 1, []byte("one"), []byte("two"))
	}
	writes[1].Number = 5
	writes[2].Fence.Token++
	res, err := s.Commit(t.Context(), writes)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []error{nil, driver.ErrConflict, driver.ErrFenced, nil} {
		if !errors.Is(res[i].Err, want) || want == nil && res[i].Head.Seq != 2 {
			t.Errorf("commit %d: %+v, want %v", i, res[i], want)
		}
	}
	var got []driver.Entry
	for len(got) < 4 {
		if page, err = b.TailLog(t.Context(), page.Cursor, 100); err != nil || page.Reset {
			t.Fatal(page, err)
		}
		got = append(got, page.Entries...)
	}
	seen := map[driver.ShardID]driver.Seq{}
	for _, e := range got {
		if seen[e.Shard]++; e.Seq != seen[e.Shard] {
			t.Errorf("entry %d of shard %q follows %d", e.Seq, e.Shard, seen[e.Shard]-1)
		}
	}
	if seen[granted[0].Fence.Shard] != 2 || seen[granted[3].Fence.Shard] != 2 || len(got) != 4 {
		t.Errorf("the tail has %+v", got)
	}
}
