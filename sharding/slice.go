package sharding

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/boundjson"
	"github.com/tenure-go/tenure/internal/errtext"
	"github.com/tenure-go/tenure/internal/goexit"
	"github.com/tenure-go/tenure/internal/keyspace"
	"github.com/tenure-go/tenure/sharding/assign"
)

// ErrMoved means that a key does not belong to this shard, or does not belong to it yet. The error
// is a *MovedError.
var ErrMoved error = errtext.NotApplied("key belongs to another shard")

// MovedError identifies the shard to which a key belongs. A MovedError matches ErrMoved.
type MovedError struct {
	Shard string // the shard that refused the key
	// To is the shard to which the key belongs, according to the map in the process that refused
	// the key. If the key belongs to Shard but Shard does not serve it yet, To is Shard itself.
	To   string
	Hash uint64 // the hash of the key
}

func (e *MovedError) Error() string {
	if e.To == e.Shard {
		return fmt.Sprintf("tenure: %v: hash %s comes to %s, which does not have it yet: try again shortly", ErrMoved, keyspace.FormatHash(e.Hash), e.To)
	}
	return fmt.Sprintf("tenure: %v: hash %s is not served by %s: ask %s", ErrMoved, keyspace.FormatHash(e.Hash), e.Shard, e.To)
}

// Unwrap returns ErrMoved. The shard refused the key before anything was sent.
func (e *MovedError) Unwrap() error { return ErrMoved }

// Slice is the part of a keyspace that one lease serves. A Slice tracks which keys the shard serves
// while ranges are split and merged. All methods are safe for concurrent use.
type Slice struct {
	m     *Manager
	lease *core.Lease
	take  Take
	ctx   context.Context // the context of changes
	stop  context.CancelFunc
	log   *slog.Logger
	meter *meter

	serving atomic.Pointer[serving]

	mu      sync.Mutex
	note    note // the note as it is in the store
	busy    bool // a goroutine carries out a change
	again   bool // the table changed during the change
	closed  bool
	closing sync.Once
	waits   string // why the change waits, for the log
	work    sync.WaitGroup
	former  []*serving // earlier ranges in which calls may still be in progress
	started time.Time  // when the current change began
	failed  struct {   // failed attempts to take a range; used by the goroutine that carries out the plan
		number int64
		since  time.Time // time of the first failure
		err    error     // error of the last failure
	}
}

// A shard records the range that it serves in its note, which it writes under its lease. A range
// has only one owner, because the new shard takes it only after the old shard's note names the new
// shard as the recipient.
type note struct {
	Map   int64         `json:"map"` // number of the plan from which the range follows
	Range *assign.Range `json:"range,omitempty"`
	Gave  []gift        `json:"gave,omitempty"` // the ranges that the shard gave away under that plan
	// Refused is the reason why the shard did not take the range that plan Map gave to it. The
	// giver then serves the range again.
	Refused string `json:"refused,omitempty"`
}

// This package keeps its items under keys that begin with ownKeys.
const (
	ownKeys = "tenure/"
	noteKey = ownKeys + "range"
)

// These are the maximum sizes, in bytes, of a note that is read and of note.Refused.
const (
	maxNote    = 16 << 10
	maxRefused = 300
)

func (n *note) has() assign.Range {
	if n.Range == nil {
		return empty
	}
	return *n.Range
}

// serving is a range that is or was served, with the number of calls in progress.
type serving struct {
	has   assign.Range
	in    atomic.Int64
	over  atomic.Bool   // another range has replaced this range
	empty chan struct{} // once over is set, receives an element when the last call leaves
}

func (s *Slice) serve(r assign.Range) {
	next := &serving{has: r, empty: make(chan struct{}, 1)}
	s.meter.setRange(r)
	// A call that enters a removed range after this point notices the new range and leaves the old
	// one.
	s.former = slices.DeleteFunc(s.former, func(v *serving) bool { return v.in.Load() == 0 })
	if was := s.serving.Swap(next); was != nil {
		was.over.Store(true)
		s.former = append(s.former, was)
	}
}

func (v *serving) leave() {
	if v.in.Add(-1) == 0 && v.over.Load() {
		signal(v.empty)
	}
}

// Take copies the data of a range into the shard that receives the range. The shard in from has
// given up the range. That shard's log and items no longer change for the keys in the range, and
// Take can read them through the backend. The operations that Take returns take effect exactly
// once, because the shard commits them together with the note that records the range's arrival. If
// they do not fit into one commit, the shard first commits unconditional puts and deletes, in
// several commits. If Take or a commit fails, Take is called again. Until Take succeeds, both
// shards refuse the range. If all attempts fail for 30 s, the giver gets the range back.
//
// The giver keeps its copy of the data. Therefore, if a range returns to a former giver, Take must
// also delete the old items that the former giver still has in it. Operations on items whose keys
// begin with "tenure/" are ignored, because each shard keeps its own items under this prefix.
type Take func(ctx context.Context, from string, r assign.Range) ([]core.Op, error)

// OpenSlice returns the Slice of a lease's shard. The Slice carries out planned splits and merges
// of the shard's range. In a keyspace, a shard's handler calls OpenSlice before its first write:
//
//	s, err := manager.OpenSlice(ctx, lease, take)
//	if err != nil {
//		return err
//	}
//	defer s.Close()
//
// A range moves from one shard to another in two steps. First, the giver waits until all calls to
// Commit and Do have returned. The giver then writes its note under its lease. The note records the
// range and its recipient. After this note, no current or earlier lease of the giver writes in the
// range. Second, the taker, which waits for the giver's note, takes the range and writes its own
// note. Between the two notes, both shards refuse the range's keys, so no key is ever served by two
// shards. All other keys stay in service.
//
// If there is no data to copy, take may be nil. The changes run until the handler's ctx ends.
// Before the handler returns, call Close, which ends the changes and waits until they have ended.
// If a change takes longer than 30 s, the Slice logs the change and the reason for the delay to
// Options.Logger at Warn, again 1, 5 and 15 minutes later, and then every 15 minutes.
//
// The error matches core.ErrInvalid if the shard is not in the keyspace, its note cannot be
// decoded, or the lease already has an open slice. Any other error comes from ctx or from the
// lease.
func (m *Manager) OpenSlice(ctx context.Context, lease *core.Lease, take Take) (*Slice, error) {
	shard := lease.Shard()
	if _, err := m.o.Keyspace.index(shard); err != nil {
		return nil, err
	}
	if take == nil {
		take = func(context.Context, string, assign.Range) ([]core.Op, error) { return nil, nil }
	}
	item, err := persist(ctx, func(ctx context.Context) (*core.Item, error) { return lease.Get(ctx, noteKey) })
	if err != nil {
		return nil, err
	}
	s := &Slice{m: m, lease: lease, take: take, log: m.o.Logger.With(slog.String("shard", shard))}
	if s.note, err = readNote(shard, item); err != nil {
		return nil, err
	}
	r := s.note.has()
	if item == nil {
		if r, err = m.first(ctx, shard); err != nil {
			return nil, err
		}
	}
	s.meter = newMeter(r, time.Now())
	s.serve(r)
	s.ctx, s.stop = context.WithCancel(ctx)
	m.mu.Lock()
	other := m.slices[shard]
	if other == nil || other.lease != lease { // otherwise, a range could be given away while the other slice serves it
		m.slices[shard], m.meters[shard] = s, s.meter
	}
	m.mu.Unlock()
	if other != nil && other.lease == lease {
		s.stop()
		return nil, fmt.Errorf("tenure: %w: shard %q has an open slice under this lease: use that one, or close it first", core.ErrInvalid, shard)
	}
	s.advance()
	return s, nil
}

type managerKey struct{} // the key of the Manager in a handler's context

// Slices returns a handler for the shards of a Keyspace. The handler keeps a Slice open while this
// process owns the shard, for use by the goroutines that receive requests:
//
//	manager, err := sharding.NewManager(backend, elector, sharding.Slices(take), options)
//
// If there is no data to copy, take may be nil. The method [Manager.Slice] returns the Slice. The
// handler returns OpenSlice's errors.
func Slices(take Take) core.Handler {
	return func(ctx context.Context, lease *core.Lease) error {
		m, ok := ctx.Value(managerKey{}).(*Manager)
		if !ok {
			return fmt.Errorf("tenure: %w: the handler of sharding.Slices needs a Manager: give it to NewManager", core.ErrInvalid)
		}
		s, err := m.OpenSlice(ctx, lease, take)
		if err != nil {
			return err
		}
		defer s.Close()
		<-ctx.Done()
		return nil
	}
}

// Slice returns the open Slice of a lease's shard. If lease is nil, or the shard's handler has not
// opened a Slice yet or has closed it, Slice returns nil.
func (m *Manager) Slice(lease *core.Lease) *Slice {
	m.mu.Lock()
	defer m.mu.Unlock()
	if lease != nil {
		if s := m.slices[lease.Shard()]; s != nil && s.lease == lease {
			return s
		}
	}
	return nil
}

// first returns the range of a shard that has no note.
func (m *Manager) first(ctx context.Context, shard string) (assign.Range, error) {
	for {
		m.mu.Lock()
		t, changed := m.table, m.changed
		m.mu.Unlock()
		if i, ok := indexOf(t, shard); ok && t.keys.same(m.o.Keyspace) {
			return t.first(shard, i)
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return empty, context.Cause(ctx)
		}
	}
}

func (t *assignments) first(shard string, i int) (assign.Range, error) {
	if c := t.change(shard); c != nil {
		return c.before(shard, t.ranges[i]), nil
	}
	if k, err := t.keys.index(shard); err != nil || k >= t.keys.Shards {
		return empty, fmt.Errorf("tenure: %w: shard %q was split off, and its item %s is gone: restore it", core.ErrInvalid, shard, noteKey)
	}
	return t.ranges[i], nil
}

// Check returns nil if the shard serves the key now. Otherwise, the error matches ErrMoved. The
// shard may give up the range immediately afterwards, so write through Commit or Do.
func (s *Slice) Check(key string) error {
	h := s.m.o.Keyspace.Of(key)
	if s.serving.Load().has.Has(h) {
		return nil
	}
	return s.moved(h)
}

func (s *Slice) moved(h uint64) error {
	shard := s.lease.Shard()
	e := &MovedError{Shard: shard, To: shard, Hash: h}
	if m := s.m.Map(); m != nil {
		e.To = m.ShardOf(h)
	}
	return e
}

// Commit calls the lease's Commit for one key. If the shard does not have the key, the error
// matches ErrMoved, and nothing is sent.
func (s *Slice) Commit(ctx context.Context, key string, ops ...core.Op) (core.Committed, error) {
	v, err := s.enter(key)
	if err != nil {
		return core.Committed{}, err
	}
	defer v.leave()
	return s.lease.Commit(ctx, ops...)
}

// Do calls f, which may read and write the key's data under the lease, in the store or outside. If
// the shard does not have the key, the error matches ErrMoved, and f is not called. The shard does
// not give up the range while f runs. Therefore, f must return only when it knows the outcome of
// its writes outside the store. It should return soon, because a change that has waited 5 s for f
// is postponed.
func (s *Slice) Do(key string, f func() error) error {
	v, err := s.enter(key)
	if err != nil {
		return err
	}
	defer v.leave()
	return f()
}

// enter registers a call in the range that is currently served. If another range replaces it during
// enter, enter tries again. A range change therefore waits only for calls that entered the previous
// range.
func (s *Slice) enter(key string) (*serving, error) {
	h := s.m.o.Keyspace.Of(key)
	for {
		v := s.serving.Load()
		v.in.Add(1)
		switch {
		case s.serving.Load() != v:
			v.leave()
		case !v.has.Has(h):
			v.leave()
			return nil, s.moved(h)
		default:
			return v, nil
		}
	}
}

// Range returns the range that the shard serves now, and reports whether the map of ranges gives
// the shard exactly that range.
func (s *Slice) Range() (r assign.Range, whole bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.m.assigned()
	c := t.change(s.lease.Shard())
	return s.serving.Load().has, !s.busy && (c == nil || s.note.Map >= c.Number)
}

// Close ends the changes in progress, including a call to Take, and waits until they have ended.
// Therefore, no change outlives the lease (S12). Close also waits for calls to Commit and Do. After
// Close, Commit and Do return an error that matches ErrMoved. Close may be called more than once,
// but not within a function that Do calls.
func (s *Slice) Close() {
	s.stop()
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.work.Wait()
	s.closing.Do(func() {
		s.serve(empty)
		for _, v := range s.former {
			for v.in.Load() > 0 {
				<-v.empty
			}
		}
	})
	s.m.mu.Lock()
	defer s.m.mu.Unlock()
	if s.m.slices[s.lease.Shard()] == s {
		delete(s.m.slices, s.lease.Shard())
		delete(s.m.meters, s.lease.Shard())
	}
}

// Only one goroutine at a time carries out the table's changes to the range. It ends after the last
// change.
func (s *Slice) advance() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.again = true
	if s.busy || s.closed {
		return
	}
	s.busy = true
	s.started = time.Now()
	done := make(chan struct{})
	s.work.Go(func() {
		defer close(done)
		for wait := retry; s.pending(); wait = longer(wait) {
			err := s.step()
			if err == nil {
				continue
			}
			if s.ctx.Err() != nil || s.lease.Err() != nil {
				return // the slice stays busy, because it can no longer write a note
			}
			if _, say := s.m.ranges.Failed(s.lease.Shard(), time.Now()); say {
				s.log.Warn("tenure: sharding: a change of the shard's range is tried again", slog.Any("error", err))
			}
			pause(s.ctx, wait)
		}
	})
	s.work.Go(func() { s.watch(done) })
}

// pending resets s.again, and reports whether another change may be due.
func (s *Slice) pending() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.m.assigned().change(s.lease.Shard())
	more := s.again || c != nil && c.Number > s.note.Map
	s.again = false
	if !more || s.closed {
		s.busy = false
	}
	return s.busy
}

func (s *Slice) step() error {
	t := s.m.assigned()
	c := t.change(s.lease.Shard())
	if c == nil || c.Number <= s.note.Map {
		return nil
	}
	// The next note replaces the list of gifts, so all gifts must have been taken.
	for len(s.note.Gave) > 0 {
		done, _, err := s.m.taken(s.ctx, s.note.Map, s.note.Gave)
		if err != nil {
			return err
		}
		if done {
			break
		}
		s.waitFor("the shards to which it gave ranges before")
		if !pause(s.ctx, retry/4) {
			return context.Cause(s.ctx)
		}
	}
	if c.From == s.lease.Shard() {
		return s.give(c)
	}
	return s.receive(c, c.gift(s.lease.Shard()))
}

// While a change waits for calls to Commit and Do, the shard refuses the keys. If the calls have
// not ended after drainBudget, the shard serves the whole range again for a while.
const drainBudget = 5 * time.Second

func (s *Slice) give(c *rangeChange) error {
	if len(c.Gifts) == 0 { // the shard takes back gifts that others refused
		s.waitFor("the store")
		if err := s.commit(c.given(), nil); err != nil {
			return err
		}
		s.serve(c.Rest)
		return nil
	}
	if err := s.awaitOwners(c); err != nil {
		return err
	}
	if s.m.blind.Load() || s.m.assigned().change(c.From) == nil { // the change may no longer be planned
		return errors.New("the plan of the change is not in force, or not understood")
	}
	was := c.before(c.From, c.Rest)
	s.waitFor("calls of Commit and Do that do not return")
	s.serve(c.Rest)
	if !s.drain() {
		if s.ctx.Err() != nil {
			return context.Cause(s.ctx)
		}
		s.serve(was)
		pause(s.ctx, drainBudget)
		return errors.New("calls of Commit or Do for the range do not return: bound them")
	}
	s.waitFor("the store")
	if err := s.commit(c.given(), nil); err != nil {
		return err
	}
	s.m.announce()
	return nil
}

func (c *rangeChange) given() note {
	n := note{Map: c.Number, Gave: c.Gifts}
	if !c.Rest.Empty() {
		n.Range = &c.Rest
	}
	return n
}

// gave reports whether the giver's note confirms one of the change's gifts.
func (n *note) gave(c *rangeChange, g gift) (bool, error) {
	if n.Map == c.Number && slices.Contains(n.Gave, g) {
		return true, nil
	}
	if n.Map >= c.Number {
		return false, fmt.Errorf("tenure: %w: shard %q has noted plan %d, and not that it gave %v to %q: restore its item %s",
			core.ErrInvalid, c.From, n.Map, g.Range, g.Shard, noteKey)
	}
	return false, nil
}

// If calls remain in an earlier range for too long, drain returns false.
func (s *Slice) drain() bool {
	limit := time.NewTimer(drainBudget)
	defer limit.Stop()
	for len(s.former) > 0 {
		v := s.former[0]
		if v.in.Load() == 0 {
			s.former = s.former[1:]
			continue
		}
		select {
		case <-v.empty:
		case <-limit.C:
			return false
		case <-s.ctx.Done():
			return false
		}
	}
	return true
}

// awaitOwners waits until each taker has a living owner. The range's keys are therefore refused
// only while these owners take the range.
func (s *Slice) awaitOwners(c *rangeChange) error {
	s.waitFor("an owner of the shards that are split off")
	for v := s.m.e.View(); ; {
		owned := true
		for _, g := range c.Gifts {
			o, ok := v.Owner(g.Shard)
			owned = owned && ok && o.Node != ""
		}
		if owned {
			return nil
		}
		limited, cancel := context.WithTimeout(s.ctx, resync)
		next, err := s.m.e.WaitView(limited, v)
		cancel()
		if err != nil && (s.ctx.Err() != nil || limited.Err() == nil) {
			return err
		}
		if err == nil {
			v = next
		}
	}
}

// If an attempt to take a range fails this long after the first failed attempt, the shard gives the
// range back.
const takeBudget = 30 * time.Second

func (s *Slice) receive(c *rangeChange, g *gift) error {
	s.waitFor(c.From)
	if err := s.m.awaitGift(s.ctx, c, *g); err != nil {
		return err
	}
	if refused, err := s.turn(c, *g); err != nil {
		return err
	} else if refused != "" {
		return s.refuse(c, refused)
	}
	f, waits := &s.failed, "its Take, which has not returned, or the store"
	if f.number == c.Number {
		waits += "; the last attempt failed: " + f.err.Error()
	}
	s.waitFor(waits)
	err := s.fetch(c, g)
	if err == nil {
		return nil
	}
	if f.err = err; f.number != c.Number {
		f.number, f.since = c.Number, time.Now()
	}
	if time.Since(f.since) < takeBudget || errors.Is(err, core.ErrUnknown) {
		return err
	}
	why := "not taken: " + err.Error() // never empty
	if err := s.refuse(c, strings.ToValidUTF8(why[:min(len(why), maxRefused)], "")); err != nil {
		return err
	}
	s.log.Warn("tenure: sharding: a range that cannot be taken goes back", slog.String("range", g.Range.String()),
		slog.String("from", c.From), slog.Any("error", err))
	return nil
}

// turn waits until the shard that gets the next higher range has noted or refused it. The giver
// therefore gets back only ranges that adjoin the range that it kept.
func (s *Slice) turn(c *rangeChange, g gift) (refused string, err error) {
	i := slices.Index(c.Gifts, g) + 1
	if i == len(c.Gifts) {
		return "", nil
	}
	for {
		n, err := s.m.noted(s.ctx, c.Gifts[i].Shard)
		if err != nil || n.Map >= c.Number {
			return n.Refused, err
		}
		s.waitFor(c.Gifts[i].Shard)
		if !pause(s.ctx, retry/10) {
			return "", context.Cause(s.ctx)
		}
	}
}

// fetch commits the operations that Take returns, together with the note.
func (s *Slice) fetch(c *rangeChange, g *gift) error {
	var ops []core.Op
	err := goexit.Call(func() (err error) { ops, err = s.take(s.ctx, c.From, g.Range); return err })
	if err != nil {
		return err
	}
	ops = slices.DeleteFunc(ops, func(op core.Op) bool { return strings.HasPrefix(op.Key, ownKeys) })
	r := join(s.serving.Load().has, g.Range)
	next := note{Map: c.Number, Range: &r}
	if err = s.commit(next, ops); errors.Is(err, core.ErrTooLarge) {
		// Unconditional operations may precede the note, because the shard does not serve these
		// keys yet, and each attempt repeats all of them.
		var first, rest []core.Op
		for _, op := range ops {
			if op.Key != "" && op.IfVersion == driver.AnyVersion {
				first = append(first, op)
			} else {
				rest = append(rest, op)
			}
		}
		if err = s.pieces(first); err == nil {
			if err = s.commit(next, rest); errors.Is(err, core.ErrTooLarge) {
				err = fmt.Errorf("the entries and the operations with a condition that Take returned do not fit into one commit: %w", err)
			}
		}
	}
	if err == nil {
		s.serve(r)
	}
	return err
}

// If the store's limits require it, pieces divides ops among several commits.
func (s *Slice) pieces(ops []core.Op) (err error) {
	if len(ops) > 0 {
		err = s.send(ops)
	}
	if half := len(ops) / 2; half > 0 && errors.Is(err, core.ErrTooLarge) {
		if err = s.pieces(ops[:half]); err == nil {
			err = s.pieces(ops[half:])
		}
	}
	return err
}

func (s *Slice) refuse(c *rangeChange, why string) error {
	n := note{Map: c.Number, Refused: why}
	if r := s.serving.Load().has; !r.Empty() {
		n.Range = &r
	}
	return s.commit(n, nil)
}

func (s *Slice) commit(next note, ops []core.Op) error {
	value, err := json.Marshal(&next)
	if err != nil {
		return err
	}
	if err := s.send(append(slices.Clip(ops), core.Put(noteKey, value))); err != nil {
		return err
	}
	s.mu.Lock()
	s.note = next
	s.mu.Unlock()
	return nil
}

func (s *Slice) send(ops []core.Op) error {
	for {
		_, err := s.lease.Commit(s.ctx, ops...)
		if err == nil || s.ctx.Err() != nil || !errors.Is(err, core.ErrRetry) || !pause(s.ctx, retry/4) {
			return err
		}
	}
}

func (s *Slice) waitFor(what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waits = what
}

const sayAfter = 30 * time.Second

// A change in progress may make the shard refuse clients' calls, and no other log line gives the
// reason.
func (s *Slice) watch(done <-chan struct{}) {
	t := time.NewTimer(sayAfter)
	defer t.Stop()
	key := "slow " + s.lease.Shard()
	for {
		select {
		case <-t.C:
			s.mu.Lock()
			waits, since := s.waits, time.Since(s.started)
			s.mu.Unlock()
			if _, say := s.m.ranges.Failed(key, time.Now()); say {
				s.log.Warn("tenure: sharding: a change of the shard's range is not complete",
					slog.String("waits_for", waits), slog.Duration("for", since))
			}
			t.Reset(sayAfter)
		case <-done:
			s.mu.Lock()
			complete := !s.busy && !s.closed
			s.mu.Unlock()
			_, tried := s.m.ranges.Worked(s.lease.Shard(), time.Now())
			if _, slow := s.m.ranges.Worked(key, time.Now()); complete && (tried || slow) {
				s.log.Info("tenure: sharding: a change of the shard's range is complete")
			}
			return
		}
	}
}

func readNote(shard string, item *core.Item) (n note, err error) {
	if item == nil {
		return note{}, nil
	}
	if boundjson.Unmarshal(item.Value, maxNote, 16*keyspace.MaxCuts, &n) != nil || n.Map < 1 || n.Map > maxNumber/2 || len(n.Gave) > keyspace.MaxCuts {
		return note{}, fmt.Errorf("tenure: %w: shard %q: its item %s was not written by this package: restore it, or use another namespace",
			core.ErrInvalid, shard, noteKey)
	}
	return n, nil
}

func (m *Manager) noted(ctx context.Context, shard string) (note, error) {
	item, err := persist(ctx, func(ctx context.Context) (*core.Item, error) { return m.b.Get(ctx, core.ShardID(shard), noteKey) })
	if err != nil {
		return note{}, err
	}
	return readNote(shard, item)
}

// taken reports whether each taker's note refers to the plan that gave the taker a range, and
// returns the takers that refused their ranges.
func (m *Manager) taken(ctx context.Context, number int64, gifts []gift) (done bool, refused []untaken, err error) {
	for _, g := range gifts {
		n, err := m.noted(ctx, g.Shard)
		if err != nil || n.Map < number {
			return false, nil, err
		}
		if n.Map == number && n.Refused != "" {
			refused = append(refused, untaken{g.Shard, n.Refused[:min(len(n.Refused), maxRefused)]})
		}
	}
	return true, refused, nil
}

func (m *Manager) awaitGift(ctx context.Context, c *rangeChange, g gift) error {
	for wait := 5 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		m.mu.Lock()
		changed := m.changed
		m.mu.Unlock()
		n, err := m.noted(ctx, c.From)
		if err != nil {
			return err
		}
		if done, err := n.gave(c, g); done || err != nil {
			return err
		}
		t := time.NewTimer(wait)
		select {
		case <-changed: // a slice of this process may have given the range
		case <-t.C:
		case <-ctx.Done():
		}
		t.Stop()
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
}

// persist repeats a read until the store answers or ctx ends.
func persist(ctx context.Context, read func(context.Context) (*core.Item, error)) (*core.Item, error) {
	for {
		limited, cancel := context.WithTimeout(ctx, callTimeout)
		item, err := read(limited)
		cancel()
		if err == nil || errors.Is(err, core.ErrLost) || errors.Is(err, core.ErrClosed) || errors.Is(err, core.ErrInvalid) {
			return item, err
		}
		if ctx.Err() != nil || !pause(ctx, retry/4) {
			return nil, context.Cause(ctx)
		}
	}
}
