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
	"github.com/tenure-go/tenure/internal/seam"
	"github.com/tenure-go/tenure/internal/trace"
	"github.com/tenure-go/tenure/internal/virtual"
)

// Handler does a shard's work under one lease. The Elector calls the Handler once for each lease,
// in a new goroutine, and gives up the lease when the Handler returns.
//
// The context ctx ends when the handler should stop taking work. Then context.Cause returns an
// error that matches ErrWithdrawn, ErrHandOver, ErrShutdown, ErrIneligible, ErrFailback or, if it
// is a *RevokedError, ErrLost. After ctx has ended, the handler must return within
// Options.DrainBudget. For final writes, use lease.Context(), which ends only when the lease may no
// longer be used.
//
// If a handler returns nil or an error before ctx has ended, the Elector gives up the lease and
// claims the shard again after a back-off. A call to runtime.Goexit counts as an error. The Elector
// does not recover panics. A handler must not wait for a Withdraw of its own shard.
type Handler func(ctx context.Context, lease *Lease) error

// Elector represents one process in a namespace. An Elector uses one session, one heartbeat and one
// watch for any number of shards. All methods are safe for concurrent use.
type Elector struct {
	b    driver.Backend
	info driver.Info
	o    *Options
	clk  *clock
	dice dice
	note *notifier

	calls   sync.WaitGroup // calls to the backend in progress
	callCtx context.Context
	kick    chan struct{} // makes the timer's goroutine reset the timer
	ended   chan struct{}
	commits outbox
	halting chan struct{} // closed when the member is halted, with Options.ReturnHalted
	closed  chan struct{} // closed if the backend was closed, which is an error before Run returns
	lock    *hostLock     // nil if there is no lock
	traced  *trace.Log    // nil if nothing is traced
	toTrace toTrace

	updating sync.Mutex // held while a MemberState is changed; locked before mu

	mu             sync.Mutex
	m              *fsm.Machine
	phase          phase
	queue          []fsm.Input // inputs not stepped yet
	armed          fsm.Instant // when the timer fires
	contended      map[ShardID]Handler
	runs           map[ShardID]*run
	changed        signal          // wakes when runs, stored or the phase changes
	stored         driver.UpdateNo // the last result of Machine.Updated
	sessions       map[SessionID]driver.Session
	claiming       fsm.CallID            // the last claims sent, until the store answers
	former         map[ShardID]SessionID // the shards' former owners; a view may show a grant before its answer arrives
	trust          *trust
	halted         error
	closeErr       error
	leaving        time.Time          // when a planned stop began, or zero
	observing      context.CancelFunc // ends the Observe call in progress
	reading        bool               // the Observe call is reading the full state, so a resync does not end it
	certificateEnd func() time.Time   // when the client's certificate for the store expires

	unread fsm.Instant // when Observe last failed; reset when Observe succeeds
	heard  fsm.Instant // the last news from the store, or Never
	resync bool

	floor      Token // the floor in the newest full view (I2)
	floorKnown bool
	acked      acknowledged

	snap    snapshots
	damages damages
	trouble trouble
	rules   *rulebook
	aside   map[string]seam.Aside // set by SetAside; replaced, never modified
}

type phase uint8

const (
	fresh phase = iota
	running
	stopping
	stopped
)

// NewElector returns an Elector that uses b. The caller closes b after Run has returned. NewElector
// checks the options and does no I/O. Nil options are valid.
func NewElector(b Backend, o *Options) (*Elector, error) {
	if b == nil {
		return nil, fmt.Errorf("tenure: %w: the backend is nil: open one first", ErrInvalid)
	}
	info := b.Info()
	c, err := o.resolve(info.Limits)
	if err != nil {
		return nil, err
	}
	if t, ok := b.(interface{ Trouble(context.Context) error }); ok && c.Trouble == nil {
		c.Trouble = t.Trouble
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

// Run contends for shards and serves them until ctx ends. Run then waits for Options.LameDuck, asks
// all handlers to stop at the same time, and releases each shard as soon as its handler has
// returned (S12). After the wait for Options.LameDuck, the shutdown takes at most the drain budget
// plus two call time-outs. If a hook, the logger, Options.Eligible or Options.Trouble hangs, the shutdown takes one
// drain budget longer.
//
// If the Elector has given up every shard, Run returns nil. Otherwise, Run's error reports one or
// more of the following problems:
//
//   - ErrStuck: the handlers of the listed shards did not return. Another member later evicts this
//     member's session.
//   - ErrStoreChanged: the store was wiped, restored or replaced, so the Elector granted no further
//     lease. With Options.ReturnHalted, Run returns without waiting for ctx.
//   - ErrClosed: the backend was closed before or during Run. The leases end immediately, handlers
//     have the drain budget to return, and Run does not wait for ctx.
//   - The session could not be closed, or it was left open because a commit was still in flight.
//
// A failure of the store never ends Run before ctx ends (V2).
//
// Call Run only once. When Run returns, all its goroutines have ended, except the goroutines of
// handlers, hooks, and calls of Options.Eligible and Options.Trouble that do not return.
func (e *Elector) Run(ctx context.Context) error {
	callCtx, cancelCalls := context.WithCancel(context.WithoutCancel(ctx))
	defer cancelCalls()
	loopCtx, cancelLoops := context.WithCancel(callCtx)
	defer cancelLoops()
	if err := e.start(callCtx); err != nil {
		return err
	}

	hooksDone := make(chan struct{})
	go func() { defer close(hooksDone); e.note.serve() }()
	var loops sync.WaitGroup
	loops.Go(func() { e.keepTime(loopCtx) })
	loops.Go(func() { e.observe(loopCtx) })
	loops.Go(func() { e.obeyRules(loopCtx) })
	loops.Go(func() { e.watchTrouble(loopCtx) })
	judged := make(chan struct{})
	go func() {
		defer close(judged)
		var all sync.WaitGroup
		defer all.Wait()
		if e.o.Trouble != nil {
			all.Go(func() { e.judge(loopCtx, e.o.Trouble, &verdict{e: e, into: &e.trouble.reported}) })
		}
		if e.o.Eligible != nil {
			e.judge(loopCtx, e.o.Eligible, &verdict{e: e, why: notAsked, into: &e.trouble.unfit})
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
			hookErr = errors.New("tenure: Options.Eligible or Options.Trouble did not return within the drain budget: " +
				"make them return when their context ends")
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

// After a successful start, Contend steps the machine.
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
		e.note.session(Event{Kind: SessionFailedOver, Err: errors.New(e.info.Rollback)}, nil)
	}
	e.queue = append(e.queue, fsm.Input{Kind: fsm.InWant, Shards: slices.Collect(maps.Keys(e.contended))})
	e.drainQueue()
	return nil
}

// Leave begins a planned stop. Leave sets View.Leaving, so that package tenurehttp's /readyz
// answers 503. The member otherwise continues as before. Leave does not wait. Leave returns how
// much of Options.LameDuck remains, counted from the first call. Run calls Leave when its context
// ends. The Manager of package sharding calls Leave before it empties the member.
func (e *Elector) Leave() time.Duration {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.leaving.IsZero() {
		e.leaving = time.Now()
		e.snap.bump()
	}
	return max(0, e.o.LameDuck-time.Since(e.leaving))
}

// TrustRemaining returns how long this member's leases stay valid if no further heartbeat succeeds,
// or 0 if the member is not trusted now.
func (e *Elector) TrustRemaining() time.Duration {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := e.clk.now()
	if !e.m.Trusted(now) {
		return 0
	}
	return max(0, fsm.Instant(e.trust.until.Load()).Sub(now))
}

// Heartbeats returns, by session, how long ago this member saw the last heartbeat of each member
// that it watches. In a cluster of up to 17 members, a member watches all others. In a larger
// cluster, a member watches only its three predecessors. If this member is not trusted, Heartbeats
// returns nil, because silence then proves nothing.
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

// Lease returns the lease under which this process currently serves a shard. Use Lease for work
// that begins outside the shard's handler, such as a request. Lease returns nil if the lease is
// invalid, or if its handler is not running or was asked to stop. Lease does no I/O. The lease may
// end immediately after the call. The lease's Context then ends, and the store refuses later
// commits. When the handler returns, the Elector gives up the lease, even if other work uses it.
func (e *Elector) Lease(shard string) *Lease {
	e.mu.Lock()
	defer e.mu.Unlock()
	r := e.runs[ShardID(shard)]
	if r == nil || r.state != LeaseHeld || r.lease.Err() != nil {
		return nil
	}
	return r.lease
}

// lameDuck begins the planned stop, and waits until LameDuck has passed or the backend is closed.
func (e *Elector) lameDuck() {
	d := e.Leave()
	if d <= 0 {
		return
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-e.closed:
	}
}

// shutDown asks every handler to stop, waits until each lease is given up or the time limit has
// passed, and leaves the namespace. The results are the shards whose handlers did not return, and
// the runs whose handlers returned but whose last commits are not settled.
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

// emptied reports whether only stuck handlers are left, so that the shutdown can stop waiting.
func (e *Elector) emptied() bool {
	for _, r := range e.runs {
		if r.state != LeaseStuck {
			return false
		}
	}
	return true
}

// Contend makes this process contend for shards, and serve each shard with h while the process
// holds the shard's lease. Contend may be called before and during Run, and does not wait. The
// process joins when Contend is first called. A shard for which this process is only a standby
// takes about 300 bytes of memory. Names that start with "_" are reserved for Tenure.
//
// Contend accepts either all of the shards or none. If a name is invalid, or if the shards would
// exceed 200,000 in total, the error is ErrInvalid. If this member already contends for a shard,
// the error is ErrContended. After Run has ended, the error is ErrStopped.
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
	if n := len(e.contended) + len(shards); n > seam.MaxContended {
		return fmt.Errorf("tenure: %w: this member would contend for %d shards, and %d is the most: use fewer shards, each for more keys",
			ErrInvalid, n, seam.MaxContended)
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

// Update changes the state that this member publishes. Update calls the function change with the
// current state, which is initially the state in Options. Update waits until the store contains the
// new state, so that the other members can see it. The argument ctx limits only the wait. If this
// member has no session, its next join publishes the new state. The Elector makes one change at a
// time, so this function must not call Update.
//
// The new Priority applies to all later claims (C9). Assigners, such as package sharding, use
// Weight, Meta and Draining. If the state is outside the limits, nothing changes, and the error
// matches ErrInvalid. After Run has ended, the error matches ErrStopped. Any other error comes from
// ctx.
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

// changeState calls change, passes the resulting state to the machine, and returns the state's
// number. Elector.mu is not held during the call, so that no heartbeat waits for it. The reserved
// keys of Meta are kept, and are hidden from change unless own is set.
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
	return e.m.State().Update, nil // a change of eligibility also takes a number
}

// Withdraw makes this member stop contending for shards. Withdraw asks the shards' handlers to
// stop, with the cause ErrWithdrawn, and gives up each lease after its handler has returned. If a
// standby is known, one write passes the shard to the standby. The standby is the first session
// that was passed to Prefer, or the only other member. If no standby is known, the shard is
// released, and the first of the other members claims it (C13). Withdraw waits until each lease has
// ended, and ctx limits only that wait. Withdraw accepts shards for which this member does not
// contend.
//
// If a handler did not return within the drain budget, the error matches ErrStuck. Any other error
// comes from ctx. A stuck handler does not delay other shards.
func (e *Elector) Withdraw(ctx context.Context, shards ...string) error {
	return e.giveBack(ctx, "", ErrWithdrawn, shards)
}

// HandOver is like Withdraw, but the caller chooses the successor's session. After a shard's
// handler has returned, one write passes the shard to the successor (A5). If the successor contends
// for the shard, the successor serves the shard immediately. If the successor does not contend for
// the shard, it releases the shard. The cause of the handlers' contexts is ErrHandOver. If the
// successor is not alive, the shard is released and the error matches ErrNoTarget. If a lease was
// lost before the hand-over, the error matches ErrLost. HandOver also fails if Run ends first, or
// if a later HandOver, Withdraw or Contend by this member gives the shard to another session.
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

// unwant makes this member stop contending for shards. The caller must hold e.mu, and the queue
// must be empty.
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
			return fmt.Errorf("tenure: %w: the lock %q is Tenure's own (C18): use another name", ErrInvalid, s[len(driver.LockPrefix):])
		}
		if _, dup := seen[s]; dup {
			return fmt.Errorf("tenure: %w: shard %q is named twice", ErrInvalid, s)
		}
		seen[s] = struct{}{}
	}
	return nil
}

// A dice generates random waits for an Elector's retries from Options.Seed. It is safe for
// concurrent use.
type dice struct {
	mu  sync.Mutex
	rnd *rand.Rand
}

// jittered returns d minus a random part of up to half of d.
func (s *dice) jittered(d time.Duration) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return d - time.Duration(s.rnd.Int64N(int64(d/2)+1))
}
