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
)

// ErrMoved: a key is not, or not yet, this shard's. The error is a *MovedError.
var ErrMoved = errors.New("key belongs to another shard")

// MovedError says which shard a key belongs to. It matches ErrMoved.
type MovedError struct {
	Shard string // that refused the key
	// To is the shard that the key belongs to by the map that the refusing process knows. It is
	// Shard itself while that does not have the key yet.
	To   string
	Hash uint64 // of the key
}

func (e *MovedError) Error() string {
	if e.To == e.Shard {
		return fmt.Sprintf("tenure: %v: hash %s comes to %s, which does not have it yet: try again shortly", ErrMoved, hex(e.Hash), e.To)
	}
	return fmt.Sprintf("tenure: %v: hash %s is not served by %s: ask %s", ErrMoved, hex(e.Hash), e.Shard, e.To)
}

// Is reports whether the target is ErrMoved.
func (e *MovedError) Is(target error) bool { return target == ErrMoved }

// Slice is the part of a keyspace that one lease answers for. It says which keys those are,
// while ranges are split and merged. All methods are safe for concurrent use.
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
	again   bool // the table changed meanwhile
	closed  bool
	waits   string // what the change waits for, for the log
	work    sync.WaitGroup
	former  []*serving // that calls may still be in
	started time.Time  // when the change that is under way began
	failed  struct {   // to take the range of a plan; of the goroutine that carries it out
		number int64
		since  time.Time // the first time
		err    error     // the last time
	}
}

// note is the item of a shard that says which range it answers for, written under its lease, so
// that it is fenced like all else. A range has one owner because it is taken only when the note
// of the shard that had it says that it was given, and to whom.
type note struct {
	Map   int64  `json:"map"` // number of the plan that the range follows from
	Range *Range `json:"range,omitempty"`
	Gave  []gift `json:"gave,omitempty"` // by that plan
	// Refused is why the shard did not take what that plan gave it. The giver has it again.
	Refused string `json:"refused,omitempty"`
}

// noteKey is the item's key. ownKeys begins the keys of all items that this package keeps.
const (
	ownKeys = "tenure/"
	noteKey = ownKeys + "range"
)

// maxNote bounds the bytes of a note that are read, and maxRefused those of Refused.
const (
	maxNote    = 16 << 10
	maxRefused = 300
)

// has is the noted range.
func (n *note) has() Range {
	if n.Range == nil {
		return empty
	}
	return *n.Range
}

// serving is the range that is served at one time, and how many are in it.
type serving struct {
	has   Range
	in    atomic.Int64
	over  atomic.Bool   // another one is served
	empty chan struct{} // has an element after the last one left, once it is over
}

func (s *Slice) serve(r Range) {
	next := &serving{has: r, empty: make(chan struct{}, 1)}
	s.meter.setRange(r)
	// A call that enters one of those later leaves again, since another one is served.
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

// Take copies the data of a range into the shard that gets it. The shard from has given the range
// up: its log and items do not change any more for these keys, and can be read through the backend.
// Take returns operations that are committed together with the note that the range is here, so that
// they are applied once. If they are more than one commit holds, the puts and deletes without a
// condition are committed before it, in pieces. Take is called again if it fails or if a commit does;
// until then both shards refuse the range. If attempts fail for 30 s, the giver has it again. The giver
// keeps its data, so if a range comes back, Take also deletes the items that the shard still has
// of it. Operations on items that begin with "tenure/" are left out: each shard has its own.
type Take func(ctx context.Context, from string, r Range) ([]core.Op, error)

// OpenSlice says which keys a lease's shard has, and carries out splits and merges of its range
// as they are planned. It belongs at the beginning of the handler of a shard of
// Options.Keyspace, before the first write:
//
//	s, err := manager.OpenSlice(ctx, lease, take)
//	if err != nil {
//		return err
//	}
//	defer s.Close()
//
// A range goes from one shard to another in two steps. First the giver waits for the calls of
// Commit and Do, and notes under its lease that it gave the range, and to which shard: an earlier
// lease cannot write any more, and this one does not. Then the taker, which waits for that note,
// takes the range, and notes that it has it. In between both refuse the range's keys, so no key is
// ever served by two. Every other key is served all the time.
//
// take may be nil if there is no data to copy. ctx, the handler's, bounds the changes; Close ends
// and joins them before the handler returns, and with it the lease. A change that takes longer
// than 30 s is logged at Warn to slog.Default with the reason, and again every 5 min.
//
// The error matches core.ErrInvalid if the shard is not of the keyspace, if its note cannot be
// read, or if a slice of this lease is open; else it is ctx's, or the lease's.
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
	s := &Slice{m: m, lease: lease, take: take, log: slog.Default().With(slog.String("shard", shard))}
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
	if other == nil || other.lease != lease { // else a range could be given while the other one serves it
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

// first is the range of a shard that has not noted any.
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

// first is the range of a shard that has not noted any, the i-th of the table.
func (t *assignments) first(shard string, i int) (Range, error) {
	if c := t.change(shard); c != nil {
		return c.before(shard, t.ranges[i]), nil
	}
	if k, err := t.keys.index(shard); err != nil || k >= t.keys.Shards {
		return empty, fmt.Errorf("tenure: %w: shard %q was split off, and its item %s is gone: restore it", core.ErrInvalid, shard, noteKey)
	}
	return t.ranges[i], nil
}

// Check is nil if the key is this shard's to serve now; else the error matches ErrMoved. A range
// may be given up right after, so callers write through Commit or Do.
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

// Commit is the lease's Commit for one key. The error matches ErrMoved, and nothing is sent, if
// the key is not this shard's.
func (s *Slice) Commit(ctx context.Context, key string, ops ...core.Op) (core.Committed, error) {
	v, err := s.enter(key)
	if err != nil {
		return core.Committed{}, err
	}
	defer v.leave()
	return s.lease.Commit(ctx, ops...)
}

// Do calls f, which may read and write for the key under the lease, inside the store or outside,
// unless the key is not this shard's: then the error matches ErrMoved. A range is not given up
// while f runs. So f returns only when the outcome of its writes outside the store is known, and
// is bounded: a change that waits for it longer than 5 s is tried again later.
func (s *Slice) Do(key string, f func() error) error {
	v, err := s.enter(key)
	if err != nil {
		return err
	}
	defer v.leave()
	return f()
}

// enter counts a call in the range that is served now. A call that comes as the range is replaced
// tries again, so that the replacer waits only for calls that saw the former range.
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

// Range is the range that the shard serves now. whole is true if the map of ranges gives the shard
// exactly that.
func (s *Slice) Range() (r Range, whole bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.m.assigned()
	c := t.change(s.lease.Shard())
	return s.serving.Load().has, !s.busy && (c == nil || s.note.Map >= c.Number)
}

// Close ends the changes that are under way and waits for them, for a call of Take as well, so that
// none outlives the lease (S12). It may be called more than once.
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

// advance carries out the table's changes of the range, in a goroutine that ends when there are no
// more. There is one at a time.
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
				return // it stays busy: nothing can be noted any more
			}
			if _, say := s.m.ranges.Failed(s.lease.Shard(), time.Now()); say {
				s.log.Warn("tenure: sharding: a change of the shard's range is tried again", slog.Any("error", err))
			}
			pause(s.ctx, wait)
		}
	})
	s.work.Go(func() { s.watch(done) })
}

// pending reports whether there may be something to do, and forgets that there was.
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

// step carries out the change of the table that the shard takes part in, if there is one.
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

// drainBudget is how long a change waits for calls of Commit and Do. Then the whole range is served
// again for a while, since its keys are refused meanwhile.
const drainBudget = 5 * time.Second

// give gives ranges to others, once these have owners.
func (s *Slice) give(c *rangeChange) error {
	if len(c.Gifts) == 0 { // it has again what others did not take: each has noted that
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
	if s.m.blind.Load() || s.m.assigned().change(c.From) == nil { // it may not be planned any longer
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

// given is the note of the shard that gives, once it gave.
func (c *rangeChange) given() note {
	n := note{Map: c.Number, Gave: c.Gifts}
	if !c.Rest.Empty() {
		n.Range = &c.Rest
	}
	return n
}

// gave reports whether the note, the giver's, says that a gift of the change was given.
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

// drain waits until no call is left in a former range; false if that takes too long.
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

// awaitOwners waits until each taker has a living owner, so that the range is refused for no
// longer than that owner needs.
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

// takeBudget is how long after the first attempt that failed another one that fails is the last: the range goes back.
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

// turn waits until the shard that gets the next higher range has noted it, or that it refused it. So the
// ranges that go back lie next to the one that the giver kept.
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
	ops, err := s.take(s.ctx, c.From, g.Range)
	if err != nil {
		return err
	}
	ops = slices.DeleteFunc(ops, func(op core.Op) bool { return strings.HasPrefix(op.Key, ownKeys) })
	r := join(s.serving.Load().has, g.Range)
	next := note{Map: c.Number, Range: &r}
	if err = s.commit(next, ops); errors.Is(err, core.ErrTooLarge) {
		// What overwrites comes before the note: the shard serves none of these keys, and each attempt writes all again.
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

// pieces commits ops, in as many commits as the store's limits ask for.
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

// refuse notes that the shard does not take what a plan gives it.
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

// sayAfter is how long a change goes on before it is logged.
const sayAfter = 30 * time.Second

// watch logs that a change goes on, until done: clients may be refused meanwhile, which nothing
// else logs.
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
	if len(item.Value) > maxNote || json.Unmarshal(item.Value, &n) != nil || n.Map < 1 || n.Map > maxNumber/2 || len(n.Gave) > MaxCuts {
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

// taken reports whether each taker has noted the plan that gave it a range, and which of them refused it.
func (m *Manager) taken(ctx context.Context, number int64, gifts []gift) (done bool, refused []string, err error) {
	for _, g := range gifts {
		n, err := m.noted(ctx, g.Shard)
		if err != nil || n.Map < number {
			return false, nil, err
		}
		if n.Map == number && n.Refused != "" {
			refused = append(refused, g.Shard)
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
		case <-changed: // by a slice of this process, perhaps
		case <-t.C:
		case <-ctx.Done():
		}
		t.Stop()
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
}

// persist reads until it is answered, as long as ctx lasts.
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
