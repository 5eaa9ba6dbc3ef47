// Package garbage has one compromised member write garbage to a store, as fast as it
// can, beside members run by core: shards' records, heads, log entries, and its own
// member's and heartbeat's records. The others keep their leases on the shards that it
// leaves alone, their memory stays bounded, and their log names each damaged record once
// a minute at most. It is for the tests of backends.
package garbage

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tenure-go/tenure/conformance"
	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/core/driver"
)

// ForFlag is the flag that says for how long garbage is written.
const ForFlag = "garbage.for"

// Flag defines ForFlag, 3 s unless it is set. A package's tests define it once.
func Flag() *time.Duration {
	return flag.Duration(ForFlag, 3*time.Second, "how long a compromised member writes garbage")
}

const (
	ttl       = 3 * time.Second
	patience  = 30 * time.Second
	attacked  = 4
	untouched = 4
	growth    = 50 << 20 // bytes of heap
)

// Test runs two members and, for the time given, a third that writes garbage through
// store.Tamper, which has the rights of a member, with so many writers at once. Not for a
// test that runs beside others: it looks at the heap.
func Test(t *testing.T, store *conformance.Store, writers int, during time.Duration) {
	t.Helper()
	w := &witness{lines: make(map[string][]time.Time), seqs: make(map[string]driver.Seq)}
	var good, bad []string
	for i := range untouched {
		good = append(good, fmt.Sprint("good", i))
	}
	for i := range attacked {
		bad = append(bad, fmt.Sprint("bad", i))
	}
	var members []*core.Elector
	for i := range 2 {
		members = append(members, w.run(t, store, fmt.Sprint("honest", i), append(good, bad...)))
	}
	w.await(t, "every shard is served", func() bool { return len(w.seqs) == untouched+attacked })
	// From here on the attacked shards only lose.
	culprit, err := store.Open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { culprit.Close() })
	session := driver.SessionID("culprit")
	if _, err := culprit.Join(t.Context(),
		driver.Member{Session: session, Node: "culprit", TTL: 10 * time.Minute}); err != nil {
		t.Fatal(err)
	}
	before := heap()
	w.begin()

	ctx, cancel := context.WithTimeout(t.Context(), during)
	defer cancel()
	var written, refused atomic.Int64
	var peak atomic.Uint64
	var writing sync.WaitGroup
	for n := range writers {
		writing.Go(func() { spoil(ctx, store, n, bad, string(session), &written, &refused) })
	}
	writing.Go(func() { measure(ctx, &peak) })
	var still atomic.Int64
	writing.Go(func() { still.Store(int64(standstill(ctx, t.TempDir()))) })
	writing.Wait()
	commits := w.end(good)
	after := heap()
	w.mu.Lock()
	defer w.mu.Unlock()
	most := 0
	for key, at := range w.lines {
		most = max(most, len(at))
		for i := 1; i < len(at); i++ {
			if gap := at[i].Sub(at[i-1]); gap < 59*time.Second {
				t.Errorf("%s was named again after %v", key, gap)
			}
		}
	}
	t.Logf("%d records written in %v, %d refused; %d commits to the other shards; heap %d KiB before, %d after, %d at "+
		"most with garbage; %d records named, at most %d times by one member; damage in the view of one: %d",
		written.Load(), during, refused.Load(), commits, before>>10, after>>10, peak.Load()>>10, len(w.lines), most,
		members[0].View().DamagedTotal)
	// A machine on which a file takes that long to be written costs leases by itself.
	judge := t.Errorf
	if pause := time.Duration(still.Load()); pause > ttl/3 && len(w.events) > 0 {
		judge = t.Logf
		t.Logf("not judged, since the machine stood still for %v:", pause)
	}
	for _, event := range w.events {
		judge("%s", event)
	}
	if written.Load() == 0 || commits == 0 || len(w.lines) == 0 {
		t.Errorf("%d records of garbage, %d commits, %d records named: this shows nothing", written.Load(), commits,
			len(w.lines))
	}
	if after > before+growth {
		t.Errorf("the heap grew by %d bytes, want at most %d", after-before, growth)
	}
}

// spoil writes garbage of every kind over the records of shards and of a session, until ctx
// ends, as the writer with number n.
func spoil(
	ctx context.Context, store *conformance.Store, n int, shards []string, session string, written,
	refused *atomic.Int64,
) {
	var large time.Time
	kinds := []conformance.Tampering{conformance.CorruptShard, conformance.CorruptHead, conformance.CorruptEntry,
		conformance.CorruptMember, conformance.CorruptBeat, conformance.ImpossibleShard}
	for i := n; ctx.Err() == nil; i++ {
		what, name := kinds[i%len(kinds)], shards[i/len(kinds)%len(shards)]
		switch {
		case what == conformance.CorruptMember, what == conformance.CorruptBeat:
			name = session
		case n == 0 && what == conformance.CorruptShard && time.Since(large) > time.Second:
			what, large = conformance.OversizeShard, time.Now() // more would fill the store, which is another attack
		}
		if err := store.Tamper(ctx, what, name); err == nil {
			written.Add(1)
		} else if ctx.Err() == nil {
			refused.Add(1)
		}
	}
}

// measure keeps the largest size of the heap, until ctx ends.
func measure(ctx context.Context, peak *atomic.Uint64) {
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for ctx.Err() == nil {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		peak.Store(max(peak.Load(), m.HeapAlloc))
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
}

// standstill writes its own file over and over until ctx ends, and returns the
// longest time of a write. It uses no lock or connection that garbage could block.
func standstill(ctx context.Context, dir string) (longest time.Duration) {
	file, err := os.Create(filepath.Join(dir, "control"))
	if err != nil {
		return 0
	}
	defer file.Close()
	for ctx.Err() == nil {
		began := time.Now()
		time.Sleep(20 * time.Millisecond)
		if _, err := file.WriteAt([]byte("x"), 0); err != nil {
			return 0
		}
		if err := file.Sync(); err != nil {
			return 0
		}
		longest = max(longest, time.Since(began))
	}
	return longest
}

// heap is the memory in use after a collection.
func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// witness records the events of the honest members.
type witness struct {
	mu      sync.Mutex
	judging bool
	events  []string               // that must not be
	lines   map[string][]time.Time // of the log, by member and key
	seqs    map[string]driver.Seq  // of the last commit, by shard
	started map[string]driver.Seq
}

func (w *witness) note(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.judging {
		w.events = append(w.events, fmt.Sprintf(format, args...))
	}
}

func (w *witness) begin() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.judging = true
	w.started = make(map[string]driver.Seq)
	for shard, seq := range w.seqs {
		w.started[shard] = seq
	}
}

// end stops judging, and returns how many commits the shards had since begin.
func (w *witness) end(shards []string) (commits driver.Seq) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.judging = false
	for _, s := range shards {
		n := w.seqs[s] - w.started[s]
		if n == 0 {
			w.events = append(w.events, fmt.Sprintf("shard %s has no commit", s))
		}
		commits += n
	}
	return commits
}

func (w *witness) await(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		w.mu.Lock()
		done := ok()
		w.mu.Unlock()
		if done {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("not in %v: %s", patience, what)
		}
	}
}

// run runs a member until the end of the test, which commits to all its shards.
func (w *witness) run(t *testing.T, store *conformance.Store, node string, shards []string) *core.Elector {
	t.Helper()
	b, err := store.Open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	isGood := func(f core.Fence) bool { return f.Shard[0] == 'g' }
	e, err := core.NewElector(b, &core.Options{TTL: ttl, Node: node, Logger: slog.New(&lines{w: w, node: node}),
		Hooks: core.Hooks{
			OnRevoke: func(e *core.RevokedError) {
				if isGood(e.Fence) {
					w.note("%s lost %s: %v", node, e.Fence.Shard, e.Cause)
				}
			},
			OnSession: func(ev core.SessionEvent) {
				switch ev.Kind {
				case core.SessionLapsed, core.SessionLost, core.SessionHalted:
					w.note("%s: %s: %v", node, ev.Kind, ev.Err)
				}
			},
			OnPeer: func(ev core.PeerEvent) {
				if ev.Kind == core.PeerEvicted {
					w.note("%s evicted %s", node, ev.Peer.Node)
				}
			},
		}})
	if err != nil {
		t.Fatal(err)
	}
	serve := func(ctx context.Context, l *core.Lease) error {
		for {
			seq, err := l.Append(l.Context(), []byte("decision"))
			switch {
			case err == nil:
				w.mu.Lock()
				w.seqs[l.Shard()] = seq
				w.mu.Unlock()
			case isGood(l.Fence()) && ctx.Err() == nil:
				w.note("%s: a commit to %s: %v", node, l.Shard(), err)
			}
			select {
			case <-time.After(50 * time.Millisecond):
			case <-ctx.Done():
				return nil
			}
		}
	}
	if err := e.Contend(serve, shards...); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- e.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil && !errors.Is(err, context.Canceled) {
			t.Logf("%s: %v", node, err)
		}
	})
	return e
}

// lines is a log of which the damaged records are kept.
type lines struct {
	w    *witness
	node string
}

func (l *lines) Enabled(context.Context, slog.Level) bool { return true }
func (l *lines) WithAttrs([]slog.Attr) slog.Handler       { return l }
func (l *lines) WithGroup(string) slog.Handler            { return l }

func (l *lines) Handle(_ context.Context, r slog.Record) error {
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == "key" {
			l.w.mu.Lock()
			defer l.w.mu.Unlock()
			name := l.node + " " + a.Value.String()
			l.w.lines[name] = append(l.w.lines[name], r.Time)
		}
		return true
	})
	return nil
}
