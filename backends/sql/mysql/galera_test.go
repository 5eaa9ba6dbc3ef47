package mysql

import (
	"context"
	stdsql "database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tenure-go/tenure/conformance"
	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/proof/servers"
	"github.com/tenure-go/tenure/internal/proof/sqlfault"
)

// galera is a cluster in which the first node can be behind the others.
type galera struct {
	t       *testing.T
	dsns    []servers.DSN
	dbs     []*stdsql.DB
	backend []*Backend
}

func newGalera(t *testing.T, nodes int, config ...string) *galera {
	t.Helper()
	servers.Short(t, servers.Galera)
	g := &galera{t: t}
	members := servers.NewCluster(t, servers.Galera, nodes, &servers.Options{NoSync: true, Config: config}).Members()
	dsn := members[0].Database(t)
	for i, m := range members {
		g.dsns = append(g.dsns, dsn.At(m.Addr()).With("interpolateParams", "true"))
		g.dbs = append(g.dbs, setup.DB(t, g.dsns[i]))
	}
	migrateAtOnce(t, g.dsns...)
	for _, text := range []string{
		"CREATE TABLE ledger (id BIGINT AUTO_INCREMENT PRIMARY KEY, token BIGINT NOT NULL, stale BOOLEAN NOT NULL) ENGINE=InnoDB",
		"CREATE TABLE lag (id BIGINT AUTO_INCREMENT PRIMARY KEY) ENGINE=InnoDB",
	} {
		g.exec(0, text)
	}
	for i := range members {
		b, err := Open(t.Context(), g.dsns[i].Reveal(), "two/doors", &Options{Create: i == 0, MaxConns: 1})
		if err != nil {
			t.Fatalf("node %d: %v", i, err)
		}
		t.Cleanup(func() { b.Close() })
		g.backend = append(g.backend, b)
	}
	// The first node's writes begin while the node is behind, as if they had begun before it fell
	// behind.
	l, err := g.backend[0].my.data.acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.conn.ExecContext(t.Context(), "SET SESSION wsrep_sync_wait = 0"); err != nil {
		t.Fatal(err)
	}
	g.backend[0].my.data.release(l)
	return g
}

func (g *galera) exec(node int, text string, args ...any) {
	g.t.Helper()
	if _, err := g.dbs[node].ExecContext(g.t.Context(), text, args...); err != nil {
		g.t.Fatalf("node %d: %s: %v", node, text, err)
	}
}

// lag makes the first node wait for a table, so that it applies no writes from other nodes until
// end is called.
func (g *galera) lag() (end func()) {
	g.t.Helper()
	conn, err := g.dbs[0].Conn(g.t.Context())
	if err != nil {
		g.t.Fatal(err)
	}
	run := func(text string) {
		if _, err := conn.ExecContext(g.t.Context(), text); err != nil {
			g.t.Errorf("%s: %v", text, err)
		}
	}
	run("LOCK TABLES lag READ")
	g.exec(1, "INSERT INTO lag VALUES ()")
	return func() {
		run("UNLOCK TABLES")
		conn.Close()
	}
}

// behind starts a call through the first node while that node is behind. The node catches up when
// the call ends or has certainly begun.
func (g *galera) behind(before func(), call func() error) error {
	g.t.Helper()
	end := g.lag()
	before()
	done := make(chan error, 1)
	go func() { done <- call() }()
	select {
	case err := <-done:
		end()
		return err
	case <-time.After(100 * time.Millisecond):
	}
	end()
	return <-done
}

// fenced runs an application's transaction on a node.
func (g *galera) fenced(node int, f driver.Fence, stale bool) error {
	ctx := g.t.Context()
	tx, err := g.dbs[node].BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if err := g.backend[node].FenceTx(ctx, tx, f); err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, "INSERT INTO ledger (token, stale) VALUES (?, ?)", int64(f.Token), stale); err != nil {
		return err
	}
	return tx.Commit()
}

func again(t *testing.T, call func() error) error {
	t.Helper()
	for range 50 {
		err := call()
		if !errors.Is(err, driver.ErrRetry) {
			return err
		}
		time.Sleep(20 * time.Millisecond)
	}
	return errors.New("it is never decided")
}

func (g *galera) claim(s driver.Session, c driver.Claim) driver.Fence {
	g.t.Helper()
	var f driver.Fence
	if err := again(g.t, func() error {
		r, err := s.Acquire(g.t.Context(), []driver.Claim{c})
		if err == nil {
			f, err = r[0].Fence, r[0].Err
		}
		return err
	}); err != nil {
		g.t.Fatalf("claim of %q: %v", c.Shard, err)
	}
	return f
}

func (g *galera) join(node int, name string) driver.Session {
	g.t.Helper()
	s, err := g.backend[node].Join(g.t.Context(), driver.Member{Session: driver.SessionID(fmt.Sprintf("%032x", time.Now().UnixNano())),
		Node: name, TTL: time.Minute})
	if err != nil {
		g.t.Fatal(err)
	}
	return s
}

// TestDoors runs the suite across two nodes of a three-node cluster with one server_id.
func TestDoors(t *testing.T) {
	t.Parallel()
	servers.Short(t, servers.Galera)
	members := servers.NewCluster(t, servers.Galera, 3, &servers.Options{NoSync: true, Config: []string{"server-id = 7"}}).Members()
	dsn := members[0].Database(t).With("interpolateParams", "true").With("wsrep_sync_wait", "1")
	other := dsn.At(members[1].Addr())
	h := harness(t, dsn, dsn, Options{}, other)
	besideMembers(t, dsn, other)
	conformance.TestDoors(t, h, nil)
}

// besideMembers: what a member writes through another node spoils no transaction of the harness.
func besideMembers(t *testing.T, dsn, other servers.DSN) {
	t.Helper()
	store := &sqlfault.Database{DB: setup.DB(t, dsn), Namespace: "beside"}
	b, err := Open(t.Context(), other.Reveal(), store.Namespace, &Options{Create: true})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	if _, err := b.Join(t.Context(), driver.Member{Session: driver.SessionID(strings.Repeat("b", 32)), Node: "b", TTL: time.Minute}); err != nil {
		t.Fatal(err)
	}
	restore, err := store.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	db, begun, done := setup.DB(t, other), make(chan struct{}), make(chan struct{})
	ctx, stop := context.WithCancel(t.Context())
	go func() {
		defer close(done)
		for n := 0; ctx.Err() == nil; n++ { // the row comes and goes, so an error is no matter here
			_, _ = db.ExecContext(ctx, "UPDATE tenure_beats SET version = version + 1 WHERE namespace = 'beside'")
			if n == 0 {
				close(begun)
			}
			time.Sleep(time.Millisecond)
		}
	}()
	<-begun
	for range 10 {
		if err := restore(t.Context()); err != nil {
			t.Errorf("restore beside a writer: %v", err)
		}
	}
	stop()
	<-done
}

// TestStaleWrites: a Galera node that is behind does not know of a takeover through another node.
// No write under the former lease may be applied, whether by a fenced transaction of the
// application, by Commit, or under a lock.
func TestStaleWrites(t *testing.T) {
	t.Parallel()
	rounds := 100
	if testing.Short() {
		rounds = 5
	}
	g := newGalera(t, 2)
	a, b := g.join(0, "a"), g.join(1, "b")
	numbers := map[driver.ShardID]driver.WriteNo{}
	for i := range rounds {
		shard := driver.ShardID("account-42")
		if i%2 == 1 {
			shard = driver.LockPrefix + "account-42"
		}
		view, err := g.backend[1].Observe(t.Context(), driver.ObserveQuery{})
		if err != nil {
			t.Fatal(err)
		}
		var seen driver.Owner
		for _, s := range view.Shards {
			if s.Shard == shard {
				seen = s.Owner
			}
		}
		first := g.claim(a, driver.Claim{Shard: shard, Seen: seen, Preempt: true})
		if err := again(t, func() error { return g.fenced(0, first, false) }); err != nil {
			t.Fatal(err)
		}
		var second driver.Fence
		err = g.behind(func() {
			second = g.claim(b, driver.Claim{Shard: shard, Seen: driver.Owner{Session: first.Session, Token: first.Token}, Preempt: true})
			if err := again(t, func() error { return g.fenced(1, second, false) }); err != nil {
				t.Fatal(err)
			}
		}, func() error { return g.fenced(0, first, true) })
		if err == nil {
			t.Errorf("round %d: a transaction under token %d was committed after the grant of %d", i, first.Token, second.Token)
		}
		first = g.claim(a, driver.Claim{Shard: shard, Seen: driver.Owner{Session: second.Session, Token: second.Token}, Preempt: true})
		number := numbers[shard] + 1
		err = g.behind(func() {
			second = g.claim(b, driver.Claim{Shard: shard, Seen: driver.Owner{Session: first.Session, Token: first.Token}, Preempt: true})
			if err := commit(t.Context(), b, second, number); err != nil {
				t.Fatal(err)
			}
		}, func() error { return commit(t.Context(), a, first, number+1) })
		if numbers[shard] = number; err == nil {
			t.Errorf("round %d: a write under token %d was committed after the grant of %d", i, first.Token, second.Token)
		}
	}
	for i := range rounds {
		c := g.join(0, fmt.Sprint("c", i))
		view, err := g.backend[1].Observe(t.Context(), driver.ObserveQuery{Beats: []driver.Beat{{Session: c.ID()}}})
		if err != nil {
			t.Fatal(err)
		}
		err = g.behind(func() {
			r, err := b.Evict(t.Context(), []driver.Suspect{{Session: c.ID(), Version: view.Beats[0].Version}})
			if err != nil || !r[0].Evicted {
				t.Fatal(err, r)
			}
		}, func() error {
			_, err := c.Acquire(t.Context(), []driver.Claim{{Shard: driver.ShardID(fmt.Sprint("new-", i))}})
			return err
		})
		if !errors.Is(err, driver.ErrSessionLost) {
			t.Errorf("round %d: a claim of a session that was evicted through another node answers %v", i, err)
		}
	}
	var stale, total int
	if err := g.dbs[1].QueryRowContext(t.Context(), "SELECT SUM(stale), COUNT(*) FROM ledger").Scan(&stale, &total); err != nil {
		t.Fatal(err)
	}
	if stale != 0 || total != 2*rounds {
		t.Errorf("%d of %d transactions are stale, of %d rounds", stale, total, rounds)
	}
}

// TestOlderRecord: the caller of a claim has seen a release through another node. A Galera node that
// is behind does not deny the claim because of the record before the release.
func TestOlderRecord(t *testing.T) {
	t.Parallel()
	g := newGalera(t, 2)
	a, b := g.join(0, "a"), g.join(1, "b")
	for i := range 3 {
		shard := driver.ShardID(fmt.Sprint("s", i))
		f := g.claim(b, driver.Claim{Shard: shard})
		if _, err := g.backend[0].Observe(t.Context(), driver.ObserveQuery{}); err != nil { // waits for the grant
			t.Fatal(err)
		}
		err := g.behind(func() {
			if err := again(t, func() error { return b.Release(t.Context(), []driver.Fence{f}) }); err != nil {
				t.Fatal(err)
			}
		}, func() error {
			return again(t, func() error {
				r, err := a.Acquire(t.Context(), []driver.Claim{{Shard: shard, Seen: driver.Owner{Token: f.Token}}})
				if err == nil {
					err = r[0].Err
				}
				return err
			})
		})
		if err != nil {
			t.Errorf("round %d: a claim of a shard that was released through another node answers %v", i, err)
		}
	}
}

func commit(ctx context.Context, s driver.Session, f driver.Fence, number driver.WriteNo) error {
	r, err := s.Commit(ctx, []driver.Write{{Fence: f, Number: number, Nonce: driver.Nonce(number),
		Ops: []driver.Op{{Kind: driver.OpAppend, Value: []byte("x")}}}})
	if err == nil {
		err = r[0].Err
	}
	return err
}
