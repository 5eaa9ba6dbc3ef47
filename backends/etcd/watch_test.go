package etcd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/tenure-go/tenure/backends/kv"
	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/proof/ample"
	"github.com/tenure-go/tenure/internal/proof/servers"
	"github.com/tenure-go/tenure/internal/proof/sqlfault"
)

var errEnough = errors.New("the test has seen enough")

// watched returns a client of a server, and a store on it.
func watched(t *testing.T, s *servers.Server) (*clientv3.Client, *store) {
	t.Helper()
	client := newClient(t, config(t, s))
	opts, err := (&Options{MaxTxnOps: 100}).withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	st, err := connect(t.Context(), client, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = st.Close() })
	return client, st
}

// TestWatchInParts: a watch that catches up with many large values gets them in parts of whole
// transactions. The test does not run in parallel with TestWatch, which compacts the history of the
// shared server.
func TestWatchInParts(t *testing.T) {
	const txns, keys, size = 12, 4, 300 << 10 // a transaction takes most of a request
	client, st := watched(t, pool.Get(t, servers.Etcd, nil))
	first, err := client.Put(t.Context(), "parts", "v")
	if err != nil {
		t.Fatal(err)
	}
	for i := range txns {
		var puts []clientv3.Op
		for k := range keys {
			puts = append(puts, clientv3.OpPut(fmt.Sprintf("parts/%d/%d", i, k), strings.Repeat("x", size)))
		}
		if _, err := client.Txn(t.Context()).Then(puts...).Commit(); err != nil {
			t.Fatal(err)
		}
	}
	n, reached := 0, kv.Rev(first.Header.Revision)
	err = st.Watch(bounded(t, ample.Time), []string{"parts/"}, reached, func(rev kv.Rev, changes []kv.Change) error {
		bytes, of := 0, map[kv.Rev]int{}
		for _, c := range changes {
			if c.Rev <= reached || c.Rev > rev {
				t.Errorf("a change of revision %d between %d and %d", c.Rev, reached, rev)
			}
			bytes += len(c.Value)
			of[c.Rev]++
		}
		for at, got := range of {
			if got != keys {
				t.Errorf("%d of the %d changes of revision %d came together", got, keys, at)
			}
		}
		if bytes > 4<<20 {
			t.Errorf("%d bytes came at once", bytes)
		}
		reached = rev
		if n += len(changes); n == txns*keys {
			return errEnough
		}
		return nil
	})
	if !errors.Is(err, errEnough) {
		t.Errorf("%d changes, %v", n, err)
	}
}

// TestWatch follows several prefixes, each in order. It detects a revision that the store has not
// reached yet, or no longer has.
func TestWatch(t *testing.T) {
	t.Parallel()
	client, st := watched(t, pool.Get(t, servers.Etcd, nil))
	put := func(key string) kv.Rev {
		t.Helper()
		resp, err := client.Put(t.Context(), key, "v")
		if err != nil {
			t.Fatal(err)
		}
		return kv.Rev(resp.Header.Revision)
	}
	before := put("watch/other")
	for _, key := range []string{"watch/a/1", "watch/b/1", "watch/c/1", "watch/a/2", "watch/b/2", "watch/a10"} {
		put(key)
	}
	seen := map[string][]string{}
	n, reached := 0, kv.Rev(0)
	err := st.Watch(bounded(t, ample.Time), []string{"watch/a/", "watch/b/"}, before, func(
		rev kv.Rev, changes []kv.Change,
	) error {
		if rev < reached {
			t.Errorf("reached %d after %d", rev, reached)
		}
		reached = rev
		for _, c := range changes {
			n++
			seen[c.Key[:8]] = append(seen[c.Key[:8]], c.Key)
		}
		if n == 4 {
			return errEnough
		}
		return nil
	})
	if !errors.Is(err, errEnough) || !slices.Equal(seen["watch/a/"], []string{"watch/a/1", "watch/a/2"}) ||
		!slices.Equal(seen["watch/b/"], []string{"watch/b/1", "watch/b/2"}) {
		t.Errorf("got %v, %v", seen, err)
	}
	never := func(kv.Rev, []kv.Change) error { return errors.New("called") }
	if err := st.Watch(bounded(t, ample.Time), []string{"watch/a/"}, before+1_000_000_000,
		never); !errors.Is(err, kv.ErrCompacted) {
		t.Errorf("from a revision to come: %v, want ErrCompacted", err)
	}
	if _, err := client.Compact(t.Context(), int64(before)+1); err != nil {
		t.Fatal(err)
	}
	if err := st.Watch(bounded(t, ample.Time), []string{"watch/a/"}, before-1,
		never); !errors.Is(err, kv.ErrCompacted) {
		t.Errorf("from a compacted revision: %v, want ErrCompacted", err)
	}
	// The context has no deadline, because the server would know the deadline, and might see it
	// pass before the client does.
	ctx, cancel := context.WithCancel(t.Context())
	defer time.AfterFunc(50*time.Millisecond, cancel).Stop()
	if err := st.Watch(ctx, []string{"watch/none/"}, before+2, never); err == nil || ctx.Err() == nil {
		t.Errorf("at the end of its context: %v", err)
	}
}

// TestWatchPosition: if a watch is behind, etcd answers in parts, each with its newest revision in
// the header. A reader continues from the events that it received for every prefix (O1).
func TestWatchPosition(t *testing.T) {
	t.Parallel()
	// The test uses a separate server, because another test compacts revisions that this test
	// reads.
	client, st := watched(t, servers.New(t, servers.Etcd, &servers.Options{NoSync: true}))
	first, err := client.Put(t.Context(), "position/first", "v")
	if err != nil {
		t.Fatal(err)
	}
	prefixes := []string{"position/a/", "position/b/"}
	const writers, each = 16, 160 // etcd puts at most 1,000 revisions into an answer
	revs, failed := make([][]kv.Rev, writers), make([]error, writers)
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for range each {
				resp, err := client.Put(t.Context(), prefixes[w%2]+strconv.Itoa(w), "v")
				if err != nil {
					failed[w] = err
					return
				}
				revs[w] = append(revs[w], kv.Rev(resp.Header.Revision))
			}
		})
	}
	wg.Wait()
	if err := errors.Join(failed...); err != nil {
		t.Fatal(err)
	}
	all := slices.Sorted(slices.Values(slices.Concat(revs...)))
	delivered, answers := 0, 0
	err = st.Watch(bounded(t, ample.Time), prefixes, kv.Rev(first.Header.Revision), func(
		rev kv.Rev, changes []kv.Change,
	) error {
		answers++
		delivered += len(changes)
		if upTo, _ := slices.BinarySearch(all, rev+1); upTo > delivered {
			t.Errorf("after answer %d the position is %d, and %d of the %d events up to it were delivered", answers,
				rev, delivered, upTo)
			return errEnough
		}
		if delivered == len(all) {
			return errEnough
		}
		return nil
	})
	if !errors.Is(err, errEnough) || answers < 2 {
		t.Errorf("%d events in %d answers, %v; want several answers", delivered, answers, err)
	}
}

// TestMinority: a member without a majority refuses calls immediately and without any effect. It
// ends its watches instead of falling silent.
func TestMinority(t *testing.T) {
	t.Parallel()
	cluster := servers.NewCluster(t, servers.Etcd, 3, &servers.Options{NoSync: true})
	members := cluster.Members()
	b := openOn(t, config(t, members[2]), Options{})
	s := sqlfault.Join(t, b, "n1")
	view, err := b.Observe(t.Context(), driver.ObserveQuery{})
	if err != nil {
		t.Fatal(err)
	}
	watched := make(chan error, 1)
	go func() {
		for since := view.Cursor; ; {
			view, err := b.Observe(bounded(t, ample.Time), driver.ObserveQuery{Since: since})
			if err != nil {
				watched <- err
				return
			}
			since = view.Cursor
		}
	}()
	for _, m := range members[:2] {
		if err := m.Kill(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	for ctx := bounded(t, ample.Time); ; {
		call, cancel := context.WithTimeout(ctx, time.Second)
		err := s.Beat(call)
		cancel()
		if errors.Is(err, driver.ErrRetry) && strings.Contains(err.Error(), "no leader") {
			break
		}
		if ctx.Err() != nil {
			t.Fatalf("a heartbeat: %v, want ErrRetry for want of a leader", err)
		}
	}
	if err := <-watched; errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the watch fell silent: %v", err)
	}
}
