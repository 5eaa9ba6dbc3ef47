package redis

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/tenure-go/tenure/backends/kv"
	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/proof/servers"
	"github.com/tenure-go/tenure/internal/proof/sqlfault"
)

// put writes a member's record, and returns its revision.
func put(t *testing.T, s *store, session driver.SessionID) kv.Rev {
	t.Helper()
	out, err := s.Apply(t.Context(), &kv.Batch{Txns: []kv.Txn{{
		Ops: []kv.Op{{Key: s.names.keys.Member(session), Value: []byte("x")}},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	return out.Rev
}

// TestGap: a watch from before messages that were trimmed says so, whether or not later
// ones are there; one from behind them goes on.
func TestGap(t *testing.T) {
	t.Parallel()
	c := config(t, pool.Get(t, servers.Redis, nil))
	admin := newAdmin(t, c)
	s := openOn(t, c, Options{}).store
	first := put(t, s, "a")
	last := put(t, s, "b")
	watch := func(after kv.Rev) error {
		ctx := bounded(t, 10*time.Second)
		err := s.Watch(ctx, []string{s.names.keys.State()}, after, func(kv.Rev, []kv.Change) error { return errFound })
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return err
	}
	if err := watch(first); !errors.Is(err, errFound) {
		t.Errorf("with nothing trimmed: %v", err)
	}
	if err := admin.XTrimMaxLen(t.Context(), s.names.key("state"), 0).Err(); err != nil {
		t.Fatal(err)
	}
	if err := watch(first); !errors.Is(err, kv.ErrCompacted) {
		t.Errorf("with all messages trimmed: %v; want ErrCompacted", err)
	}
	put(t, s, "c")
	if err := watch(first); !errors.Is(err, kv.ErrCompacted) {
		t.Errorf("with a message after those that were trimmed: %v; want ErrCompacted", err)
	}
	if err := watch(last); !errors.Is(err, errFound) {
		t.Errorf("from behind those that were trimmed: %v", err)
	}
}

var errFound = errors.New("found")

// TestLargeRevisions: numbers of the scripts are exact up to 2^53.
func TestLargeRevisions(t *testing.T) {
	t.Parallel()
	c := config(t, pool.Get(t, servers.Redis, nil))
	b := openOn(t, c, Options{})
	const rev = 1<<52 + 1
	if err := newAdmin(t, c).HSet(t.Context(), b.store.names.key("records"), "rev", rev).Err(); err != nil {
		t.Fatal(err)
	}
	s := sqlfault.Join(t, b, "n1")
	view, err := b.Observe(t.Context(), driver.ObserveQuery{})
	if err != nil {
		t.Fatal(err)
	}
	granted, _ := sqlfault.Acquire(t, s, sqlfault.Claims(1))
	if token := granted[0].Fence.Token; token != rev+2 {
		t.Errorf("token %d; want %d", token, rev+2)
	}
	next, err := b.Observe(bounded(t, 10*time.Second), driver.ObserveQuery{Since: view.Cursor})
	if err != nil || len(next.Shards) != 1 || next.Shards[0].Owner.Token != granted[0].Fence.Token {
		t.Errorf("the view after a grant: %+v, %v", next, err)
	}
}
