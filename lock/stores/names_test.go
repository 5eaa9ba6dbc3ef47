package stores_test

import (
	"flag"
	"fmt"
	"log/slog"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/proof/fleet"
	"github.com/tenure-go/tenure/lock"
)

var used = flag.Int("names", 0, "how many names are used once, on every store; 0: 5000, on SQLite alone")

const (
	lockers = 256         // at the same time
	maxGrew = 2 << 20     // bytes of heap
	before  = 2 * lockers // names before the heap is measured
)

// TestNames locks each of many names once. Afterwards, neither the store nor the heap of any
// process, whether it locks or only watches, contains anything per name.
func TestNames(t *testing.T) {
	for _, at := range fleet.Places() {
		t.Run(at.Name, func(t *testing.T) {
			n := *used
			switch {
			case at.Name == "zookeeper":
				t.Skip("ZooKeeper keeps three nodes for each name, as package lock says")
			case n == 0 && at.Name != "sqlite":
				t.Skip("-names is not set")
			case n == 0:
				n = 5000
			}
			store := at.New(t)
			judge := store.Open(t, "names")
			locks, watches := locksOf(t, store, "locks"), locksOf(t, store, "watches")
			use(t, watches, "watches", 1) // it joins
			use(t, locks, "before", before)
			records0, heap0 := len(records(t, judge)), heap()
			from := time.Now()
			use(t, locks, "name", n)
			took := time.Since(from)
			records1, heap1 := len(records(t, judge)), heap()
			t.Logf("%d names in %v, %.0f a second: %d records before, %d after; %d bytes of heap before, %d after (%+.2f a name)",
				n, took.Round(time.Millisecond), float64(n)/took.Seconds(), records0, records1, heap0, heap1,
				float64(heap1-heap0)/float64(n))
			// Records that other callers release during a removal stay until the next removal.
			if most := driver.MaxFreeLocks + lockers; records1 > most {
				t.Errorf("%d names left %d records; the bound is %d", n, records1, most)
			}
			if heap1-heap0 > maxGrew {
				t.Errorf("%d names took %d bytes of heap; the bound is %d", n, heap1-heap0, maxGrew)
			}
			runtime.KeepAlive(watches)
		})
	}
}

func locksOf(t *testing.T, s *fleet.Store, node string) *lock.Locks {
	t.Helper()
	l, err := lock.New(s.Open(t, "names"), &core.Options{Node: node, LockDir: "none", Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return l
}

func use(t *testing.T, l *lock.Locks, prefix string, n int) {
	t.Helper()
	var next atomic.Int64
	var group sync.WaitGroup
	for range lockers {
		group.Go(func() {
			for i := next.Add(1) - 1; i < int64(n) && !t.Failed(); i = next.Add(1) - 1 {
				k, err := l.Lock(t.Context(), fmt.Sprintf("%s-%d", prefix, i))
				if err != nil {
					t.Error(err)
					return
				}
				if err := k.Unlock(t.Context()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	group.Wait()
	if t.Failed() {
		t.FailNow()
	}
}

// heap returns the reachable bytes, once goroutines and views have caught up.
func heap() int64 {
	time.Sleep(500 * time.Millisecond)
	var m runtime.MemStats
	for range 2 {
		runtime.GC()
	}
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
