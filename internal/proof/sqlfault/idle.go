package sqlfault

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/tenure-go/tenure/core/driver"
)

// CheckIdleCost counts the calls of an observing process that owns 1 shard, and of an observing
// process that owns 10,000 shards. The open function opens a namespace with a poll period of 10 s.
func CheckIdleCost(t *testing.T, open func(namespace string, calls *Calls) driver.Backend) {
	t.Helper()
	const heartbeats = 20
	cost := func(namespace string, shards int) (reads, writes int64) {
		calls := new(Calls)
		b := open(namespace, calls)
		defer b.Close() //nolint:errcheck // the test is over
		s := Join(t, b, "n1")
		Acquire(t, s, Claims(shards))
		view, err := b.Observe(t.Context(), driver.ObserveQuery{})
		if err != nil {
			t.Fatal(err)
		}
		reads, writes = calls.Reads.Load(), calls.Writes.Load()
		for range heartbeats {
			if err := s.Beat(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := b.Observe(ctx, driver.ObserveQuery{Since: view.Cursor}); !errors.Is(err,
			context.DeadlineExceeded) {
			t.Fatal(err)
		}
		return calls.Reads.Load() - reads, calls.Writes.Load() - writes
	}
	for _, shards := range []int{1, 10_000} {
		reads, writes := cost(fmt.Sprint("of", shards), shards)
		t.Logf("%d shards, %d heartbeats and one poll: %d reads, %d writes", shards, heartbeats, reads, writes)
		if reads > 1 || writes != heartbeats {
			t.Errorf("%d shards: %d reads and %d writes, want at most 1 and %d", shards, reads, writes, heartbeats)
		}
	}
}

// Heartbeats makes members send heartbeats for some rounds, several members at a time.
func Heartbeats(t testing.TB, b driver.Backend, members, rounds int) {
	t.Helper()
	var beats sync.WaitGroup
	const together = 4
	for from := range together {
		var sessions []driver.Session
		for i := from; i < members; i += together {
			sessions = append(sessions, Join(t, b, fmt.Sprint("n", i)))
		}
		beats.Go(func() {
			for range rounds {
				for _, s := range sessions {
					if err := s.Beat(t.Context()); err != nil {
						t.Error(err)
						return
					}
				}
			}
		})
	}
	beats.Wait()
}
