package follower

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenure-go/tenure/backends/memory"
	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/core/driver"
)

// world is a store in a bubble of fake time. If a goroutine is left at the end, the test fails.
type world struct {
	*testing.T
	store *memory.Store
}

func bubble(t *testing.T, f func(w *world)) {
	t.Parallel()
	inBubble(t, f)
}

func inBubble(t *testing.T, f func(w *world)) {
	synctest.Test(t, func(t *testing.T) { f(&world{T: t, store: memory.New()}) })
}

func (w *world) open() driver.Backend {
	w.Helper()
	b, err := memory.Open(w.Context(), w.store, "app", nil)
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() { b.Close() })
	return b
}

// owner owns shards and appends to their logs. It uses only the driver.
type owner struct {
	t     testing.TB
	b     driver.Backend
	s     driver.Session
	fence map[driver.ShardID]driver.Fence
	head  map[driver.ShardID]driver.Head
	nonce driver.Nonce
}

func newOwner(t testing.TB, b driver.Backend, id string) *owner {
	t.Helper()
	s, err := b.Join(t.Context(), driver.Member{Session: driver.SessionID(id), Node: id, TTL: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	return &owner{t: t, b: b, s: s, fence: make(map[driver.ShardID]driver.Fence),
		head: make(map[driver.ShardID]driver.Head)}
}

func (o *owner) take(shard driver.ShardID) {
	o.t.Helper()
	var seen driver.Owner
	for {
		r, err := o.s.Acquire(o.t.Context(), []driver.Claim{{Shard: shard, Seen: seen, Preempt: true}})
		if err != nil {
			o.t.Fatal(err)
		}
		if held, ok := errors.AsType[*driver.HeldError](r[0].Err); ok {
			seen = held.Owner
			continue
		}
		if r[0].Err != nil {
			o.t.Fatal(r[0].Err)
		}
		o.fence[shard], o.head[shard] = r[0].Fence, r[0].Head
		return
	}
}

// append appends n entries, each with its number as payload, and returns the last number.
func (o *owner) append(shard driver.ShardID, n int) driver.Seq {
	o.t.Helper()
	ops := make([]driver.Op, n)
	for i := range ops {
		ops[i] = core.Append([]byte(strconv.Itoa(int(o.head[shard].Seq) + i + 1)))
	}
	return o.commit(shard, ops...)
}

func (o *owner) commit(shard driver.ShardID, ops ...driver.Op) driver.Seq {
	o.t.Helper()
	if _, ok := o.fence[shard]; !ok {
		o.take(shard)
	}
	o.nonce++
	r, err := o.s.Commit(o.t.Context(),
		[]driver.Write{{Fence: o.fence[shard], Number: o.head[shard].Number + 1, Nonce: o.nonce, Ops: ops}})
	if err == nil {
		err = r[0].Err
	}
	if err != nil {
		o.t.Fatalf("shard %s: commit: %v", shard, err)
	}
	o.head[shard] = r[0].Head
	return r[0].Head.Seq
}

// application is an Applier's application. It records applied entries, and fails the test on an
// entry out of order.
type application struct {
	t       testing.TB
	mu      sync.Mutex
	applied map[string][]core.Entry
	from    map[string]core.Seq // the position of the restored snapshot
	calls   int
	again   bool                // entries may be passed again
	fail    func(b Batch) error // may refuse or block a batch before anything is applied
}

func newApplication(t testing.TB) *application {
	return &application{t: t, applied: make(map[string][]core.Entry), from: make(map[string]core.Seq)}
}

func (l *application) apply(_ context.Context, b Batch) error {
	l.mu.Lock()
	fail := l.fail
	l.calls++
	l.mu.Unlock()
	if fail != nil {
		if err := fail(b); err != nil {
			return err
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range b.Entries {
		s := string(e.Shard)
		if l.again && e.Seq <= l.seq(s) {
			continue
		}
		if want := l.seq(s) + 1; e.Seq != want {
			l.t.Errorf("shard %s: entry %d was applied where %d should be", s, e.Seq, want)
		}
		if got := string(e.Payload); got != strconv.Itoa(int(e.Seq)) {
			l.t.Errorf("shard %s: entry %d has payload %.20q", s, e.Seq, got)
		}
		l.applied[s] = append(l.applied[s], e)
	}
	return nil
}

func (l *application) restore(_ context.Context, s *Snapshot) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if got, want := string(s.State), string(stateAfter(s.Seq)); got != want {
		l.t.Errorf("shard %s: restored %d bytes, %.40q, want %.40q", s.Shard, len(got), got, want)
	}
	l.applied[s.Shard], l.from[s.Shard] = nil, s.Seq
	return nil
}

// stateAfter returns a state that takes up three chunks.
func stateAfter(seq core.Seq) []byte {
	return fmt.Appendf(nil, "state after %d%s", seq, strings.Repeat(".", 2500))
}

func (l *application) seq(shard string) core.Seq {
	return l.from[shard] + core.Seq(len(l.applied[shard]))
}

func (l *application) at(shard string) core.Seq {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.seq(shard)
}

func (l *application) onApply(f func(b Batch) error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fail = f
}

type follow struct {
	*Tailer
	t    testing.TB
	stop context.CancelFunc
	done chan error
	once sync.Once
	err  error
}

func run(t testing.TB, b driver.Backend, o *Options, a Applier, shards ...string) *follow {
	t.Helper()
	var c Options
	if o != nil {
		c = *o
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	tailer, err := NewTailer(b, &c)
	if err != nil {
		t.Fatal(err)
	}
	if len(shards) == 0 {
		shards = []string{"*"}
	}
	if err := tailer.Follow("test", a, shards...); err != nil {
		t.Fatal(err)
	}
	return begin(t, tailer)
}

func begin(t testing.TB, tailer *Tailer) *follow {
	ctx, cancel := context.WithCancel(t.Context())
	r := &follow{Tailer: tailer, t: t, stop: cancel, done: make(chan error, 1)}
	go func() { r.done <- tailer.Run(ctx) }()
	t.Cleanup(func() { r.stop(); _ = r.wait() })
	return r
}

func (r *follow) wait() error {
	r.once.Do(func() { r.err = <-r.done })
	return r.err
}

func (r *follow) within(d time.Duration) {
	timer := time.AfterFunc(d, r.stop)
	r.t.Cleanup(func() { timer.Stop() })
}

func (r *follow) end() {
	r.t.Helper()
	r.stop()
	if err := r.wait(); err != nil {
		r.t.Errorf("Run returned %v, want nil", err)
	}
}

func (r *follow) until(shard string, seq core.Seq) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := r.WaitFor(ctx, shard, seq); err != nil {
		r.t.Fatalf("waiting for entry %d of %s: %v", seq, shard, err)
	}
}
