package conformance

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	mrand "math/rand/v2"
	"runtime"
	"runtime/pprof"
	"sync"
	"time"

	"github.com/tenure-go/tenure/core/driver"
)

// fixture is the state of a case: a fresh namespace, its open backends, and the methods that report
// failures. Only the case's goroutine may call methods that can end the case: fail, setup, and all
// methods without an error result.
type fixture struct {
	t     T
	h     *Harness
	c     testCase
	store *Store
	ctx   context.Context // ends a little before the case's time-out

	mu         sync.Mutex
	cancel     context.CancelFunc
	failures   []string
	skipReason string
	abandoned  bool
	backends   []driver.Backend
	reader     driver.Backend
	observer   *member
	ringer     *member
	restarts   int
	opened     int // number of backends opened by open
}

func newFixture(t T, h *Harness, c testCase, store *Store) *fixture {
	f := &fixture{t: t, h: h, c: c, store: store}
	f.ctx, f.cancel = context.WithTimeout(t.Context(), h.timeout()*8/10)
	return f
}

// labels returns the labels of the goroutines that the case starts, including goroutines inside the
// backend.
func (f *fixture) labels() pprof.LabelSet { return pprof.Labels(leakLabel, f.t.Name()) }

// broken reports a broken rule, and lets the case continue.
func (f *fixture) broken(r rule, format string, args ...any) {
	f.t.Helper()
	f.record(fmt.Sprintf("%s %s: %s: %s", r, r.Title(), fmt.Sprintf(format, args...), r.Explain()))
	for _, declared := range f.c.Rules {
		if declared == r {
			return
		}
	}
	f.record(fmt.Sprintf("the case does not declare rule %s", r))
}

// fail reports a broken rule and ends the case.
func (f *fixture) fail(r rule, format string, args ...any) {
	f.t.Helper()
	f.broken(r, format, args...)
	runtime.Goexit()
}

func (f *fixture) must(r rule, ok bool, format string, args ...any) {
	f.t.Helper()
	if !ok {
		f.fail(r, format, args...)
	}
}

// Errorf reports a failure without a rule.
func (f *fixture) Errorf(format string, args ...any) {
	f.t.Helper()
	f.record(fmt.Sprintf(format, args...))
}

// setup ends the case if a preparatory step failed.
func (f *fixture) setup(step string, err error) {
	f.t.Helper()
	if err != nil {
		f.record(fmt.Sprintf("%s cannot be judged: %s: %v", f.c.Rules[0], step, err))
		runtime.Goexit()
	}
}

func (f *fixture) record(message string) {
	f.t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.abandoned {
		return
	}
	f.failures = append(f.failures, message)
	f.t.Errorf("%s", message)
}

// abandon reports a hung case. Later reports from that case's goroutines are lost.
func (f *fixture) abandon(format string, args ...any) {
	f.t.Helper()
	f.Errorf(format, args...)
	f.cancel()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.abandoned = true
}

func (f *fixture) failed() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.failures) > 0
}

func (f *fixture) skip(reason string) {
	f.mu.Lock()
	f.skipReason = reason
	f.mu.Unlock()
	runtime.Goexit()
}

func (f *fixture) result() (failures []string, skipReason string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.failures, f.skipReason
}

func (f *fixture) finish() {
	f.cancel()
	f.mu.Lock()
	backends := f.backends
	f.mu.Unlock()
	for _, b := range backends {
		if err := b.Close(); err != nil {
			f.Errorf("closing a backend: %v", err)
		}
	}
}

// keep makes finish close b.
func (f *fixture) keep(b driver.Backend) driver.Backend {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.backends = append(f.backends, b)
	return b
}

func (f *fixture) open() driver.Backend {
	f.t.Helper()
	f.mu.Lock()
	f.opened++
	open := f.store.Open
	if f.opened%2 == 0 && f.store.OpenOther != nil {
		open = f.store.OpenOther
	}
	f.mu.Unlock()
	b, err := f.tryOpen(open)
	f.setup("open", err)
	return b
}

// tryOpen calls open with a context that ends when open has returned (X1).
func (f *fixture) tryOpen(open func(context.Context) (driver.Backend, error)) (driver.Backend, error) {
	ctx, cancel := context.WithCancel(f.ctx)
	defer cancel()
	b, err := open(ctx)
	if err != nil {
		return nil, err
	}
	return f.keep(b), nil
}

// wire opens a backend behind a Wire, and skips the case if the Wire lacks the fault.
func (f *fixture) wire(fault string, have func(*Wire) bool) (driver.Backend, *Wire) {
	f.t.Helper()
	ctx, cancel := context.WithCancel(f.ctx)
	defer cancel()
	b, w, err := f.store.OpenFaulty(ctx)
	f.setup("open behind a wire", err)
	f.keep(b)
	if !have(w) {
		f.skip("the harness lacks Wire." + fault)
	}
	return b, w
}

// The case's own reads use this backend, which belongs to no member.
func (f *fixture) read() driver.Backend {
	f.t.Helper()
	if f.reader == nil {
		f.reader = f.open()
	}
	return f.reader
}

// member is one process's session, on its own backend.
type member struct {
	driver.Session
	f    *fixture
	b    driver.Backend
	node string
}

func (f *fixture) join(node string) *member {
	f.t.Helper()
	return f.joinOn(f.open(), node)
}

func (f *fixture) joinOn(b driver.Backend, node string) *member {
	f.t.Helper()
	s, err := f.tryJoin(b, f.newcomer(b, node))
	f.setup("join "+node, err)
	return &member{Session: s, f: f, b: b, node: node}
}

// tryJoin joins through b, and tries again if another join wins a race.
func (f *fixture) tryJoin(b driver.Backend, m driver.Member) (s driver.Session, err error) {
	f.retry(func() error {
		s, err = b.Join(f.ctx, m)
		return err
	})
	return s, err
}

// retry repeats a call, up to a limit, while the call returns driver.ErrRetry.
func (f *fixture) retry(call func() error) {
	for try := range 100 {
		if err := call(); !errors.Is(err, driver.ErrRetry) {
			return
		}
		pause := time.NewTimer(time.Duration(try) * 100 * time.Microsecond)
		select {
		case <-pause.C:
		case <-f.ctx.Done():
			pause.Stop()
			return
		}
	}
}

// newcomer returns a member that has not joined, with a fresh session id.
func (f *fixture) newcomer(b driver.Backend, node string) driver.Member {
	return driver.Member{
		Session: newID(),
		Node:    node,
		TTL:     max(10*time.Second, b.Info().Limits.MinTTL),
	}
}

func newID() driver.SessionID { return driver.SessionID(rand.Text()) }

// evict makes another member evict m, as if m had been silent.
func (f *fixture) evict(m *member) {
	f.t.Helper()
	version, found := f.beatOf(m.ID())
	if !found {
		f.setup("evict "+m.node, fmt.Errorf("session %s has no record", m.ID()))
	}
	if f.observer == nil {
		f.observer = f.joinOn(f.read(), "observer")
	}
	res := f.observer.suspect(m.ID(), version)
	f.setup("evict "+m.node, res.Err)
	if !res.Evicted {
		f.setup("evict "+m.node, fmt.Errorf("not evicted at version %d; the record has version %d", version,
			res.Current))
	}
}

// beatOf returns the version of a session's record.
func (f *fixture) beatOf(id driver.SessionID) (driver.Version, bool) {
	f.t.Helper()
	v, err := f.read().Observe(f.ctx, driver.ObserveQuery{Beats: []driver.Beat{{Session: id}}})
	f.setup("observe", err)
	for _, b := range v.Beats {
		if b.Session == id {
			return b.Version, true
		}
	}
	return 0, false
}

func (f *fixture) state() *driver.View {
	f.t.Helper()
	return f.stateOf(f.read())
}

func (f *fixture) stateOf(b driver.Backend) *driver.View {
	f.t.Helper()
	v, err := b.Observe(f.ctx, driver.ObserveQuery{})
	f.setup("observe", err)
	return v
}

func (f *fixture) owner(shard driver.ShardID) driver.Owner {
	f.t.Helper()
	return ownerIn(f.state(), shard)
}

func ownerIn(v *driver.View, shard driver.ShardID) driver.Owner {
	for _, s := range v.Shards {
		if s.Shard == shard {
			return s.Owner
		}
	}
	return driver.Owner{}
}

func (f *fixture) isMember(id driver.SessionID) bool {
	f.t.Helper()
	for _, m := range f.state().Members {
		if m.Session == id {
			return true
		}
	}
	return false
}

func (f *fixture) head(shard driver.ShardID) driver.Head {
	f.t.Helper()
	page, err := f.read().ReadLog(f.ctx, shard, 0, 0)
	f.setup("read the head", err)
	return page.Head
}

// log returns all entries of a shard's log after the given entry.
func (f *fixture) log(shard driver.ShardID, after driver.Seq) []driver.Entry {
	f.t.Helper()
	return f.logOf(f.read(), shard, after)
}

func (f *fixture) logOf(b driver.Backend, shard driver.ShardID, after driver.Seq) []driver.Entry {
	f.t.Helper()
	var all []driver.Entry
	for {
		page, err := b.ReadLog(f.ctx, shard, after, 1000)
		f.setup("read the log", err)
		if len(page.Entries) == 0 {
			return all
		}
		all = append(all, page.Entries...)
		after = page.Entries[len(page.Entries)-1].Seq
	}
}

func (f *fixture) get(shard driver.ShardID, key string) *driver.Item {
	f.t.Helper()
	it, err := f.read().Get(f.ctx, shard, key)
	f.setup("get", err)
	return it
}

// suspect tries to evict a session whose record has the given version. The result includes any
// error.
func (m *member) suspect(id driver.SessionID, v driver.Version) (r driver.EvictResult) {
	m.f.retry(func() error {
		r = driver.EvictResult{}
		var res []driver.EvictResult
		res, r.Err = m.Evict(m.f.ctx, []driver.Suspect{{Session: id, Version: v}})
		r.Err = single(len(res), r.Err)
		if r.Err == nil {
			r = res[0]
		}
		return r.Err
	})
	return r
}

func (m *member) claim(c driver.Claim) (r driver.AcquireResult) {
	m.f.retry(func() error {
		r = m.claimCtx(m.f.ctx, c)
		return r.Err
	})
	return r
}

func (m *member) claimCtx(ctx context.Context, c driver.Claim) driver.AcquireResult {
	return grant(m.Acquire(ctx, []driver.Claim{c}))
}

func (m *member) transfer(fence driver.Fence, to driver.SessionID) (r driver.AcquireResult) {
	m.f.retry(func() error {
		r = m.transferCtx(m.f.ctx, fence, to)
		return r.Err
	})
	return r
}

func (m *member) transferCtx(ctx context.Context, fence driver.Fence, to driver.SessionID) driver.AcquireResult {
	return grant(m.Transfer(ctx, []driver.Transfer{{Fence: fence, To: to}}))
}

func grant(res []driver.AcquireResult, err error) driver.AcquireResult {
	if err := single(len(res), err); err != nil {
		return driver.AcquireResult{Err: err}
	}
	return res[0]
}

// single returns err, or an error if a call with one item did not return exactly one result.
func single(n int, err error) error {
	if err == nil && n != 1 {
		return fmt.Errorf("%d results for one item", n)
	}
	return err
}

func (m *member) acquire(shard driver.ShardID) driver.Fence {
	m.f.t.Helper()
	return m.take(driver.Claim{Shard: shard, Seen: m.f.owner(shard)})
}

func (m *member) preempt(shard driver.ShardID) driver.Fence {
	m.f.t.Helper()
	return m.take(driver.Claim{Shard: shard, Seen: m.f.owner(shard), Preempt: true})
}

func (m *member) take(c driver.Claim) driver.Fence {
	m.f.t.Helper()
	r := m.claim(c)
	m.f.setup(fmt.Sprintf("%s acquires %q", m.node, c.Shard), r.Err)
	return r.Fence
}

func (m *member) release(fences ...driver.Fence) {
	m.f.t.Helper()
	m.f.setup(m.node+" releases", m.tryRelease(fences...))
}

func (m *member) tryRelease(fences ...driver.Fence) (err error) {
	m.f.retry(func() error {
		err = m.Release(m.f.ctx, fences)
		return err
	})
	return err
}

// beat sends a heartbeat, which must succeed.
func (m *member) beat() {
	m.f.t.Helper()
	var err error
	m.f.retry(func() error {
		err = m.Beat(m.f.ctx)
		return err
	})
	m.f.setup(m.node+" beats", err)
}

func (m *member) write(fence driver.Fence, number driver.WriteNo, ops ...driver.Op) (r driver.CommitResult) {
	m.f.retry(func() error {
		r = m.writeCtx(m.f.ctx, newWrite(fence, number, ops...))
		return r.Err
	})
	return r
}

func (m *member) writeCtx(ctx context.Context, w driver.Write) driver.CommitResult {
	res, err := m.Commit(ctx, []driver.Write{w})
	if err := single(len(res), err); err != nil {
		return driver.CommitResult{Err: err}
	}
	return res[0]
}

func newWrite(fence driver.Fence, number driver.WriteNo, ops ...driver.Op) driver.Write {
	return driver.Write{Fence: fence, Number: number, Nonce: newNonce(), Ops: ops}
}

// commit writes ops under the next number. The write must succeed.
func (m *member) commit(fence driver.Fence, ops ...driver.Op) driver.Head {
	m.f.t.Helper()
	r := m.write(fence, m.f.head(fence.Shard).Number+1, ops...)
	m.f.setup(m.node+" commits", r.Err)
	return r.Head
}

func newNonce() driver.Nonce { return driver.Nonce(mrand.Uint64() | 1) }

func put(key, value string) driver.Op {
	return driver.Op{Kind: driver.OpPut, Key: key, Value: []byte(value)}
}

func putIf(key, value string, v driver.Version) driver.Op {
	return driver.Op{Kind: driver.OpPut, Key: key, Value: []byte(value), IfVersion: v}
}

func del(key string) driver.Op { return driver.Op{Kind: driver.OpDelete, Key: key} }

func appendOp(payload string) driver.Op {
	return driver.Op{Kind: driver.OpAppend, Value: []byte(payload)}
}

func appendUnique() driver.Op { return appendOp(string(newID())) }

func trim(through driver.Seq) driver.Op { return driver.Op{Kind: driver.OpTrim, Through: through} }
