package sqlfault

import (
	"context"
	"crypto/rand"
	stdsql "database/sql"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/proof/ample"
)

// Join joins with a new session id and a TTL of 10 seconds.
func Join(t testing.TB, b driver.Backend, node string) (s driver.Session) {
	t.Helper()
	err := decided(func() (err error) {
		s, err = b.Join(t.Context(), driver.Member{Session: driver.SessionID(rand.Text()), Node: node,
			TTL: 10 * time.Second})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// Open opens a backend, and closes it when the test ends.
func Open[B driver.Backend](t testing.TB, open func(ctx context.Context) (B, error)) (b B) {
	t.Helper()
	err := decided(func() (err error) {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		b, err = open(ctx)
		return err
	})
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

// decided repeats a call, at most ten times, until its outcome is known. On a busy machine, a
// cluster may elect another leader during any call.
func decided(call func() error) error {
	err := call()
	for range 9 {
		if !errors.Is(err, driver.ErrRetry) && !driver.Unknown(err) {
			break
		}
		time.Sleep(500 * time.Millisecond)
		err = call()
	}
	return err
}

// Update changes a member that has just joined.
func Update(t testing.TB, s driver.Session) {
	t.Helper()
	if err := s.Update(t.Context(), driver.MemberState{Draining: true, Update: 1}); err != nil {
		t.Fatal(err)
	}
}

// Claims returns claims on n shards that have no record.
func Claims(n int) []driver.Claim {
	c := make([]driver.Claim, n)
	for i := range c {
		c[i].Shard = driver.ShardID(fmt.Sprintf("shard-%05d", i))
	}
	return c
}

// Acquire makes claims, all of which the store must grant. It returns the results, and claims that
// take over the same shards from the new owner.
func Acquire(
	t testing.TB, s driver.Session, batch []driver.Claim,
) (results []driver.AcquireResult, next []driver.Claim) {
	t.Helper()
	err := decided(func() (err error) {
		results, err = s.Acquire(t.Context(), batch)
		for i := range results {
			r := &results[i]
			var held *driver.HeldError
			if errors.As(r.Err, &held) && held.Owner.Session == s.ID() { // by a call of unknown outcome
				*r = driver.AcquireResult{Fence: driver.Fence{Shard: held.Shard, Session: s.ID(), Token: held.Owner.Token}}
			}
			err = errors.Join(err, r.Err)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range results {
		next = append(next, driver.Claim{Shard: r.Fence.Shard,
			Seen: driver.Owner{Session: s.ID(), Token: r.Fence.Token}})
	}
	return results, next
}

// AppendOf returns a write that appends the payloads.
func AppendOf(f driver.Fence, number driver.WriteNo, payloads ...[]byte) driver.Write {
	w := driver.Write{Fence: f, Number: number, Nonce: 7}
	for _, p := range payloads {
		w.Ops = append(w.Ops, driver.Op{Kind: driver.OpAppend, Value: p})
	}
	return w
}

// PutOf returns a write that puts items.
func PutOf(f driver.Fence, number driver.WriteNo, keys ...string) driver.Write {
	w := driver.Write{Fence: f, Number: number, Nonce: 7}
	for _, key := range keys {
		w.Ops = append(w.Ops, driver.Op{Kind: driver.OpPut, Key: key, Value: []byte("v")})
	}
	return w
}

// Commit makes one write, which must succeed.
func Commit(t testing.TB, s driver.Session, w driver.Write) driver.CommitResult {
	t.Helper()
	var result driver.CommitResult
	unknown := false // a call has failed with an unknown outcome
	err := decided(func() error {
		res, err := s.Commit(t.Context(), []driver.Write{w})
		if err == nil {
			result, err = res[0], res[0].Err
		}
		var conflict *driver.ConflictError
		if unknown && errors.As(err, &conflict) && conflict.Head.Number == w.Number && conflict.Head.Nonce == w.Nonce {
			result, err = driver.CommitResult{Head: conflict.Head}, nil
		}
		unknown = unknown || driver.Unknown(err)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return result
}

// CheckChunks reads a log in which each commit has several entries. The reads use pages that are
// smaller than a commit, and handwritten queries. It also reads after a trim in the middle of a
// commit, and after damage.
func CheckChunks(t *testing.T, b driver.Backend, db *stdsql.DB) {
	t.Helper()
	s := Join(t, b, "n1")
	granted, _ := Acquire(t, s, Claims(1))
	f := granted[0].Fence
	start, err := b.TailLog(t.Context(), "", 1)
	if err != nil {
		t.Fatal(err)
	}
	var tail []driver.Entry
	Commit(t, s, AppendOf(f, 1, []byte("1"), nil, []byte("3"), []byte("4")))
	Commit(t, s, AppendOf(f, 2, []byte("5")))
	Commit(t, s, AppendOf(f, 3, []byte("6"), []byte("7")))
	for at := start.Cursor; ; {
		page, err := b.TailLog(t.Context(), at, 3)
		if err != nil || page.Reset || len(page.Entries) == 0 || len(page.Entries) > 3 {
			t.Fatalf("tailing: %+v, %v", page, err)
		}
		tail, at = append(tail, page.Entries...), page.Cursor
		if len(tail) >= 7 {
			break
		}
	}
	if show(tail) != "1:1 2:1 3:1 4:1 5:2 6:3 7:3 " || len(tail[1].Payload) > 0 || string(tail[3].Payload) != "4" {
		t.Errorf("tailed %s: %v", show(tail), tail)
	}
	if page, err := b.ReadLog(t.Context(), f.Shard, 1, 4); err != nil || show(page.Entries) != "2:1 3:1 4:1 5:2 " {
		t.Errorf("entries 2 to 5: %s, %v", show(page.Entries), err)
	}
	trim := driver.Write{Fence: f, Number: 4, Nonce: 7, Ops: []driver.Op{{Kind: driver.OpTrim, Through: 6}}}
	Commit(t, s, trim)
	if _, err := b.ReadLog(t.Context(), f.Shard, 5, 4); !errors.Is(err, driver.ErrTrimmed) {
		t.Errorf("reading entry 6, which is trimmed: %v", err)
	}
	if page, err := b.ReadLog(t.Context(), f.Shard, 6, 4); err != nil || show(page.Entries) != "7:3 " {
		t.Errorf("the remaining log: %s, %v", show(page.Entries), err)
	}
	if page, err := b.TailLog(t.Context(), start.Cursor, 1); err != nil || !page.Reset {
		t.Errorf("tailing from before the trim: %+v, %v", page, err)
	}
	Commit(t, s, AppendOf(f, 5, []byte("ate"), nil))
	rows, err := db.QueryContext(t.Context(), "SELECT seq, token, number, payload FROM tenure_entries ORDER BY seq")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	var seen []driver.Entry
	for rows.Next() {
		var e driver.Entry
		if err := rows.Scan(&e.Seq, &e.Token, &e.Number, &e.Payload); err != nil {
			t.Fatal(err)
		}
		if e.Token != f.Token {
			t.Errorf("token %d, want %d", e.Token, f.Token)
		}
		seen = append(seen, e)
	}
	if err := rows.Err(); err != nil || show(seen) != "6:3 7:3 8:5 9:5 " || string(seen[2].Payload) != "ate" {
		t.Errorf("the view shows %s, %v: %v", show(seen), err, seen)
	}
	page, err := b.TailLog(t.Context(), "", 1)
	if err != nil {
		t.Fatal(err)
	}
	Commit(t, s, AppendOf(f, 6, []byte("10")))
	if _, err := db.ExecContext(t.Context(), "UPDATE tenure_logs SET cuts = '[0,9]' WHERE last_seq = 10"); err != nil {
		t.Fatal(err)
	}
	if _, err := b.ReadLog(t.Context(), f.Shard, 9, 1); err == nil || !strings.Contains(err.Error(), "damaged") {
		t.Errorf("reading a damaged row: %v", err)
	}
	if page, err := b.TailLog(t.Context(), page.Cursor, 1); err != nil || !page.Reset {
		t.Errorf("tailing a damaged row: %+v, %v", page, err)
	}
}

func show(entries []driver.Entry) string {
	var text strings.Builder
	for _, e := range entries {
		fmt.Fprintf(&text, "%d:%d ", e.Seq, e.Number)
	}
	return text.String()
}

// FaultWhileWriting appends until some faults have hit a write, and then reads the log.
func FaultWhileWriting(
	t *testing.T, b driver.Backend, faults int64, hit func(ctx context.Context) (hits int, err error),
) Outcomes {
	t.Helper()
	return faultWhileWriting(t, b, faults, 0, hit, func(Outcomes) bool { return true })
}

// writesAgain waits until another write has succeeded.
func writesAgain(ctx context.Context, wrote <-chan struct{}) {
	select {
	case <-wrote: // the write may be from before the fault
	default:
	}
	select {
	case <-wrote:
	case <-ctx.Done():
	}
}

// faultWhileWriting is like FaultWhileWriting, but injects faults until enough returns true. Unless
// it is 0, patience limits each of the writer's attempts.
func faultWhileWriting(
	t *testing.T, b driver.Backend, faults int64, patience time.Duration,
	hit func(ctx context.Context) (hits int, err error), enough func(Outcomes) bool,
) Outcomes {
	t.Helper()
	ctx, end := context.WithCancelCause(t.Context())
	defer end(nil)
	hung := time.AfterFunc(ample.Time, func() { end(fmt.Errorf("no fault hits within %v", ample.Time)) })
	defer hung.Stop()
	w, err := NewWriter(ctx, b, "faulted")
	if err != nil {
		t.Fatal(err)
	}
	w.patience = patience
	var hits atomic.Int64
	var last atomic.Bool
	done := make(chan error, 1)
	// The writer writes at least one entry between two faults. A server that failed again as soon
	// as it was back would serve no client.
	wrote := make(chan struct{}, 1)
	go func() {
		for !last.Load() {
			n, err := hit(ctx)
			if err != nil {
				end(err) // otherwise, the writer would wait for a server that is gone
				done <- err
				return
			}
			hits.Add(int64(n))
			if n > 0 {
				writesAgain(ctx, wrote)
			}
		}
		done <- nil
	}()
	for writing, before := true, int64(0); writing; {
		if err := w.Append(ctx); err != nil {
			t.Fatalf("%v (%v), after %+v", err, context.Cause(ctx), w.Outcomes)
		}
		n := hits.Load()
		last.Store(n >= faults && enough(w.Outcomes))
		if n > before {
			hung.Reset(ample.Time)
			before = n
		}
		select {
		case wrote <- struct{}{}:
		default:
		}
		select {
		case err := <-done:
			if err != nil {
				t.Fatal(err)
			}
			writing = false
		default:
		}
	}
	if err := w.Append(ctx); err != nil {
		t.Fatal(err)
	}
	if err := w.Check(ctx); err != nil {
		t.Error(err)
	}
	t.Logf("%+v", w.Outcomes)
	if w.Refused+w.Unknown == 0 || w.Acknowledged == 0 {
		t.Errorf("%+v proves nothing", w.Outcomes)
	}
	return w.Outcomes
}
