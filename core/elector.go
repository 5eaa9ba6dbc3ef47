package core

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/fsm"
	"github.com/tenure-go/tenure/internal/mark"
	"github.com/tenure-go/tenure/internal/trace"
	"github.com/tenure-go/tenure/internal/virtual"
)

// Handler does a shard's work under one lease. It is called once for each lease,
// in a goroutine of its own, and the lease is given back when it returns.
//
// ctx ends when the handler should stop taking work; context.Cause gives an error that
// matches ErrWithdrawn, ErrHandOver, ErrShutdown, ErrIneligible, ErrFailback or, as a
// *RevokedError, ErrLost. It then has Options.DrainBudget to return. For closing writes there is
// lease.Context(), which ends only when the lease may not be used any more.
//
// A handler that returns before ctx ended, with nil or an error, gives its lease
// back, and the shard is tried here again after a back-off. Panics are not
// recovered. A handler must not wait for its own Withdraw.
type Handler func(ctx context.Context, lease *Lease) error

// Elector takes part in a namespace for one process: one session, one heartbeat
// and one watch for any number of shards. All methods are safe for concurrent
// use.
type Elector struct {
	b    driver.Backend
	info driver.Info
	o    *Options
	clk  *clock
	dice dice
	note *notifier

	calls   sync.WaitGroup // calls to the backend that are under way
	callCtx context.Context
	kick    chan struct{} // the timer has to be set anew
	ended   chan struct{}
	commits outbox
	halting chan struct{} // closed when the member is halted, with Options.ReturnHalted
	closed  chan struct{} // closed when the backend is, which is nobody's to do before Run returned
	lock    *hostLock     // nil if there is none
	traced  *trace.Log    // nil: nothing is traced
	toTrace toTrace

	updating sync.Mutex // while a MemberState is changed; locked before mu

	mu             sync.Mutex
	m              *fsm.Machine
	phase          phase
	queue          []fsm.Input // not yet stepped
	armed          fsm.Instant // when the timer fires
	contended      map[ShardID]Handler
	runs           map[ShardID]*run
	changed        signal          // runs, stored, or the phase
	stored         driver.UpdateNo // what Machine.Updated said last
	sessions       map[SessionID]driver.Session
	claiming       fsm.CallID            // the claims that were sent last, if they have no answer
	former         map[ShardID]SessionID // who had their shards; a view may show a grant before the answer
	trust          *trust
	halted         error
	closeErr       error
	leaving        time.Time          // when a planned stop began; zero: none has
	observing      context.CancelFunc // of the Observe call under way
	reading        bool               // that call reads in full, and is left to end
	certificateEnd func() time.Time   // of the client, to the store

	unread fsm.Instant // when Observe failed last, until it is answered
	heard  fsm.Instant // the last news from the store; Never before the first
	resync bool

	floor      Token // of the newest full view (I2)
	floorKnown bool
	acked      acknowledged

	snap    snapshots
	damages damages
	trouble trouble
	rules   *rulebook
	aside   map[string]Aside // by SetAside; replaced, never modified
}

type phase uint8

const (
	fresh phase = iota
	running
	stopping
	stopped
)

// NewElector returns an Elector on b, which stays the caller's, to be closed
// after Run returned. It checks the options and does no I/O. Nil options work.
func NewElector(b Backend, o *Options) (*Elector, error) {
	if b == nil {
		return nil, fmt.Errorf("tenure: %w: the backend is nil: open one first", ErrInvalid)
	}
	info := b.Info()
	c, err := o.resolve(info.Limits)
	if err != nil {
		return nil, err
	}
	e := &Elector{
		b: b, info: info, o: c, clk: newClock(bootAhead), dice: dice{rnd: rand.New(rand.NewPCG(c.Seed, 0))}, note: newNotifier(c.Hooks, c.Logger, c.Node),
		kick: make(chan struct{}, 1), ended: make(chan struct{}),
		closed:    make(chan struct{}),
		halting:   make(chan struct{}),
		armed:     fsm.Never,
		heard:     fsm.Never,
		contended: make(map[ShardID]Handler),
		runs:      make(map[ShardID]*run),
		sessions:  make(map[SessionID]driver.Session),
		trust:     &trust{},
		snap:      snapshots{moves: map[bool]*ring{true: {}, false: {}}},
		acked:     make(acknowledged),
		damages:   damages{keep: max(damageResyncs*c.Resync, 2*damageAgain)},
		rules:     newRulebook(),
		trouble:   trouble{wake: make(chan struct{}, 1), refusals: map[string]*refusal{}, unfit: c.machine().Ineligible},
	}
	e.note.heed = e.heed
	e.commits.e = e
	e.certificateEnd = func() time.Time { return time.Time{} }
	if c, ok := b.(interface{ CertificateEnd() time.Time }); ok {
		e.certificateEnd = c.CertificateEnd
	}
	cfg := c.machine()
	if h, ok := b.(virtual.Host); ok {
		p := h.Process()
		e.clk, cfg.NewSession = newClock(p.Ahead), func() SessionID { return SessionID(p.SessionID()) }
		e.clk.behind = p.Behind
	}
	e.m = fsm.New(cfg)
	e.newTrace(&cfg)
	return e, nil
}

// Run takes part until ctx ends, then waits for Options.LameDuck, and hands everything
// back: all handlers are asked to stop at once, and each shard is released as soon as its
// handler returned (S12). After the wait that takes at most the drain budget and two call time-outs, and
// the drain budget once more where a hook, the logger or Options.Eligible hangs.
//
// It returns nil when everything was handed back. Otherwise the error matches
// ErrStuck, with the names of the shards whose handler did not return, and whose
// session is left to be evicted; or ErrStoreChanged, after which nothing was
// granted any more, and at which Run returns by itself if Options.ReturnHalted is set; or
// it says that the session could not be closed, or was not since a commit was still in
// flight. No failure of the store ends it before ctx
// does (V2). A backend that is closed meanwhile does, or was before Run: the leases
// end at once, handlers have the drain budget to return, and the error matches
// ErrClosed.
//
// Run is called once. Every goroutine is joined when it returns, but for handlers,
// hooks and an Options.Eligible that do not return.
func (e *Elector) Run(ctx context.Context) error {
	callCtx, cancelCalls := context.WithCancel(context.WithoutCancel(ctx))
	defer cancelCalls()
	loopCtx, cancelLoops := context.WithCancel(callCtx)
	defer cancelLoops()
	if err := e.start(callCtx); err != nil {
		return err
	}

	hooksDone := make(chan struct{})
	go func() { defer close(hooksDone); e.note.run() }()
	var loops sync.WaitGroup
	loops.Go(func() { e.keepTime(loopCtx) })
	loops.Go(func() { e.observe(loopCtx) })
	loops.Go(func() { e.obeyRules(loopCtx) })
	loops.Go(func() { e.watchTrouble(loopCtx) })
	judged := make(chan struct{})
	go func() {
		defer close(judged)
		if e.o.Eligible != nil {
			e.judge(loopCtx)
		}
	}()

	var closedErr error
	select {
	case <-ctx.Done():
		e.lameDuck()
	case <-e.halting:
	case <-e.closed:
		closedErr = fmt.Errorf("tenure: %w: the backend: close it after Run has returned", ErrClosed)
	}
	stuck, unsettled := e.shutDown()
	defer func() { e.lock.end(len(stuck) == 0 && len(unsettled) == 0) }()
	defer time.AfterFunc(e.o.CallTimeout, cancelCalls).Stop()
	e.calls.Wait()
	for _, r := range unsettled {
		e.awaitJoin(r)
	}
	cancelLoops()
	loops.Wait()
	e.endTrace()

	e.note.close()
	late := time.NewTimer(e.o.DrainBudget)
	defer late.Stop()
	var hookErr error
	select {
	case <-hooksDone:
		select {
		case <-judged:
		case <-late.C:
			hookErr = errors.New("tenure: Options.Eligible did not return within the drain budget: make it return when its context ends")
		}
	case <-late.C:
		hookErr = errors.New("tenure: a hook or the logger did not return within the drain budget")
	}

	e.mu.Lock()
	defer e.mu.Unlock()
	var stuckErr error
	if len(stuck) > 0 {
		stuckErr = &StuckError{Shards: stuck}
	}
	var unsettledErr error
	if len(unsettled) > 0 {
		unsettledErr = fmt.Errorf("tenure: shard %q, of %d: what became of its last commit was not known in time: the session is left to be evicted",
			unsettled[0].lease.fence.Shard, len(unsettled))
	}
	return errors.Join(closedErr, e.halted, stuckErr, unsettledErr, e.closeErr, hookErr)
}

// start makes the machine run: from here on Contend steps it.
func (e *Elector) start(callCtx context.Context) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.phase != fresh {
		return fmt.Errorf("tenure: %w: Run is called once; make another Elector", ErrStopped)
	}
	e.hold()
	if err := e.startTrace(); err != nil {
		e.lock.end(true)
		e.phase = stopped
		close(e.ended)
		e.changed.wake()
		e.snap.bump()
		return err
	}
	e.phase, e.callCtx = running, callCtx
	if e.info.Rollback != "" {
		e.note.session(SessionEvent{Kind: SessionFailedOver, Err: errors.New(e.info.Rollback)}, nil)
	}
	e.queue = append(e.queue, fsm.Input{Kind: fsm.InWant, Shards: slices.Collect(maps.Keys(e.contended))})
	e.drainQueue()
	return nil
}

// Leave begins a planned stop: View.Leaving is set from now on, so that /readyz of
// package tenurehttp answers 503, while everything else goes on. It does not wait, and
// returns how much is left of Options.LameDuck since the first call. Run calls it when
// its context ends, as does the Manager of package sharding before it empties the member.
func (e *Elector) Leave() time.Duration {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.leaving.IsZero() {
		e.leaving = time.Now()
		e.snap.bump()
	}
	return max(0, e.o.LameDuck-time.Since(e.leaving))
}

// TrustRemaining is how long the leases of this member stay valid if no heartbeat
// succeeds any more; 0 without trust.
func (e *Elector) TrustRemaining() time.Duration {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := e.clk.now()
	if !e.m.Trusted(now) {
		return 0
	}
	return max(0, fsm.Instant(e.trust.until.Load()).Sub(now))
}

// News returns how long ago this member had its last news from the store: an answer to Observe, or to
// a heartbeat unless Observe fails again and again. fresh reports whether that is at most a TTL ago. A View
// without fresh news may name owners that have lost their shards. A member that contends for nothing
// sends no heartbeats; its news are fresh for two Resync periods more.
func (e *Elector) News() (age time.Duration, fresh bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.heard == fsm.Never {
		return 0, false
	}
	age, limit := max(0, e.clk.now().Sub(e.heard)), e.o.TTL
	if len(e.contended) == 0 {
		limit += 2 * e.o.Resync
	}
	return age, age <= limit
}

// Heartbeats returns, by session, how long ago this member saw the last heartbeat of each
// member that it watches: of all others up to 17 members, else of its three predecessors.
// It is empty without trust, since silence then says nothing about the others.
func (e *Elector) Heartbeats() map[SessionID]time.Duration {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := e.clk.now()
	if !e.m.Trusted(now) {
		return nil
	}
	ages := make(map[SessionID]time.Duration)
	for _, h := range e.m.AppendHeard(nil) {
		ages[h.Session] = max(0, now.Sub(h.At))
	}
	return ages
}

// Lease returns the lease under which this process serves a shard at present, for work
// that begins outside its handler, such as a request: the handler runs, has not been
// asked to stop, and the lease is valid. Else it is nil. It asks nobody. The lease may end
// right after; its Context says when, and its fence refuses later commits. It is given back
// when the handler returns, whatever other work still uses it.
func (e *Elector) Lease(shard string) *Lease {
	e.mu.Lock()
	defer e.mu.Unlock()
	r := e.runs[ShardID(shard)]
	if r == nil || r.state != LeaseHeld || r.lease.Err() != nil {
		return nil
	}
	return r.lease
}

// Done is closed when Run has ended, after which nothing is granted any more.
func (e *Elector) Done() <-chan struct{} { return e.ended }

// Stay takes back a Leave. It does not keep Run from ending.
func (e *Elector) Stay() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.leaving.IsZero() {
		e.leaving = time.Time{}
		e.snap.bump()
	}
}

// lameDuck waits between the end of Run's context and the stop of the handlers.
func (e *Elector) lameDuck() {
	t := time.NewTimer(e.Leave())
	defer t.Stop()
	select {
	case <-t.C:
	case <-e.closed:
	}
}

// shutDown asks every handler to stop, waits until each shard is given back or
// the time is up, and leaves. It returns the shards whose handler did not return,
// and the leases whose handler did, but whose last commit is not settled.
func (e *Elector) shutDown() (stuck []string, unsettled []*run) {
	limit := time.NewTimer(e.o.DrainBudget + e.o.CallTimeout)
	defer limit.Stop()
	e.mu.Lock()
	defer e.mu.Unlock()
	e.phase = stopping
	e.snap.bump()
	e.unwant(slices.Collect(maps.Keys(e.contended)), "", ErrShutdown)
	select {
	case <-e.closed: // nothing can be released
		e.queue = append(e.queue, fsm.Input{Kind: fsm.InLeave})
		e.drainQueue()
	default:
	}
	e.changed.wake()
	for late := false; !late && !e.emptied(); {
		w := e.changed.wait()
		e.mu.Unlock()
		select {
		case <-w:
		case <-limit.C:
			late = true
		}
		e.mu.Lock()
	}
	e.queue = append(e.queue, fsm.Input{Kind: fsm.InLeave})
	e.drainQueue()
	e.phase = stopped
	for s, r := range e.runs {
		switch {
		case r.state.running():
			stuck = append(stuck, string(s))
		case !r.settled:
			unsettled = append(unsettled, r)
		}
		r.stopTimers()
	}
	slices.Sort(stuck)
	close(e.ended)
	e.changed.wake()
	e.snap.bump()
	return stuck, unsettled
}

// emptied reports whether there is nothing left to wait for: no lease is held, no
// handler runs, but for those that are stuck.
func (e *Elector) emptied() bool {
	for _, r := range e.runs {
		if r.state != LeaseStuck {
			return false
		}
	}
	return true
}

// MaxContended is for how many shards one member contends at most. A member may have to
// serve all of them: each that it owns has a goroutine, and costs the store its part of
// each full read.
const MaxContended = 200_000

// Contend makes this process want shards and serve each with h while it holds
// it. It may be called before and during Run; the process joins with the first.
// It does not wait. A standby for a shard costs some 300 bytes and nothing else.
// Names that start with "_" are Tenure's own.
//
// All shards are taken or none: ErrInvalid for a name outside the grammar, or for more
// than MaxContended shards in all, before anything is claimed; ErrContended for a shard contended already, ErrStopped after Run's end.
func (e *Elector) Contend(h Handler, shards ...string) error {
	if h == nil {
		return errNoHandler
	}
	if err := checkShards(shards); err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.phase >= stopping {
		return fmt.Errorf("tenure: %w: nothing can be contended for any more", ErrStopped)
	}
	if n := len(e.contended) + len(shards); n > MaxContended {
		return fmt.Errorf("tenure: %w: this member would contend for %d shards, and %d is the most: use fewer shards, each for more keys",
			ErrInvalid, n, MaxContended)
	}
	for i, s := range shards {
		if _, dup := e.contended[ShardID(s)]; dup {
			for _, t := range shards[:i] {
				delete(e.contended, ShardID(t))
			}
			return fmt.Errorf("tenure: shard %q: %w: withdraw it first", s, ErrContended)
		}
		e.contended[ShardID(s)] = h
	}
	if e.phase == running {
		ids := make([]ShardID, len(shards))
		for i, s := range shards {
			ids[i] = ShardID(s)
		}
		e.queue = append(e.queue, fsm.Input{Kind: fsm.InWant, Shards: ids})
		e.drainQueue()
	}
	e.snap.bump()
	return nil
}

// Preference says who claims a shard first when it is free: First, or Second when
// First does not live or does not act.
type Preference struct {
	Shard         string
	First, Second SessionID // either may be empty
}

// Prefer tells this member in which order the members claim shards (C9): those
// named before all others, which follow by priority, then by rendezvous hash. It is
// advice, for shards contended here or not, and lasts until the next for the same
// shard. Members that were told different things only claim more often than
// needed. Operators' rules (package control) about a shard with a preference are its
// assigner's to obey, and no Elector's. Package sharding uses it; ErrInvalid for a name
// outside the grammar.
func (e *Elector) Prefer(prefs ...Preference) error {
	for i := range prefs {
		if err := CheckShard(prefs[i].Shard); err != nil {
			return err
		}
	}
	const most = 1024 // with the lock held, so that no heartbeat waits long
	for part := range slices.Chunk(prefs, most) {
		in := fsm.Input{Kind: fsm.InPrefer, Shards: make([]ShardID, len(part)), Heirs: make([]fsm.Heirs, len(part))}
		for i, p := range part {
			in.Shards[i], in.Heirs[i] = ShardID(p.Shard), fsm.Heirs{p.First, p.Second}
		}
		e.feed(in)
	}
	return nil
}

// SetAside replaces the set of shards that are not meant to have an owner at present. Views show
// the reason of each, and do not count it as unowned; nothing else changes. Package sharding sets
// aside shards that have ended, and those in quarantine. The caller does not modify the map
// afterwards.
func (e *Elector) SetAside(reasons map[string]Aside) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.aside = reasons
	e.snap.bump()
}

// Update changes what this member tells the others about itself: change gets the present
// state, which was Options' at first. Update waits until the store has the new state,
// from where the others see it in their views; ctx bounds the wait only. What changes
// while there is no session goes with the next join. Changes are made one at a time;
// change must not call Update.
//
// Priority counts in the order of claims (C9) from now on. Weight, Meta and Draining are
// for those who assign shards, such as package sharding. The error is ctx's, or matches
// ErrInvalid for a state outside the limits, which changes nothing, or ErrStopped after
// Run's end.
func (e *Elector) Update(ctx context.Context, change func(*MemberState)) error {
	number, err := e.changeState(mark.Allowed(ctx), change)
	if err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for {
		stored, _ := e.m.Updated()
		switch {
		case e.halted != nil:
			return e.halted
		case e.phase == stopped:
			return fmt.Errorf("tenure: %w: it is not known whether the update was stored", ErrStopped)
		case stored >= number:
			return nil
		}
		w := e.changed.wait()
		e.mu.Unlock()
		select {
		case <-w:
			e.mu.Lock()
		case <-ctx.Done():
			e.mu.Lock()
			if _, err := e.m.Updated(); err != nil {
				return fmt.Errorf("tenure: the update is not stored yet: %w: the last attempt: %w", context.Cause(ctx), err)
			}
			return fmt.Errorf("tenure: the update is not stored yet: %w", context.Cause(ctx))
		}
	}
}

// changeState gives the machine the state that change makes, and returns its number.
// change runs without Elector.mu, so that no heartbeat waits for it. Tenure's own keys of Meta are
// kept, and hidden from change unless own is set.
func (e *Elector) changeState(own bool, change func(*MemberState)) (driver.UpdateNo, error) {
	e.updating.Lock()
	defer e.updating.Unlock()
	e.mu.Lock()
	before, lock, ended := e.m.State(), e.lock, e.phase == stopped
	e.mu.Unlock()
	if ended {
		return 0, fmt.Errorf("tenure: %w: nothing can be updated any more", ErrStopped)
	}
	before.Meta = troubled(before.Meta, "")
	st := before
	st.Meta = maps.Clone(before.Meta)
	value, marked := before.Meta[mark.Key]
	if !own {
		delete(st.Meta, mark.Key)
	}
	change(&st)
	st.Meta, st.Update = maps.Clone(st.Meta), before.Update+1
	if !own {
		if err := checkMeta(st.Meta); err != nil {
			return 0, err
		}
		if marked && st.Meta == nil {
			st.Meta = map[string]string{}
		}
		if marked {
			st.Meta[mark.Key] = value
		}
	}
	if err := e.o.checkState(st, lock); err != nil {
		return 0, err
	}
	if st.Priority == before.Priority && st.Weight == before.Weight && st.Draining == before.Draining &&
		maps.Equal(st.Meta, before.Meta) {
		return before.Update, nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	st.Meta = troubled(st.Meta, e.trouble.public)
	e.queue = append(e.queue, fsm.Input{Kind: fsm.InUpdate, State: st})
	e.drainQueue()
	return e.m.State().Update, nil // eligibility has a number, too
}

// Withdraw ends the contention for shards: their handlers are asked to stop, with
// ErrWithdrawn, and each shard is given back when its handler returned: in one write to
// a member that stands by where one is known (the first that Prefer named, or the only
// other member), else to nobody, and the first of the others claims it (C13). Withdraw
// waits until that is done, or until the lease ended otherwise; ctx bounds the
// wait only. A shard that is not contended is no error.
//
// The error is ctx's, or matches ErrStuck if a handler did not return within the
// drain budget; other shards are not delayed by it.
func (e *Elector) Withdraw(ctx context.Context, shards ...string) error {
	return e.giveBack(ctx, "", ErrWithdrawn, shards)
}

// HandOver is Withdraw with a successor: when its handler returned, each shard
// goes to session to in one write (A5), whose process gets it at once if it
// contends for it, and gives it back otherwise. Handlers are asked to stop with
// ErrHandOver. If the successor does not live the shard is released instead, and
// the error matches ErrNoTarget; if a lease was lost first, it matches ErrLost. It
// is also an error if another HandOver, a Contend here or the end of Run came first.
func (e *Elector) HandOver(ctx context.Context, to SessionID, shards ...string) error {
	if err := driver.CheckSession(to); err != nil {
		return err
	}
	return e.giveBack(ctx, to, ErrHandOver, shards)
}

func (e *Elector) giveBack(ctx context.Context, to SessionID, cause error, shards []string) error {
	if err := checkShards(shards); err != nil {
		return err
	}
	e.mu.Lock()
	if to != "" && to == e.m.Session() {
		e.mu.Unlock()
		return fmt.Errorf("tenure: %w: session %s is this process's own: name another member's", ErrInvalid, to)
	}
	var waits []*run
	var ids []ShardID
	for _, s := range shards {
		id := ShardID(s)
		r := e.runs[id]
		if r != nil {
			waits = append(waits, r)
		}
		if _, ok := e.contended[id]; ok || r != nil && to != "" {
			ids = append(ids, id)
		}
	}
	e.unwant(ids, to, cause)
	e.snap.bump()
	e.mu.Unlock()

	var stuck []string
	var errs []error
	for _, r := range waits {
		isStuck, err := e.awaitOver(ctx, r)
		switch {
		case err != nil:
			return fmt.Errorf("tenure: shard %q is not given back yet: %w", r.lease.fence.Shard, err)
		case isStuck:
			stuck = append(stuck, r.lease.Shard())
		case to != "":
			e.mu.Lock()
			errs = append(errs, r.handedOver(to))
			e.mu.Unlock()
		}
	}
	if len(stuck) > 0 {
		errs = append(errs, &StuckError{Shards: stuck})
	}
	return errors.Join(errs...)
}

// unwant ends the contention for shards. e.mu is held, the queue empty.
func (e *Elector) unwant(shards []ShardID, to SessionID, cause error) {
	for _, s := range shards {
		delete(e.contended, s)
		if r := e.runs[s]; r != nil {
			e.askToStop(r, cause)
		}
	}
	if e.phase == fresh || len(shards) == 0 {
		return
	}
	e.queue = append(e.queue, fsm.Input{Kind: fsm.InUnwant, Shards: shards, To: to})
	e.drainQueue()
}

func checkShards(shards []string) error {
	seen := make(map[string]struct{}, len(shards))
	for _, s := range shards {
		if err := driver.CheckShard(ShardID(s)); err != nil {
			return err
		}
		if ShardID(s) == probeLock {
			return fmt.Errorf("tenure: %w: the lock %q is Tenure's own (C18): use another name", ErrInvalid, s)
		}
		if _, dup := seen[s]; dup {
			return fmt.Errorf("tenure: %w: shard %q is named twice", ErrInvalid, s)
		}
		seen[s] = struct{}{}
	}
	return nil
}

// dice draws the waits of an Elector's own retries, from Options.Seed. Safe for
// concurrent use.
type dice struct {
	mu  sync.Mutex
	rnd *rand.Rand
}

// jittered is d less up to half of it, at random.
func (s *dice) jittered(d time.Duration) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return d - time.Duration(s.rnd.Int64N(int64(d/2)+1))
}
