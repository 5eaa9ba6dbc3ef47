// Package garbage tests members while a compromised member writes garbage to the store as fast as
// possible.
//
// The compromised member overwrites shards' records, heads and log entries, and its own member and
// heartbeat records. The other members must keep their leases on the undamaged shards, use a
// limited amount of memory, and log each damaged record at most once a minute. The same limits
// apply to the reserved shards, which contain sharding's plans and the operators' rules, including
// nodes' places and the ends of quarantines. The compromised member takes leases of the reserved
// shards and commits garbage to them. Later, it damages the records of the reserved shards. Tests
// use this package through conformance.TestGarbage.
package garbage

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/core/control"
	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/proof/ample"
	"github.com/tenure-go/tenure/internal/proof/loglines"
	"github.com/tenure-go/tenure/sharding"
)

// ForFlag is the name of the flag that sets how long garbage is written.
const ForFlag = "garbage.for"

// Flag defines ForFlag, with a default of 3 s. Each test package calls Flag once.
func Flag() *time.Duration {
	return flag.Duration(ForFlag, 3*time.Second, "how long a compromised member writes garbage")
}

const (
	ttl       = 3 * time.Second
	writers   = 4
	attacked  = 4
	untouched = 4
	planned   = 4
	growth    = 64_000_000 // bytes of heap, of five members; each keeps the largest plan with shards in quarantine
	longest   = 16 << 10   // bytes of a log line
	logged    = 1 << 20    // log bytes of one member

	junkRules = 2000 // records; more would fill the store
	assigner  = "_assigner"
)

// Kind is a form of garbage. Each Kind has an equivalent conformance.Tampering.
type Kind int

// The kinds of garbage. A writer cycles through the kinds before Oversize.
const (
	Shard Kind = iota
	Head
	Entry
	Member
	Beat
	Impossible
	Oversize
)

// Store is the part of a conformance.Store that Test uses.
type Store struct {
	Open    func(ctx context.Context) (driver.Backend, error)
	Tamper  func(ctx context.Context, what Kind, name string) error
	Compact func(ctx context.Context) error // nil, or as in conformance.Store
}

// Test runs two ordinary members, and two more that divide shards by a plan. For the given
// duration, Test also runs a member that writes garbage through store.Tamper, with several writers
// and a member's permissions. Another member commits garbage to the reserved shards. Afterwards,
// the member that wrote garbage damages the reserved shards for a third of the duration. Because
// Test measures the heap, nothing else may run at the same time.
func Test(t *testing.T, store Store, during time.Duration) {
	t.Helper()
	w := &witness{lines: make(map[string][]time.Time), seqs: make(map[string]driver.Seq), bytes: make(map[string]int)}
	good, bad, shared := numbered("good", untouched), numbered("bad", attacked), numbered("planned", planned)
	var members []*core.Elector
	for i := range 2 {
		members = append(members, w.run(t, store, fmt.Sprint("honest", i), slices.Concat(good, bad), nil))
		w.run(t, store, fmt.Sprint("planner", i), nil, shared)
	}
	w.await(t, "every shard is served", func() bool { return len(w.seqs) == untouched+attacked+planned })
	// After this point, members may lose only the attacked shards.
	culprit, err := store.Open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = culprit.Close() }) // garbage may make Close fail
	session := driver.SessionID("culprit")
	if _, err := culprit.Join(t.Context(),
		driver.Member{Session: session, Node: "culprit", TTL: 10 * time.Minute}); err != nil {
		t.Fatal(err)
	}
	intruder, err := culprit.Join(t.Context(),
		driver.Member{Session: "intruder", Node: "intruder", TTL: 10 * time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	before := heap()
	writeLargest(t, store, shared)
	w.begin()

	var written, refused, committed, still atomic.Int64
	var peak atomic.Uint64
	attack := func(during time.Duration, shards []string, beside func(ctx context.Context)) {
		ctx, cancel := context.WithTimeout(t.Context(), during)
		defer cancel()
		var writing sync.WaitGroup
		for n := range writers {
			writing.Go(func() { spoil(ctx, store, n, shards, string(session), &written, &refused) })
		}
		writing.Go(func() { beside(ctx) })
		writing.Go(func() { measure(ctx, &peak) })
		writing.Go(func() { still.Store(max(still.Load(), int64(standstill(ctx, t.TempDir())))) })
		writing.Wait()
	}
	attack(during, bad, func(ctx context.Context) { intrude(ctx, culprit, intruder, &committed) })
	if err := intruder.Close(t.Context()); err != nil {
		t.Logf("the intruder's session: %v", err)
	}
	seen := w.commits(shared)
	w.await(t, "every planned shard is served again", func() bool {
		return !slices.ContainsFunc(shared, func(s string) bool { return w.seqs[s] <= seen[s] })
	})
	attack(during/3, []string{control.Shard, assigner, string(driver.PingShard)}, func(context.Context) {})
	commits := w.end(good)
	if store.Compact != nil && culprit.Info().Backend == "memory" { // the memory backend keeps earlier values in this process
		if err := store.Compact(t.Context()); err != nil {
			t.Error(err)
		}
	}
	after := heap()
	w.mu.Lock()
	defer w.mu.Unlock()
	most := w.judgeLines(t)
	t.Logf("%d writes to reserved shards; the longest line of the log has %d bytes, all lines of a member %v", committed.Load(),
		w.longest, w.bytes)
	t.Logf("%d records written in %v, %d refused; %d commits to the other shards; heap %d KiB before, %d after, %d at "+
		"most with garbage; %d records named, at most %d times by one member; damage in the view of one: %d",
		written.Load(), during, refused.Load(), commits, before>>10, after>>10, peak.Load()>>10, len(w.lines), most,
		members[0].View().DamagedTotal)
	if written.Load() == 0 || committed.Load() == 0 || commits == 0 || len(w.lines) == 0 {
		t.Errorf("%d records of garbage, %d commits, %d records named: this shows nothing", written.Load(), commits,
			len(w.lines))
	}
	if after > before+growth {
		t.Errorf("the heap grew by %d bytes, want at most %d", after-before, growth)
	}
	// If writing a file takes this long, the delay alone makes members lose leases.
	if pause := time.Duration(still.Load()); pause > ttl/3 && len(w.events) > 0 {
		t.Skipf("machine too slow to tell: it stood still for %v, and not judged is:\n%s", pause, strings.Join(w.events, "\n"))
	}
	for _, event := range w.events {
		t.Error(event)
	}
}

func numbered(name string, n int) (names []string) {
	for i := range n {
		names = append(names, fmt.Sprint(name, i))
	}
	return names
}

// judgeLines checks the members' log lines, and returns the maximum number of lines about one
// record. The caller holds w.mu.
func (w *witness) judgeLines(t *testing.T) (most int) {
	t.Helper()
	for key, at := range w.lines {
		most = max(most, len(at))
		for i := 1; i < len(at); i++ {
			ample.AtLeast(t, "until "+key+" was named again it", at[i].Sub(at[i-1]), 59*time.Second)
		}
	}
	for node, n := range w.bytes {
		if n > logged {
			t.Errorf("the log of %s has %d bytes, want at most %d", node, n, logged)
		}
	}
	if w.longest > longest {
		t.Errorf("the log has a line of %d bytes, want at most %d", w.longest, longest)
	}
	return most
}

// spoil is writer n. Until ctx ends, it overwrites the records of shards and of a session with
// every kind of garbage.
func spoil(
	ctx context.Context, store Store, n int, shards []string, session string, written, refused *atomic.Int64,
) {
	large := time.NewTimer(0)
	defer large.Stop()
	for i := n; ctx.Err() == nil; i++ {
		what, name := Kind(i%int(Oversize)), shards[i/int(Oversize)%len(shards)]
		switch {
		case what == Member, what == Beat:
			name = session
		case n == 0 && what == Shard:
			select {
			case <-large.C:
				what = Oversize
				large.Reset(time.Second) // filling the store is a different attack
			default:
			}
		}
		if err := store.Tamper(ctx, what, name); err == nil {
			written.Add(1)
		} else if ctx.Err() == nil {
			refused.Add(1)
		}
	}
}

// intrude takes the leases of the shards that contain rules and plans. Until ctx ends, it commits
// garbage under these leases.
func intrude(ctx context.Context, b driver.Backend, s driver.Session, committed *atomic.Int64) {
	held := make(map[driver.ShardID]driver.AcquireResult)
	seen := make(map[driver.ShardID]driver.Owner)
	for n := 0; ctx.Err() == nil; n++ {
		shard := []driver.ShardID{control.Shard, assigner}[n%2]
		at, ok := held[shard]
		if !ok {
			r, err := s.Acquire(ctx, []driver.Claim{{Shard: shard, Seen: seen[shard], Preempt: true}})
			if err != nil || r[0].Err != nil {
				if denied := (*driver.HeldError)(nil); err == nil && errors.As(r[0].Err, &denied) {
					seen[shard] = denied.Owner
				}
				continue
			}
			at = r[0]
		}
		ops := junkPlan(at.Head, b.Info().Limits)
		if shard == control.Shard {
			ops = junkOfRules(n)
		}
		r, err := s.Commit(ctx, []driver.Write{{Fence: at.Fence, Number: at.Head.Number + 1, Nonce: driver.Nonce(rand.Uint64() | 1), Ops: ops}})
		if err != nil || r[0].Err != nil {
			delete(held, shard)
			continue
		}
		committed.Add(1)
		at.Head = r[0].Head
		held[shard] = at
		time.Sleep(time.Millisecond) // because others also write
	}
}

// junkOfRules returns garbage records for the operators' rules. Some records are valid rules about
// missing nodes, and there are too many of them.
func junkOfRules(n int) []driver.Op {
	var ops []driver.Op
	for range 20 {
		n = (n*31 + 7) % junkRules
		node := fmt.Sprintf("nobody-%d", n)
		key := "rule/" + strings.Repeat("x", 100) + node
		op := core.Put(key, noise(200))
		switch n % 6 {
		case 0:
			op = core.Put("rule/drain/"+node, fmt.Appendf(nil, `{"kind":"drain","node":%q}`, node))
		case 1:
			op = core.Put(key, fmt.Appendf(nil, `{"kind":%q}`, strings.Repeat("y", 2000)))
		case 2:
			op = core.Put(key, fmt.Appendf(nil, `{"kind":"drain","at":%q}`, noise(500)))
		case 3: // place of a node that may stop
			op = core.Put("rule/stop/"+node, fmt.Appendf(nil, `{"kind":"stop","node":%q,"away":1,"expires":"2100-01-01T00:00:00Z"}`, node))
		case 4: // end of a quarantine
			op = core.Put("rule/release/"+node, fmt.Appendf(nil, `{"kind":"release","shards":%q}`, node))
		}
		if !slices.ContainsFunc(ops, func(o driver.Op) bool { return o.Key == op.Key }) {
			ops = append(ops, op)
		}
	}
	return ops
}

// junkPlan returns an invalid entry for the plan log. It keeps the log short, because filling the
// store is a different attack.
func junkPlan(h driver.Head, limits driver.Limits) []driver.Op {
	size := 16 << 10
	if limits.WriteBytes > 0 {
		size = min(size, limits.WriteBytes/2)
	}
	ops := []driver.Op{core.Append(noise(1 + rand.IntN(size)))}
	if h.Seq-h.Oldest > 200 {
		ops = append(ops, core.Trim(h.Seq-100))
	}
	return ops
}

func noise(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(rand.Uint32())
	}
	return b
}

// measure records the peak heap size until ctx ends.
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

// standstill writes a file repeatedly until ctx ends, and returns how long the slowest write took.
// It uses no lock or connection that garbage could block.
func standstill(ctx context.Context, dir string) (longest time.Duration) {
	file, err := os.Create(filepath.Join(dir, "control"))
	if err != nil {
		return 0
	}
	defer file.Close() //nolint:errcheck // its contents do not matter
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

func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// witness records the honest members' events.
type witness struct {
	mu      sync.Mutex
	judging bool
	events  []string               // forbidden events
	lines   map[string][]time.Time // times of log lines, by member and key
	bytes   map[string]int         // of log lines, by member
	longest int                    // longest log line, in bytes
	seqs    map[string]driver.Seq  // of the last commit, by shard
	started map[string]driver.Seq
}

func (w *witness) line(node string, bytes int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.judging {
		w.bytes[node] += bytes
		w.longest = max(w.longest, bytes)
	}
}

// commits returns the last sequence number of each shard.
func (w *witness) commits(shards []string) map[string]driver.Seq {
	w.mu.Lock()
	defer w.mu.Unlock()
	last := make(map[string]driver.Seq)
	for _, s := range shards {
		last[s] = w.seqs[s]
	}
	return last
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

// end stops the recording, and returns the number of commits to the shards since begin.
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
	ample.Wait(t, what, func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return ok()
	})
}

// run runs a member until the test ends. The member commits to every shard that it gets by
// contending or from a plan.
func (w *witness) run(t *testing.T, store Store, node string, shards, shared []string) *core.Elector {
	t.Helper()
	b, err := store.Open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	isGood := func(f core.Fence) bool { return f.Shard[0] == 'g' }
	e, err := core.NewElector(b, &core.Options{TTL: ttl, Node: node, Logger: slog.New(&lines{w: w, node: node}),
		Hooks: core.Hooks{
			OnEvent: func(ev core.Event) {
				switch ev.Kind {
				case core.LeaseEnded:
					if e, ok := errors.AsType[*core.RevokedError](ev.Err); ok && isGood(e.Fence) {
						w.note("%s lost %s: %v", node, e.Fence.Shard, e.Cause)
					}
				case core.SessionLapsed, core.SessionLost, core.SessionHalted:
					w.note("%s: %s: %v", node, ev.Kind, ev.Err)
				case core.PeerEvicted:
					w.note("%s evicted %s", node, ev.Peer.Node)
				default: // harmless
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
	run := e.Run
	if shared != nil {
		run = w.share(t, b, e, node, serve, shared)
	} else if err := e.Contend(serve, shards...); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil && !errors.Is(err, context.Canceled) {
			t.Logf("%s: %v", node, err)
		}
	})
	return e
}

// share returns a function that runs a member, which serves its share of some shards.
func (w *witness) share(
	t *testing.T, b driver.Backend, e *core.Elector, node string, serve core.Handler, shards []string,
) func(ctx context.Context) error {
	m, err := sharding.NewManager(b, e, serve, &sharding.Options{
		Shards: shards, Interval: 100 * time.Millisecond, LeaveBudget: time.Second,
		Takes:  func(m core.Member) bool { return strings.HasPrefix(m.Node, "planner") },
		Logger: loglines.Failures("tenure: sharding: trying", func(err error) { w.line(node, len(err.Error())) }),
	})
	if err != nil {
		t.Fatal(err)
	}
	return func(ctx context.Context) error {
		under, stop := context.WithCancel(context.WithoutCancel(ctx))
		ran := make(chan error, 1)
		go func() { ran <- e.Run(under) }()
		err := m.Run(ctx)
		stop()
		return errors.Join(err, <-ran)
	}
}

// lines is a log handler that keeps the lines about damaged records.
type lines struct {
	w    *witness
	node string
}

func (l *lines) Enabled(context.Context, slog.Level) bool { return true }
func (l *lines) WithAttrs([]slog.Attr) slog.Handler       { return l }
func (l *lines) WithGroup(string) slog.Handler            { return l }

func (l *lines) Handle(_ context.Context, r slog.Record) error {
	size := len(r.Message)
	r.Attrs(func(a slog.Attr) bool {
		size += len(a.Key) + len(a.Value.String())
		if a.Key == "key" {
			l.w.mu.Lock()
			defer l.w.mu.Unlock()
			name := l.node + " " + a.Value.String()
			l.w.lines[name] = append(l.w.lines[name], r.Time)
		}
		return true
	})
	l.w.line(l.node, size)
	return nil
}
