package sqlfault

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/proof/ample"
)

// CheckStatements sends batches of writes of every kind to 4 and to 256 shards, and expects the
// same number of statements for both. The statements function returns the number of statements that
// have run on the backend's only write connection.
func CheckStatements(t *testing.T, b driver.Backend, statements func() int) {
	t.Helper()
	s := Join(t, b, "n1")
	granted, _ := Acquire(t, s, Claims(256))
	cost := func(granted []driver.AcquireResult, number driver.WriteNo, ops ...driver.Op) int {
		writes := make([]driver.Write, len(granted))
		for i, g := range granted {
			writes[i] = driver.Write{Fence: g.Fence, Number: number, Nonce: 1, Ops: ops}
		}
		before := statements()
		results, err := s.Commit(t.Context(), writes)
		for _, r := range results {
			err = errors.Join(err, r.Err)
		}
		if err != nil {
			t.Fatal(err)
		}
		return statements() - before
	}
	appended := driver.Op{Kind: driver.OpAppend, Value: []byte("entry")}
	ops := []driver.Op{
		appended,
		{Kind: driver.OpPut, Key: "new", Value: []byte("1"), IfVersion: driver.Absent},
		{Kind: driver.OpDelete, Key: "none", IfVersion: driver.Absent},
		{Kind: driver.OpDelete, Key: "any"},
	}
	few, many := granted[:4], granted[4:]
	for number, ops := range [][]driver.Op{{appended}, ops} {
		number := driver.WriteNo(number + 1)
		want, got := cost(few, number, ops...), cost(many, number, ops...)
		if want != got || want == 0 {
			t.Errorf("write %d to %d shards takes %d statements, and to %d shards %d", number, len(few), want, len(many), got)
		}
	}
}

// CheckLocked commits to 64 shards in one call while lock holds the row of one shard. The commits
// to the other shards must succeed, and the commit to the locked shard must get ErrRetry. A call
// with only the commit to the locked shard must wait, and must succeed when the row is unlocked.
func CheckLocked(t *testing.T, b driver.Backend, lock func(driver.Fence) (unlock func())) {
	t.Helper()
	const shards, locked, stale, unknown = 64, 20, 21, 22
	s := Join(t, b, "n1")
	granted, _ := Acquire(t, s, Claims(shards))
	writes := make([]driver.Write, shards)
	for i, g := range granted {
		writes[i] = AppendOf(g.Fence, 1, []byte("entry"))
	}
	writes[stale].Fence.Token++
	writes[unknown].Fence.Shard = "no-record"
	unlock := lock(granted[locked].Fence)
	// The test holds the lock until the call has returned, so a call that waits for the lock fails.
	ctx, cancel := context.WithTimeout(t.Context(), ample.Time)
	defer cancel()
	results, err := s.Commit(ctx, writes)
	if err != nil || len(results) != shards {
		t.Fatalf("the call answers %d results, %v", len(results), err)
	}
	wrong := map[int]error{locked: driver.ErrRetry, stale: driver.ErrFenced, unknown: driver.ErrFenced}
	for i, r := range results {
		if want := wrong[i]; !errors.Is(r.Err, want) || want == nil && r.Err != nil {
			t.Errorf("write %d answers %v, want %v", i, r.Err, want)
		}
		if want := (driver.Head{Number: 1, Seq: 1, Oldest: 1, Nonce: 7, Token: granted[i].Fence.Token}); wrong[i] == nil && r.Head != want {
			t.Errorf("write %d answers %+v, want %+v", i, r.Head, want)
		}
	}
	alone := make(chan driver.CommitResult, 1)
	send := func() {
		res, err := s.Commit(t.Context(), writes[locked:locked+1])
		if err != nil {
			res = []driver.CommitResult{{Err: err}}
		}
		alone <- res[0]
	}
	go send()
	select {
	case r := <-alone:
		t.Errorf("alone the write did not wait: %+v", r)
		go send()
	case <-time.After(100 * time.Millisecond):
	}
	unlock()
	r := <-alone
	for errors.Is(r.Err, driver.ErrRetry) { // it waited longer than the server's limit
		go send()
		r = <-alone
	}
	if r.Err != nil || r.Head.Number != 1 {
		t.Errorf("alone the write answers %+v", r)
	}
	for i, g := range granted {
		page, err := b.ReadLog(t.Context(), g.Fence.Shard, 0, 10)
		want := 1
		if i == stale || i == unknown {
			want = 0
		}
		if err != nil || len(page.Entries) != want {
			t.Errorf("the log of shard %d has %d entries, want %d: %v", i, len(page.Entries), want, err)
		}
	}
	if page, err := b.ReadLog(t.Context(), "no-record", 0, 10); err != nil || page.Head != (driver.Head{}) {
		t.Errorf("a shard without a record has the head %+v, %v", page, err)
	}
}
