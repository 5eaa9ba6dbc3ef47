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
)

// ErrMoved: a key does not belong to this shard, or does not belong to it yet. The error is a
// *MovedError.
var ErrMoved error = errtext.NotApplied("key belongs to another shard")

// MovedError names the shard that a key belongs to. It matches ErrMoved.
type MovedError struct {
	Shard string // the shard that refused the key
	// To is the shard that the key belongs to, according to the map of the process that refused
	// the key. While Shard does not have the key yet, To is Shard itself.
	To   string
	Hash uint64 // of the key
}

func (e *MovedError) Error() string {
	if e.To == e.Shard {
		return fmt.Sprintf("tenure: %v: hash %s comes to %s, which does not have it yet: try again shortly", ErrMoved, keyspace.FormatHash(e.Hash), e.To)
	}
	return fmt.Sprintf("tenure: %v: hash %s is not served by %s: ask %s", ErrMoved, keyspace.FormatHash(e.Hash), e.Shard, e.To)
}

// Unwrap returns ErrMoved: the shard refused the key before anything was sent.
func (e *MovedError) Unwrap() error { return ErrMoved }

// Slice is the part of a keyspace that one lease serves. It keeps track of the keys while ranges
// are split and merged. All methods are safe for concurrent use.
type Slice struct {
	m     *Manager
	lease *core.Lease
	take  Take
	ctx   context.Context // of changes
	stop  context.CancelFunc
	log   *slog.Logger
	meter *meter

	serving atomic.Pointer[serving]

	mu      sync.Mutex
	note    note // as it is in the store
	busy    bool // a goroutine carries out a change
	again   bool // the table changed during that
	closed  bool
	waits   string // the reason why the change waits, for the log
	work    sync.WaitGroup
	former  []*serving // calls may still be in them
	started time.Time  // when the current change began
	failed  struct {   // attempts to take the range of a plan; used by the goroutine that carries it out
		number int64
		since  time.Time // the first time
		err    error     // the last time
	}
}

// note is the item of a shard that records the range it serves. It is written under the shard's
// lease, so it is fenced like every write. A range has one owner, because the new shard takes it
// only after the old shard's note names it as the recipient.
type note struct {
	Map   int64  `json:"map"` // number of the plan that the range follows from
	Range *Range `json:"range,omitempty"`
	Gave  []gift `json:"gave,omitempty"` // by that plan
	// Refused is the reason why the shard did not take its gift of that plan. The giver has it
	// again.
	Refused string `json:"refused,omitempty"`
}

// noteKey is the item's key. ownKeys begins the keys of all items that this package keeps.
const (
	ownKeys = "tenure/"
	noteKey = ownKeys + "range"
)

// maxNote is the largest size of a note that is read, and maxRefused of Refused, in bytes.
const (
	maxNote    = 16 << 10
	maxRefused = 300
)

// has returns the noted range.
func (n *note) has() Range {
	if n.Range == nil {
		return empty
	}
	return *n.Range
}

// serving is the range that is served at one time, and the number of calls in it.
type serving struct {
	has   Range
	in    atomic.Int64
	over  atomic.Bool   // another range is served
	empty chan struct{} // has an element after the last call left, once it is over
}

func (s *Slice) serve(r Range) {
	next := &serving{has: r, empty: make(chan struct{}, 1)}
	s.meter.setRange(r)
	// A call that enters one of these later leaves it again, since another range is served.
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

// Take copies the data of a range into the shard that gets it. The shard from has given up the
// range: its log and items no longer change for these keys, and can be read through the backend.
// Take returns operations. They are committed together with the note that the range is here, so
// that they are applied exactly once. If they exceed one commit, the puts and deletes without a
// condition are committed before it, in pieces. If Take or a commit fails, Take is called again.
// Until it succeeds, both shards refuse the range. If attempts fail for 30 s, the giver gets the
// range back. The giver keeps its data. So if a range comes back, Take also deletes the items of
// that range that the shard still has. Operations on items whose keys begin with "tenure/" are
// left out, because each shard has such items of its own.
type Take func(ctx context.Context, from string, r Range) ([]core.Op, error)

// OpenSlice returns the Slice of a lease's shard. The Slice carries out planned splits and merges
// of the shard's range. Call it at the beginning of the handler of a shard of Options.Keyspace,
// before the first write:
//
//	s, err := manager.OpenSlice(ctx, lease, take)
//	if err != nil {
//		return err
//	}
//	defer s.Close()
//
// A range moves from one shard to another in two steps. First, the giver waits until calls of
// Commit and Do have returned. Under its lease, it then notes that it gave the range, and to which
// shard. From then on, neither this lease nor an earlier one writes in the range. Then the taker,
// which waits for that note, takes the range, and notes that it has it. In between, both refuse the
// range's keys, so no key is ever served by two shards. All other keys are served all the time.
//
// If there is no data to copy, take may be nil. The handler's ctx limits the changes. Close ends
// and joins them before the handler returns, and the lease with it. If a change takes longer than
// 30 s, it is logged at Warn to slog.Default with the reason, and again every 5 min.
//
// The error matches core.ErrInvalid if the shard is not in the keyspace, its note cannot be
// decoded, or the lease already has an open slice. Otherwise, it is the error of ctx or of the
// lease.
func (m *Manager) OpenSlice(ctx context.Context, lease *core.Lease, take Take) (*Slice, error) {
	shard := lease.Shard()
	if _, err := m.o.Keyspace.index(shard); err != nil {
		return nil, err
	}
	if take == nil {
		take = func(context.Context, string, Range) ([]core.Op, error) { return nil, nil }
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
	s.meter = newMeter(m.lanes, r, time.Now())
	s.serve(r)
	s.ctx, s.stop = context.WithCancel(ctx)
	m.mu.Lock()
	other := m.slices[shard]
	if other == nil || other.lease != lease { // otherwise a range could be given while the other slice serves it
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

// first returns the range of a shard that has no note.
func (m *Manager) first(ctx context.Context, shard string) (Range, error) {
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

// first returns the range of a shard that has no note, the i-th of the table.
func (t *assignments) first(shard string, i int) (Range, error) {
	if c := t.change(shard); c != nil {
		return c.before(shard, t.ranges[i]), nil
	}
	if k, err := t.keys.index(shard); err != nil || k >= t.keys.Shards {
		return empty, fmt.Errorf("tenure: %w: shard %q was split off, and its item %s is gone: restore it", core.ErrInvalid, shard, noteKey)
	}
	return t.ranges[i], nil
}

// Check returns nil if the shard serves the key now. Otherwise, the error matches ErrMoved. The
// range may be given up right afterwards, so write through Commit or Do.
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

// Commit is the lease's Commit for one key. If the shard does not have the key, the error matches
// ErrMoved, and nothing is sent.
func (s *Slice) Commit(ctx context.Context, key string, ops ...core.Op) (core.Committed, error) {
	v, err := s.enter(key)
	if err != nil {
		return core.Committed{}, err
	}
	defer v.leave()
	return s.lease.Commit(ctx, ops...)
}

// Do calls f, which may read and write for the key under the lease, in the store or outside. If the
// shard does not have the key, the error matches ErrMoved, and f is not called. A range is not
// given up while f runs. So f must return only when it knows the outcome of its writes outside the
// store. f must not run long: a change that has waited for f for 5 s is put off.
func (s *Slice) Do(key string, f func() error) error {
	v, err := s.enter(key)
	if err != nil {
		return err
	}
	defer v.leave()
	return f()
}

// enter counts a call in the range that is served now. If the range is replaced during enter, it
// tries again, so that the replacer waits only for calls that saw the previous range.
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

// Range returns the range that the shard serves now. whole is true if the map of ranges gives the
// shard exactly that range.
func (s *Slice) Range() (r Range, whole bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.m.assigned()
	c := t.change(s.lease.Shard())
	return s.serving.Load().has, !s.busy && (c == nil || s.note.Map >= c.Number)
}

// Close ends the changes in progress and waits for them, including a call of Take, so that no
// change outlives the lease (S12). It may be called more than once.
func (s *Slice) Close() {
	s.stop()
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.work.Wait()
	s.m.mu.Lock()
	defer s.m.mu.Unlock()
	if s.m.slices[s.lease.Shard()] == s {
		delete(s.m.slices, s.lease.Shard())
		delete(s.m.meters, s.lease.Shard())
	}
}

// advance carries out the table's changes of the range, in a goroutine that ends after the last
// one. One such goroutine runs at a time.
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
				return // it stays busy, because nothing can be noted any longer
			}
			if _, say := s.m.ranges.Failed(s.lease.Shard(), time.Now()); say {
				s.log.Warn("tenure: sharding: a change of the shard's range is tried again", slog.Any("error", err))
			}
			pause(s.ctx, wait)
		}
	})
	s.work.Go(func() { s.watch(done) })
}

// pending reports whether there may be a change to carry out, and resets s.again.
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

// step carries out the change of the table in which the shard takes part, if there is one.
func (s *Slice) step() error {
	t := s.m.assigned()
	c := t.change(s.lease.Shard())
	if c == nil || c.Number <= s.note.Map {
		return nil
	}
	// The next note replaces the list of gifts, so all of them must have been taken.
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

// drainBudget is how long a change waits for calls of Commit and Do. After that, the whole range
// is served again for a while, since its keys are refused during the wait.
const drainBudget = 5 * time.Second

// give gives ranges to other shards, once these have owners.
func (s *Slice) give(c *rangeChange) error {
	if len(c.Gifts) == 0 { // it takes back gifts that others refused
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

// given returns the note of the giver after it gave.
func (c *rangeChange) given() note {
	n := note{Map: c.Number, Gave: c.Gifts}
	if !c.Rest.Empty() {
		n.Range = &c.Rest
	}
	return n
}

// gave reports whether the giver's note confirms a gift of the change.
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

// drain waits until no call is left in an earlier range. It returns false if that takes too
// long.
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

// awaitOwners waits until each taker has a living owner, so that the range is refused only while
// that owner takes it.
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

// takeBudget is the time after the first failure from which a further failure is final. The range
// is then given back.
const takeBudget = 30 * time.Second

// receive takes a range that another shard gives.
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

// turn waits until the shard that gets the next higher range has noted or refused it. So ranges
// that are given back adjoin the range that the giver kept.
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

// fetch calls Take, and commits its operations with the note.
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
		// Operations that overwrite come before the note. The shard serves none of these keys,
		// and each attempt writes all of them again.
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

// pieces commits ops in as many commits as the store's limits require.
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

// refuse notes that the shard does not take its gift.
func (s *Slice) refuse(c *rangeChange, why string) error {
	n := note{Map: c.Number, Refused: why}
	if r := s.serving.Load().has; !r.Empty() {
		n.Range = &r
	}
	return s.commit(n, nil)
}

// commit writes the note after ops.
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

// send commits ops, and tries again as long as nothing was sent.
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

// sayAfter is the time after which a change in progress is logged.
const sayAfter = 30 * time.Second

// watch logs that a change is in progress, until done. Clients may be refused during it, and no
// other line reports that.
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

// noted reads the note of any shard.
func (m *Manager) noted(ctx context.Context, shard string) (note, error) {
	item, err := persist(ctx, func(ctx context.Context) (*core.Item, error) { return m.b.Get(ctx, core.ShardID(shard), noteKey) })
	if err != nil {
		return note{}, err
	}
	return readNote(shard, item)
}

// taken reports whether each taker has noted the plan that gave it a range, and returns those that
// refused.
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

// awaitGift waits until the giver has noted its gift.
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
		case <-changed: // perhaps by a slice of this process
		case <-t.C:
		case <-ctx.Done():
		}
		t.Stop()
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
}

// persist repeats a read until the store answers, or ctx ends.
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
