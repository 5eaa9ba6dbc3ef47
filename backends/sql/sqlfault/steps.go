package sqlfault

import (
	"context"
	"crypto/rand"
	"fmt"
	"testing"
	"time"

	"github.com/tenure-go/tenure/core/driver"
)

// Join joins under a new session id, with a TTL of 10 seconds.
func Join(t testing.TB, b driver.Backend, node string) driver.Session {
	t.Helper()
	s, err := b.Join(t.Context(), driver.Member{Session: driver.SessionID(rand.Text()), Node: node, TTL: 10 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// Claims returns claims on n shards without a record.
func Claims(n int) []driver.Claim {
	c := make([]driver.Claim, n)
	for i := range c {
		c[i].Shard = driver.ShardID(fmt.Sprintf("shard-%05d", i))
	}
	return c
}

// Acquire makes claims that must all be granted, and returns what they return, and
// the claims that would follow.
func Acquire(t testing.TB, s driver.Session, batch []driver.Claim) (results []driver.AcquireResult, next []driver.Claim) {
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

// AppendOf is a write that appends the payloads.
func AppendOf(f driver.Fence, number driver.WriteNo, payloads ...[]byte) driver.Write {
	w := driver.Write{Fence: f, Number: number, Nonce: 7}
	for _, p := range payloads {
		w.Ops = append(w.Ops, driver.Op{Kind: driver.OpAppend, Value: p})
	}
	return w
}

// Commit makes one write that must succeed.
func Commit(t testing.TB, s driver.Session, w driver.Write) driver.CommitResult {
	t.Helper()
	res, err := s.Commit(t.Context(), []driver.Write{w})
	if err != nil || res[0].Err != nil {
		t.Fatal(err, res)
	}
	return res[0]
}

// StrikeWhileWriting appends until a number of strikes has hit something, and then
// reads what is there.
func StrikeWhileWriting(t *testing.T, b driver.Backend, strikes int, strike func(ctx context.Context) (hit int, err error)) Outcomes {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	w, err := NewWriter(ctx, b, "struck")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		hits := 0
		for hits < strikes {
			n, err := strike(ctx)
			if err != nil {
				done <- err
				return
			}
			hits += n
		}
		done <- nil
	}()
	for writing := true; writing; {
		if err := w.Append(ctx); err != nil {
			t.Fatal(err)
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
