package core

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenure-go/tenure/backends/memory"
	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/proof/kvfault"
)

const ttl = time.Second

// world is a store with members, in a bubble of fake time. If goroutines are left at the end, the
// test fails.
type world struct {
	*testing.T
	store *memory.Store
}

func bubble(t *testing.T, f func(w *world)) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { f(&world{T: t, store: memory.New()}) })
}

type member struct {
	*Elector
	w    *world
	link *kvfault.Link
	tap  *tap
	stop context.CancelFunc
	done chan error

	mu     sync.Mutex
	events []string
}

func (m *member) inside() inside { return inside{m.Elector} }

// tap sits between an elector and its backend and may replace commits.
type tap struct {
	driver.Backend
	mu     sync.Mutex
	commit func(next driver.Session, ctx context.Context, w []driver.Write) ([]driver.CommitResult, error)
	around func(kind string, do func())                   // wraps joins, heartbeats, claims and evictions; may withhold the reply
	beat   func() error                                   // called before each heartbeat is sent
	update func(send func() error) error                  // answers updates
	closes []func(ctx context.Context) error              // answer the next closes of a session instead of the store
	look   func(q driver.ObserveQuery) error              // called before each Observe is sent
	bare   bool                                           // views have no heads, like the views of some stores
	misses bool                                           // changes of members and shards do not reach the watch
	read   func() error                                   // called before each ReadLog is sent
	moved  func([]driver.Transfer) []driver.AcquireResult // answers transfers instead of the store
	sizes  []int                                          // operations of each commit
	log    []string
}

type tapSession struct {
	driver.Session
	t *tap
}

func (t *tap) Join(ctx context.Context, m driver.Member) (driver.Session, error) {
	var s driver.Session
	var err error
	t.call(callJoin, func() { s, err = t.Backend.Join(ctx, m) })
	if err != nil {
		return nil, err
	}
	return &tapSession{s, t}, nil
}

func (t *tap) Observe(ctx context.Context, q driver.ObserveQuery) (*driver.View, error) {
	t.mu.Lock()
	look := t.look
	t.mu.Unlock()
	if look != nil {
		if err := look(q); err != nil {
			return nil, err
		}
	}
	v, err := t.Backend.Observe(ctx, q)
	t.mu.Lock()
	defer t.mu.Unlock()
	if err == nil && t.bare {
		for i := range v.Shards {
			v.Shards[i].Head = nil
		}
	}
	if err != nil || !t.misses || v.Reset {
		return v, err
	}
	return &driver.View{Cursor: v.Cursor, Beats: v.Beats}, nil
}

func (t *tap) withoutHeads() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.bare = true
}

// onLook calls f before every Observe. If f returns an error, the call is not sent.
func (t *tap) onLook(f func(driver.ObserveQuery) error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.look = f
}

func (t *tap) ReadLog(ctx context.Context, shard ShardID, after Seq, most int) (*driver.LogPage, error) {
	t.mu.Lock()
	read := t.read
	t.mu.Unlock()
	if read != nil {
		if err := read(); err != nil {
			return nil, err
		}
	}
	return t.Backend.ReadLog(ctx, shard, after, most)
}

// onReadLog calls f before every read of a log or head. If f returns an error, the read is not
// sent.
func (t *tap) onReadLog(f func() error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.read = f
}

func (t *tap) missChanges() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.misses = true
}

// onReply passes every join, heartbeat, claim and eviction through f.
func (t *tap) onReply(f func(kind string, do func())) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.around = f
}

// onBeat calls f before every heartbeat. If f returns an error, the heartbeat is not sent.
func (t *tap) onBeat(f func() error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.beat = f
}

func (t *tap) beforeBeat() error {
	t.mu.Lock()
	f := t.beat
	t.mu.Unlock()
	if f == nil {
		return nil
	}
	return f()
}

func (t *tap) call(kind string, do func()) {
	t.mu.Lock()
	f := t.around
	t.mu.Unlock()
	if f == nil {
		f = func(_ string, do func()) { do() }
	}
	f(kind, do)
}

func (s *tapSession) Beat(ctx context.Context) (err error) {
	if err := s.t.beforeBeat(); err != nil {
		return err
	}
	s.t.call(callBeat, func() { err = s.Session.Beat(ctx) })
	return err
}

func (s *tapSession) Acquire(ctx context.Context, claims []driver.Claim) (res []driver.AcquireResult, err error) {
	s.t.call(callAcquire, func() { res, err = s.Session.Acquire(ctx, claims) })
	return res, err
}

func (s *tapSession) Evict(ctx context.Context, suspects []driver.Suspect) (res []driver.EvictResult, err error) {
	s.t.call(callEvict, func() { res, err = s.Session.Evict(ctx, suspects) })
	return res, err
}

func (s *tapSession) Update(ctx context.Context, st MemberState) (err error) {
	s.t.mu.Lock()
	f := s.t.update
	s.t.mu.Unlock()
	send := func() error { return s.Session.Update(ctx, st) }
	if f != nil {
		return f(send)
	}
	return send()
}

// onUpdate makes f answer every update. If f is nil, the store answers.
func (t *tap) onUpdate(f func(send func() error) error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.update = f
}

func (s *tapSession) Commit(ctx context.Context, w []driver.Write) ([]driver.CommitResult, error) {
	s.t.mu.Lock()
	f := s.t.commit
	for i := range w {
		s.t.sizes = append(s.t.sizes, len(w[i].Ops))
	}
	s.t.mu.Unlock()
	if f != nil {
		return f(s.Session, ctx, w)
	}
	return s.Session.Commit(ctx, w)
}

// onTransfer makes f answer every transfer. If f is nil, the store answers.
func (t *tap) onTransfer(f func([]driver.Transfer) []driver.AcquireResult) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.moved = f
}

func (s *tapSession) Transfer(ctx context.Context, h []driver.Transfer) ([]driver.AcquireResult, error) {
	s.t.mu.Lock()
	f := s.t.moved
	s.t.mu.Unlock()
	if f != nil {
		return f(h), nil
	}
	fences := make([]Fence, len(h))
	for i := range h {
		fences[i] = h[i].Fence
	}
	s.t.note("transfer", fences...)
	return s.Session.Transfer(ctx, h)
}

func (s *tapSession) Release(ctx context.Context, fences []driver.Fence) error {
	s.t.note("release", fences...)
	return s.Session.Release(ctx, fences)
}

func (s *tapSession) Close(ctx context.Context) error {
	s.t.note("close")
	s.t.mu.Lock()
	answer := s.Session.Close
	if len(s.t.closes) > 0 {
		answer, s.t.closes = s.t.closes[0], s.t.closes[1:]
	}
	s.t.mu.Unlock()
	return answer(ctx)
}

func (s *tapSession) Explain(ctx context.Context) *driver.SessionLostError {
	return s.Session.(driver.Explainer).Explain(ctx)
}

func (t *tap) note(what string, fences ...driver.Fence) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(fences) == 0 {
		t.log = append(t.log, what)
	}
	for _, f := range fences {
		t.log = append(t.log, what+" "+string(f.Shard))
	}
}

func (t *tap) noted() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.log)
}

func (t *tap) onCommit(f func(next driver.Session, ctx context.Context, w []driver.Write) ([]driver.CommitResult, error)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.commit = f
}

func (w *world) newMember(node string, change ...func(*Options)) *member {
	w.Helper()
	m := &member{w: w, link: &kvfault.Link{}, done: make(chan error, 1)}
	b, err := memory.Open(w.Context(), w.store, "test", &memory.Options{Wrap: m.link.Wrap})
	if err != nil {
		w.Fatal(err)
	}
	m.tap = &tap{Backend: b}
	o := &Options{Node: node, TTL: ttl, DrainBudget: 2 * time.Second, CallTimeout: ttl, Seed: 7, Logger: slog.New(slog.DiscardHandler)}
	say := func(format string, args ...any) {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.events = append(m.events, fmt.Sprintf(format, args...))
	}
	o.Hooks.OnEvent = func(e Event) {
		switch ended, _ := errors.AsType[*RevokedError](e.Err); e.Kind {
		case LeaseGranted:
			say("grant %s", e.Fence.Shard)
		case LeaseEnded:
			say("revoke %s: %v", e.Fence.Shard, ended.Cause)
		case HandlerStarted:
			say("start %s", e.Fence.Shard)
		case HandlerReturned:
			say("return %s: %v", e.Fence.Shard, e.Err)
		case HandlerStuck:
			say("stuck %s: %v", e.Fence.Shard, ended.Cause)
		case WriteRefused:
			say("refused %s", e.Fence.Shard)
		case PeerJoined, PeerUpdated, PeerGone, PeerSilent, PeerDead, PeerEvicted:
			say("peer %s %s", e.Peer.Node, strings.TrimPrefix(string(e.Kind), "peer "))
		case HandlerStopping, LeaseReleased, LeaseTransferred, LeaseLost, LeaseRefused, LeaseUnknown, RecordDamaged, EventsDropped:
		default:
			say("session %s", e.Kind)
		}
	}
	for _, f := range change {
		f(o)
	}
	if m.Elector, err = NewElector(m.tap, o); err != nil {
		w.Fatal(err)
	}
	return m
}

// onEvent adds a hook for events of the kinds.
func onEvent(o *Options, f func(Event), kinds ...EventKind) {
	o.Hooks = JoinHooks(o.Hooks, Hooks{OnEvent: func(e Event) {
		if slices.Contains(kinds, e.Kind) {
			f(e)
		}
	}})
}

// run starts the member. When the test ends, the member is stopped and must give everything back.
func (m *member) run() *member {
	ctx, cancel := context.WithCancel(context.Background())
	m.stop = cancel
	go func() { m.done <- m.Run(ctx) }()
	m.w.Cleanup(func() { m.link.Heal(); _ = m.end() })
	return m
}

func (m *member) end() error {
	m.stop()
	err := <-m.done
	m.done <- err
	if cerr := m.tap.Backend.Close(); cerr != nil {
		m.w.Error(cerr)
	}
	return err
}

func (w *world) member(node string, change ...func(*Options)) *member {
	w.Helper()
	return w.newMember(node, change...).run()
}

func (m *member) said(prefix string) (got []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, e := range m.events {
		if strings.HasPrefix(e, prefix) {
			got = append(got, e)
		}
	}
	return got
}

// eventually waits for a condition, for at most a minute of the bubble's time.
func (w *world) eventually(what string, cond func() bool) {
	w.Helper()
	for range 60_000 {
		synctest.Wait()
		if cond() {
			return
		}
		time.Sleep(time.Millisecond)
	}
	w.Fatalf("not within a minute: %s", what)
}

func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

type leases struct {
	mu  sync.Mutex
	all []*Lease
	at  []time.Time
}

// hold is a handler that serves until its context ends.
func (h *leases) hold(ctx context.Context, l *Lease) error {
	h.add(l)
	<-ctx.Done()
	return nil
}

func (h *leases) add(l *Lease) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.all = append(h.all, l)
	h.at = append(h.at, time.Now())
}

func (h *leases) count() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.all)
}

func (h *leases) await(w *world, n int) *Lease {
	w.Helper()
	w.eventually(fmt.Sprintf("lease %d", n), func() bool { return h.count() >= n })
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.all[n-1]
}

func shardNames(n int) []string {
	s := make([]string, n)
	for i := range s {
		s[i] = fmt.Sprintf("shard-%05d", i)
	}
	return s
}
