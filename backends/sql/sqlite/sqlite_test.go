package sqlite_test

import (
	"context"
	"crypto/rand"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/tenure-go/tenure/backends/sql/sqlite"
	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/proof/sqlfault"
)

func dbPath(t testing.TB) string { return filepath.Join(t.TempDir(), "app.db") }

func open(t testing.TB, path string, o *sqlite.Options) *sqlite.Backend {
	t.Helper()
	b, err := sqlite.Open(t.Context(), path, "app", o)
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

func member(node string) driver.Member {
	return driver.Member{Session: driver.SessionID(rand.Text()), Node: node, TTL: 5 * time.Second}
}

func join(t testing.TB, b driver.Backend, node string) driver.Session {
	t.Helper()
	s, err := b.Join(t.Context(), member(node))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// acquire claims one shard that must be granted.
func acquire(t testing.TB, s driver.Session, shard driver.ShardID, seen driver.Owner) driver.AcquireResult {
	t.Helper()
	res, err := s.Acquire(t.Context(), []driver.Claim{{Shard: shard, Seen: seen}})
	if err != nil || res[0].Err != nil {
		t.Fatal(err, res)
	}
	return res[0]
}

func appendOf(f driver.Fence, number driver.WriteNo, payloads ...string) driver.Write {
	w := driver.Write{Fence: f, Number: number, Nonce: 7}
	for _, p := range payloads {
		w.Ops = append(w.Ops, driver.Op{Kind: driver.OpAppend, Value: []byte(p)})
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

func TestLife(t *testing.T) {
	t.Parallel()
	path := dbPath(t)
	b := open(t, path, nil)
	s := join(t, b, "n1")
	if err := s.Beat(t.Context()); err != nil {
		t.Fatal(err)
	}
	tail, err := b.TailLog(t.Context(), "", 10)
	if err != nil || !tail.Reset {
		t.Fatal(tail, err)
	}
	view, err := b.Observe(t.Context(), driver.ObserveQuery{})
	if err != nil || !view.Reset || len(view.Members) != 1 {
		t.Fatal(view, err)
	}
	got := acquire(t, s, "a", driver.Owner{})
	res := commit(t, s, driver.Write{Fence: got.Fence, Number: 1, Nonce: 1<<63 + 5, Ops: []driver.Op{
		{Kind: driver.OpPut, Key: "k/1", Value: []byte("v\x00")},
		{Kind: driver.OpPut, Key: "k/2"},
		{Kind: driver.OpAppend, Value: []byte("one")},
		{Kind: driver.OpAppend},
	}})
	want := driver.Head{Number: 1, Seq: 2, Oldest: 1, Nonce: 1<<63 + 5, Token: got.Fence.Token}
	if res.Head != want {
		t.Errorf("head %+v, want %+v", res.Head, want)
	}
	page, err := b.ReadLog(t.Context(), "a", 0, 10)
	if err != nil || len(page.Entries) != 2 || page.Head != want || string(page.Entries[0].Payload) != "one" {
		t.Errorf("page %+v, %v", page, err)
	}
	items, err := b.List(t.Context(), "a", "k/", 0, 0)
	if err != nil || len(items) != 2 || string(items[0].Value) != "v\x00" || items[0].Version != 1 {
		t.Errorf("items %+v, %v", items, err)
	}
	tail, err = b.TailLog(t.Context(), tail.Cursor, 10)
	if err != nil || tail.Reset || len(tail.Entries) != 2 {
		t.Errorf("tail %+v, %v", tail, err)
	}
	view, err = b.Observe(t.Context(), driver.ObserveQuery{Since: view.Cursor})
	if err != nil || view.Reset || len(view.Shards) != 1 || view.Shards[0].Owner.Token != got.Fence.Token {
		t.Errorf("view %+v, %v", view, err)
	}
	if err := s.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := s.Beat(t.Context()); !errors.Is(err, driver.ErrSessionLost) {
		t.Errorf("beat after close: %v", err)
	}
	view, err = b.Observe(t.Context(), driver.ObserveQuery{Since: view.Cursor})
	if err != nil || len(view.Gone) != 1 {
		t.Errorf("view %+v, %v", view, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
	defer cancel()
	if _, err := b.Observe(ctx, driver.ObserveQuery{Since: view.Cursor}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("observe without a change: %v", err)
	}
}

func TestNames(t *testing.T) {
	t.Parallel()
	path := dbPath(t)
	b := open(t, path, nil)
	db, err := sqlite.OpenDB(path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	sqlfault.CheckNames(t, b, db)
}

func TestChunks(t *testing.T) {
	t.Parallel()
	path := dbPath(t)
	b := open(t, path, nil)
	db, err := sqlite.OpenDB(path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	sqlfault.CheckChunks(t, b, db)
}
