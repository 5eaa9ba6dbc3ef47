package mysql

import (
	"context"
	stdsql "database/sql"
	"errors"
	"flag"
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/proof/servers"
	"github.com/tenure-go/tenure/internal/proof/sqlfault"
)

var roundsFlag = flag.Int("rounds", 3, "how often TestReadsSurviveKill kills its server")

// unflushed is a server on which a test can commit without a flush, as InnoDB does before it
// flushes its log. Every reader sees the commit, and a crash loses it.
type unflushed struct {
	*servers.Server
	dsn servers.DSN
}

func newUnflushed(t *testing.T) unflushed {
	server := servers.New(t, servers.MariaDB, &servers.Options{NoSync: true, Config: []string{"innodb-flush-log-at-timeout = 2700"}})
	u := unflushed{server, server.Database(t)}
	if err := Migrate(t.Context(), u.dsn.Reveal(), nil); err != nil {
		t.Fatal(err)
	}
	return u
}

// do runs a statement as the administrator, on a connection that it closes.
func (u unflushed) do(t *testing.T, with func(db *stdsql.DB) error) {
	t.Helper()
	db, err := stdsql.Open("mysql", u.Admin().Database(u.dsn.Name()).Reveal())
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if err := with(db); err != nil {
		t.Fatal(err)
	}
}

func (u unflushed) flush(t *testing.T, how int) {
	t.Helper()
	u.do(t, func(db *stdsql.DB) error {
		_, err := db.ExecContext(t.Context(), fmt.Sprintf("SET GLOBAL innodb_flush_log_at_trx_commit = %d", how))
		return err
	})
}

// content returns the numbers that grow in a namespace.
func (u unflushed) content(t *testing.T, namespace string) (c [3]int64) {
	t.Helper()
	u.do(t, func(db *stdsql.DB) error {
		return db.QueryRowContext(t.Context(), `SELECT n.base + n.revision, r.revision,
  (SELECT coalesce(sum(number), 0) FROM tenure_shards AS s WHERE s.namespace = n.namespace)
FROM tenure_namespaces AS n JOIN tenure_rosters AS r USING (namespace) WHERE n.namespace = ?`, namespace).Scan(&c[0], &c[1], &c[2])
	})
	return c
}

func (u unflushed) open(t *testing.T, namespace string) *Backend {
	t.Helper()
	b, err := Open(t.Context(), u.dsn.Reveal(), namespace, &Options{Create: true, PollPeriod: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	return b
}

// kept reports whether the change survives a crash immediately after the read.
func (u unflushed) kept(t *testing.T, namespace string, change, read func() error) bool {
	t.Helper()
	before := u.content(t, namespace)
	u.flush(t, 0)
	if err := change(); err != nil {
		t.Fatal("the change:", err)
	}
	u.flush(t, 1)
	changed := u.content(t, namespace)
	if err := read(); err != nil {
		t.Error("the read:", err)
	}
	if err := u.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	after := u.content(t, namespace)
	if changed == before || after != before && after != changed {
		t.Fatalf("%v before the change, %v after it, and %v after the crash", before, changed, after)
	}
	return after == changed
}

// TestReadIsDurable: if the driver returns data of a commit that InnoDB shows but has not flushed,
// the data survives a server crash.
func TestReadIsDurable(t *testing.T) {
	t.Parallel()
	u := newUnflushed(t)
	lost := false
	for try := 0; try < 5 && !lost; try++ { // a page may be flushed by chance, and the log with it
		namespace := fmt.Sprint("control", try)
		w := u.open(t, namespace)
		lost = !u.kept(t, namespace, func() error { sqlfault.Join(t, w, "n1"); return nil }, func() error { return nil })
	}
	if !lost {
		t.Fatal("the server loses nothing: this test proves nothing")
	}

	type parties struct {
		writer, reader *Backend
		s, other       driver.Session // of the writer's process, and of the reader's
		fence          driver.Fence   // of s
		view, tail     driver.Cursor
	}
	transfer := func(t *testing.T, p *parties) error {
		res, err := p.s.Transfer(t.Context(), []driver.Transfer{{Fence: p.fence, To: p.other.ID()}})
		if err == nil {
			err = res[0].Err
		}
		return err
	}
	write := func(t *testing.T, p *parties) error {
		res, err := p.s.Commit(t.Context(), []driver.Write{{Fence: p.fence, Number: 1, Nonce: 7, Ops: []driver.Op{
			{Kind: driver.OpAppend, Value: []byte("entry")}, {Kind: driver.OpPut, Key: "k", Value: []byte("v")}}}})
		if err == nil {
			err = res[0].Err
		}
		return err
	}
	for _, c := range []struct {
		name         string
		change, read func(t *testing.T, p *parties) error
	}{
		{"an owner in a view", transfer, func(t *testing.T, p *parties) error {
			view, err := p.reader.Observe(t.Context(), driver.ObserveQuery{Since: p.view})
			if err == nil && (len(view.Shards) != 1 || view.Shards[0].Owner.Session != p.other.ID()) {
				err = fmt.Errorf("%+v", view)
			}
			return err
		}},
		{"a member in a view", func(t *testing.T, p *parties) error {
			return p.s.Close(t.Context())
		}, func(t *testing.T, p *parties) error {
			view, err := p.reader.Observe(t.Context(), driver.ObserveQuery{Since: p.view})
			if err == nil && len(view.Gone) != 1 {
				err = fmt.Errorf("%+v", view)
			}
			return err
		}},
		{"an entry of a tail", write, func(t *testing.T, p *parties) error {
			page, err := p.reader.TailLog(t.Context(), p.tail, 1)
			if err == nil && len(page.Entries) != 1 {
				err = fmt.Errorf("%+v", page)
			}
			return err
		}},
		{"a head of a tail", write, func(t *testing.T, p *parties) error {
			page, err := p.reader.TailLog(t.Context(), "", 1)
			if err == nil && len(page.Heads) != 1 {
				err = fmt.Errorf("%+v", page)
			}
			return err
		}},
		{"a page of a log", write, func(t *testing.T, p *parties) error {
			page, err := p.reader.ReadLog(t.Context(), p.fence.Shard, 0, 1)
			if err == nil && len(page.Entries) != 1 {
				err = fmt.Errorf("%+v", page)
			}
			return err
		}},
		{"an item", write, func(t *testing.T, p *parties) error {
			it, err := p.reader.Get(t.Context(), p.fence.Shard, "k")
			if err == nil && it == nil {
				err = errors.New("there is none")
			}
			return err
		}},
		{"a list of items", write, func(t *testing.T, p *parties) error {
			items, err := p.reader.List(t.Context(), p.fence.Shard, "", 0, 0)
			if err == nil && len(items) != 1 {
				err = fmt.Errorf("%+v", items)
			}
			return err
		}},
		{"a commit in doubt that was applied", write, func(t *testing.T, p *parties) error {
			res, err := p.other.Commit(t.Context(), []driver.Write{sqlfault.AppendOf(p.fence, 1, []byte("entry"))})
			var conflict *driver.ConflictError
			if err == nil && (!errors.As(res[0].Err, &conflict) || conflict.Head.Number != 1) {
				err = fmt.Errorf("%+v", res)
			}
			return err
		}},
		{"a fence that is dead", transfer, func(t *testing.T, p *parties) error {
			res, err := p.other.Commit(t.Context(), []driver.Write{sqlfault.AppendOf(p.fence, 1, []byte("entry"))})
			if err == nil && !errors.Is(res[0].Err, driver.ErrFenced) {
				err = fmt.Errorf("%+v", res)
			}
			return err
		}},
		{"a claim that is denied", transfer, func(t *testing.T, p *parties) error {
			res, err := p.other.Acquire(t.Context(), []driver.Claim{{Shard: p.fence.Shard}})
			if err == nil && !errors.Is(res[0].Err, driver.ErrHeld) {
				err = fmt.Errorf("%+v", res)
			}
			return err
		}},
		{"a claim in doubt that was granted", transfer, func(t *testing.T, p *parties) error {
			res, err := p.other.Acquire(t.Context(), []driver.Claim{{Shard: p.fence.Shard, Seen: driver.Owner{Session: p.s.ID(), Token: p.fence.Token}}})
			if err == nil && (res[0].Err != nil || res[0].Fence.Session != p.other.ID()) {
				err = fmt.Errorf("%+v", res)
			}
			return err
		}},
		{"a session that is lost", func(t *testing.T, p *parties) error {
			res, err := p.s.Evict(t.Context(), []driver.Suspect{{Session: p.other.ID(), Version: 1}})
			if err == nil && !res[0].Evicted {
				err = fmt.Errorf("%+v", res)
			}
			return err
		}, func(t *testing.T, p *parties) error {
			if err := p.other.Beat(t.Context()); !errors.Is(err, driver.ErrSessionLost) {
				return fmt.Errorf("a heartbeat: %w", err)
			}
			return nil
		}},
		{"a release of a lease that is gone", transfer, func(t *testing.T, p *parties) error {
			return p.other.Release(t.Context(), []driver.Fence{p.fence})
		}},
		{"an eviction of a member that is gone", func(t *testing.T, p *parties) error {
			return p.s.Close(t.Context())
		}, func(t *testing.T, p *parties) error {
			res, err := p.other.Evict(t.Context(), []driver.Suspect{{Session: p.s.ID(), Version: 1}})
			if err == nil && (res[0].Err != nil || res[0].Evicted) {
				err = fmt.Errorf("%+v", res)
			}
			return err
		}},
		{"the floor", transfer, func(t *testing.T, p *parties) error {
			_, err := p.reader.Floor(t.Context())
			return err
		}},
		{"a floor that was raised", func(t *testing.T, p *parties) error {
			return p.writer.RaiseFloor(t.Context(), p.fence.Token, 1000)
		}, func(t *testing.T, p *parties) error {
			return p.reader.RaiseFloor(t.Context(), p.fence.Token, 1000)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			namespace := strings.ReplaceAll(c.name, " ", "-")
			p := &parties{writer: u.open(t, namespace), reader: u.open(t, namespace)}
			p.s, p.other = sqlfault.Join(t, p.writer, "n1"), sqlfault.Join(t, p.reader, "n2")
			granted, _ := sqlfault.Acquire(t, p.s, sqlfault.Claims(1))
			p.fence = granted[0].Fence
			view, err := p.reader.Observe(t.Context(), driver.ObserveQuery{})
			if err != nil {
				t.Fatal(err)
			}
			tail, err := p.reader.TailLog(t.Context(), "", 1)
			if err != nil {
				t.Fatal(err)
			}
			p.view, p.tail = view.Cursor, tail.Cursor
			if !u.kept(t, namespace, func() error { return c.change(t, p) }, func() error { return c.read(t, p) }) {
				t.Error("it was read, and a crash took it back")
			}
		})
	}
}

// TestHeartbeatTakenBack: if a crash loses a heartbeat whose version was seen, no later heartbeat
// has the same version. A repeated version would look like silence, and the session could be
// evicted.
func TestHeartbeatTakenBack(t *testing.T) {
	t.Parallel()
	u := newUnflushed(t)
	wire := new(sqlfault.Wire)
	b, err := openFaulty(t.Context(), u.dsn.Reveal(), "app", Options{}, new(sqlfault.Calls), sqlfault.How{Wire: wire})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	s := sqlfault.Join(t, b, "n1")
	version := func() driver.Version {
		t.Helper()
		view, err := b.Observe(t.Context(), driver.ObserveQuery{Beats: []driver.Beat{{Session: s.ID()}}})
		if err != nil || len(view.Beats) != 1 {
			t.Fatal(view, err)
		}
		return view.Beats[0].Version
	}
	taken := false
	for try := 0; try < 5 && !taken; try++ { // a page may be flushed by chance, and the log with it
		u.flush(t, 0)
		heal := wire.DropReplies()
		lost, cancel := context.WithTimeout(t.Context(), time.Second)
		if err := s.Beat(lost); err == nil {
			t.Fatal("the reply was not lost")
		}
		cancel()
		heal()
		u.flush(t, 1)
		seen := version()
		if err := u.Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
		taken = version() < seen
		if err := s.Beat(t.Context()); err != nil {
			t.Fatal(err)
		}
		if now := version(); now <= seen {
			t.Errorf("version %d was seen before the crash, and %d is that of a later heartbeat", seen, now)
		}
	}
	if !taken {
		t.Error("the server loses nothing: this test proves nothing")
	}
}

// TestBarriers: reads of data that is known to be durable need no barrier, and each page with newer
// data needs one.
func TestBarriers(t *testing.T) {
	t.Parallel()
	dsn := pool.Get(t, servers.MariaDB, nil).Database(t)
	writer, reader := open(t, dsn, Options{}), open(t, dsn, Options{})
	db := setup.DB(t, dsn)
	count := func() (n int) {
		t.Helper()
		err := db.QueryRowContext(t.Context(), "SELECT coalesce(sum(version), 0) FROM tenure_probes WHERE id LIKE 'barrier-%'").Scan(&n)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	s := sqlfault.Join(t, writer, "n1")
	granted, _ := sqlfault.Acquire(t, s, sqlfault.Claims(10))
	for i := range granted {
		sqlfault.Commit(t, s, sqlfault.AppendOf(granted[i].Fence, 1, []byte("entry")))
	}
	readAll := func(b *Backend) {
		t.Helper()
		if _, err := b.Observe(t.Context(), driver.ObserveQuery{Beats: []driver.Beat{{Session: s.ID()}}}); err != nil {
			t.Fatal(err)
		}
		if _, err := b.TailLog(t.Context(), "", 1); err != nil {
			t.Fatal(err)
		}
		for _, g := range granted {
			_, err := b.ReadLog(t.Context(), g.Fence.Shard, 0, 10)
			if err == nil {
				_, err = b.Get(t.Context(), g.Fence.Shard, "k")
			}
			if err == nil {
				_, err = b.List(t.Context(), g.Fence.Shard, "", 0, 0)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, c := range []struct {
		name string
		do   func()
		want int
	}{
		{"the writer's own changes", func() { readAll(writer) }, 0},
		{"heads of 10 shards, members and owners", func() { readAll(reader) }, 2},
		{"the same again", func() { readAll(reader) }, 0},
		{"a heartbeat", func() {
			if err := s.Beat(t.Context()); err != nil {
				t.Fatal(err)
			}
			readAll(reader)
		}, 0},
		{"another commit", func() {
			sqlfault.Commit(t, s, sqlfault.AppendOf(granted[0].Fence, 2, []byte("entry")))
			readAll(reader)
			readAll(writer)
		}, 1},
		{"another process", func() { readAll(open(t, dsn, Options{})) }, 1}, // opening is a barrier for the view
	} {
		before := count()
		c.do()
		if n := count() - before; n != c.want {
			t.Errorf("reading %s took %d barriers, want %d", c.name, n, c.want)
		}
	}
}

// TestReadsSurviveKill kills the server while many processes commit and others read. Data that a
// reader saw must exist after the restart. Without barriers, the test fails in most rounds if a
// flush takes 60 ms, but in few rounds on a fast disk. TestReadIsDurable does not depend on chance.
func TestReadsSurviveKill(t *testing.T) {
	t.Parallel()
	server := servers.New(t, servers.MariaDB, nil)
	dsn := server.Database(t)
	if err := Migrate(t.Context(), dsn.Reveal(), nil); err != nil {
		t.Fatal(err)
	}
	for round := range *roundsFlag {
		seen := readUntilKilled(t, server, dsn, fmt.Sprint("round", round))
		if err := server.Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
		b, err := Open(t.Context(), dsn.Reveal(), fmt.Sprint("round", round), nil)
		if err != nil {
			t.Fatal(err)
		}
		if now := shown(t, b); seen.beyond(now) {
			t.Errorf("round %d: readers saw %+v, and the server has %+v", round, seen, now)
		} else {
			t.Logf("round %d: readers saw %d commits and token %d", round, seen.commits(), seen.token)
		}
		b.Close()
	}
}

// sight is the state of a namespace that a reader saw.
type sight struct {
	token driver.Token // the highest
	heads map[driver.ShardID]driver.Seq
}

func (s sight) commits() (n driver.Seq) {
	for seq := range maps.Values(s.heads) {
		n += seq
	}
	return n
}

// beyond reports whether s contains something that now lacks.
func (s sight) beyond(now sight) bool {
	for shard, seq := range s.heads {
		if seq > now.heads[shard] {
			return true
		}
	}
	return s.token > now.token
}

func shown(t *testing.T, b driver.Backend) sight {
	t.Helper()
	view, err := b.Observe(t.Context(), driver.ObserveQuery{})
	if err != nil {
		t.Fatal(err)
	}
	tail, err := b.TailLog(t.Context(), "", 1)
	if err != nil {
		t.Fatal(err)
	}
	s := sight{heads: map[driver.ShardID]driver.Seq{}}
	for _, shard := range view.Shards {
		s.token = max(s.token, shard.Owner.Token)
	}
	for _, h := range tail.Heads {
		s.heads[h.Shard] = h.Head.Seq
	}
	return s
}

// readUntilKilled returns the writers' commits that readers saw until the server was killed.
func readUntilKilled(t *testing.T, server *servers.Server, dsn servers.DSN, namespace string) sight {
	const writers, enough = 24, 100
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	openNew := func(o Options) driver.Backend {
		b, err := Open(ctx, dsn.Reveal(), namespace, &o)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	writer := openNew(Options{Create: true, MaxConns: writers + 1})
	defer writer.Close()
	observer, tailer := openNew(Options{PollPeriod: time.Millisecond}), openNew(Options{PollPeriod: time.Millisecond})
	defer observer.Close()
	defer tailer.Close()

	seen := sight{heads: map[driver.ShardID]driver.Seq{}}
	kill := make(chan struct{})
	var once sync.Once
	var mu sync.Mutex
	pages := 0
	note := func(look func()) {
		mu.Lock()
		defer mu.Unlock()
		look()
		if pages++; pages == enough {
			once.Do(func() { close(kill) })
		}
	}
	s := sqlfault.Join(t, writer, "n1")
	granted, _ := sqlfault.Acquire(t, s, sqlfault.Claims(writers+1))
	var all sync.WaitGroup
	for i := range writers {
		all.Go(func() {
			for number := driver.WriteNo(1); ; number++ {
				res, err := s.Commit(ctx, []driver.Write{sqlfault.AppendOf(granted[i].Fence, number, []byte("entry"))})
				if err != nil || res[0].Err != nil {
					return
				}
			}
		})
	}
	all.Go(func() {
		for fence := granted[writers].Fence; ; {
			res, err := s.Transfer(ctx, []driver.Transfer{{Fence: fence, To: s.ID()}})
			if err != nil || res[0].Err != nil {
				return
			}
			fence = res[0].Fence
		}
	})
	all.Go(func() {
		for at := driver.Cursor(""); ; {
			view, err := observer.Observe(ctx, driver.ObserveQuery{Since: at})
			if err != nil {
				return
			}
			at = view.Cursor
			note(func() {
				for _, shard := range view.Shards {
					seen.token = max(seen.token, shard.Owner.Token)
				}
			})
		}
	})
	all.Go(func() {
		for at := driver.Cursor(""); ; {
			page, err := tailer.TailLog(ctx, at, 1000)
			if err != nil {
				return
			}
			at = page.Cursor
			note(func() {
				for _, e := range page.Entries {
					seen.heads[e.Shard] = max(seen.heads[e.Shard], e.Seq)
				}
			})
		}
	})
	select {
	case <-kill:
	case <-ctx.Done():
	}
	if err := errors.Join(ctx.Err(), server.Kill(context.WithoutCancel(ctx))); err != nil {
		t.Error(err)
	}
	cancel()
	all.Wait()
	return seen
}
