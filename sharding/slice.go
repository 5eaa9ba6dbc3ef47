package sharding

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/tenure-go/tenure/core"
)

// ErrMoved: a key is not, or not yet, this shard's. Ask the owners of
// Keyspace.Candidates, one after the other.
var ErrMoved = errors.New("key belongs to another shard")

// Slice is the part of the keys that one lease answers for. It says which keys
// those are while the number of shards changes. All methods are safe for
// concurrent use.
type Slice struct {
	k     Keyspace
	lease *core.Lease
	index int
	stop  context.CancelFunc // of the background

	mu    sync.Mutex
	state cut
	waits string        // the shard whose note is awaited, if any
	whole chan struct{} // closed when nothing is awaited any more
	err   error         // valid after whole
	ended chan struct{} // closed when nothing of it is left in the background
}

// cut is the record of how far a shard has come, an item of the shard itself, so
// that writing it is fenced like all else.
type cut struct {
	Layout int  `json:"layout"` // the shard has given up what is not its own in this one
	Taken  bool `json:"taken"`  // and has what is
}

// cutKey is the item's key.
const cutKey = "tenure/keys"

// Take is what an application does to get the keys that come with a layout: from
// are the shards that had them, whose logs and items do not change any more for
// these keys, and can be read through the backend. It returns operations to be
// committed together with the note that the keys are here, so that this happens
// once. It is called again if that did not come to pass.
type Take func(ctx context.Context, from []string) ([]core.Op, error)

// OpenSlice says which keys a lease's shard has, and brings it to the layout in
// force. It belongs at the beginning of a handler, before the first write:
//
//	s, err := sharding.OpenSlice(ctx, backend, lease, keyspace, take)
//	if err != nil {
//		return err
//	}
//	defer s.Close()
//
// A shard goes from layout to layout in two steps. First it gives up the keys that
// are others' in the next one, by a note that is committed under its lease before
// OpenSlice returns: nothing was written yet under this lease, and an earlier
// lease cannot write any more. Then, in the background, it waits until all who had
// keys that are now its own have given them up, has them taken, and answers for
// them. In between they are refused on both sides, so no key is ever owned by two.
// What it kept it serves all the time.
//
// A shard further on than this process's keyspace is an error: the process is of
// an older configuration, and must not serve it. take may be nil if nothing has to
// be done. ctx bounds the background, too: give the handler's. Close ends and joins
// it, before the handler returns and the lease with it.
//
// A handler waits for Whole, beside its work, and returns if that fails: a shard that has
// several layouts before it, or whose Take failed, goes on when its handler is called next.
// While a slice is open and lacks keys for longer than 30 s, a line at Warn to slog.Default
// says so, and why, and again every 5 min.
func OpenSlice(ctx context.Context, b core.Backend, lease *core.Lease, k Keyspace, take Take) (*Slice, error) {
	if err := k.Validate(); err != nil {
		return nil, err
	}
	i, err := k.index(lease.Shard())
	if err != nil {
		return nil, err
	}
	if take == nil {
		take = func(context.Context, []string) ([]core.Op, error) { return nil, nil }
	}
	s := &Slice{k: k, lease: lease, index: i, whole: make(chan struct{}), ended: make(chan struct{})}
	item, err := persist(ctx, func(ctx context.Context) (*core.Item, error) { return lease.Get(ctx, cutKey) })
	if err != nil {
		return nil, err
	}
	if s.state, err = readCut(item); err != nil {
		return nil, fmt.Errorf("tenure: shard %q: %w", lease.Shard(), err)
	}
	if s.state.Layout == 0 { // never served: it has what the first layout gives it
		s.state = cut{Layout: 1, Taken: true}
	}
	if s.state.Layout > len(k.Layouts) {
		return nil, fmt.Errorf("tenure: %w: shard %q is in layout %d of keyspace %q, and this process knows %d: give it the newer configuration",
			core.ErrInvalid, lease.Shard(), s.state.Layout, k.Name, len(k.Layouts))
	}
	if s.state.Taken && s.state.Layout < len(k.Layouts) {
		if err := s.note(ctx, cut{Layout: s.state.Layout + 1}, nil); err != nil {
			return nil, err
		}
	}
	if s.state.Taken && s.state.Layout == len(k.Layouts) {
		s.stop = func() {}
		close(s.whole)
		close(s.ended)
		return s, nil
	}
	ctx, s.stop = context.WithCancel(ctx)
	go func() {
		err := s.advance(ctx, b, take)
		s.mu.Lock()
		s.err = err
		s.mu.Unlock()
		close(s.whole)
	}()
	go func() {
		defer close(s.ended)
		defer s.stop()
		s.watch(ctx)
	}()
	return s, nil
}

// When a slice that is not whole is said to be so, first and then again.
const (
	sayAfter = 30 * time.Second
	sayAgain = 5 * time.Minute
)

// watch says that keys are not served, until the slice is whole or ctx ends: clients are
// refused meanwhile, which nobody else logs.
func (s *Slice) watch(ctx context.Context) {
	t := time.NewTimer(sayAfter)
	defer t.Stop()
	for whole := s.whole; ; {
		select {
		case <-whole:
			if s.err == nil {
				return
			}
			whole = nil // the handler is to return
		case <-t.C:
			s.say(ctx)
			t.Reset(sayAgain)
		case <-ctx.Done():
			<-s.whole
			return
		}
	}
}

// say logs how far the slice is, and why no further.
func (s *Slice) say(ctx context.Context) {
	s.mu.Lock()
	at, waits, err := s.state, s.waits, s.err
	s.mu.Unlock()
	why := slog.String("do", "look at its Take, which has not returned, or at the store")
	switch {
	case err != nil:
		why = slog.Any("error", fmt.Errorf("%w: the handler should return as soon as Whole fails", err))
	case waits != "":
		why = slog.String("waits_for", waits)
	}
	slog.LogAttrs(ctx, slog.LevelWarn, "tenure: sharding: a shard does not serve the keys of its layout",
		slog.String("shard", s.lease.Shard()), slog.Int("layout", at.Layout), slog.Int("layouts", len(s.k.Layouts)), why)
}

// advance takes what is to be taken, and goes on to the last layout.
func (s *Slice) advance(ctx context.Context, b core.Backend, take Take) error {
	for {
		s.mu.Lock()
		at := s.state
		s.mu.Unlock()
		switch {
		case !at.Taken:
			var from []string
			for _, g := range s.k.givers(at.Layout, s.index) {
				from = append(from, s.k.shard(g))
			}
			for _, shard := range from {
				s.waitFor(shard)
				if err := awaitCut(ctx, b, shard, at.Layout); err != nil {
					return err
				}
			}
			s.waitFor("")
			var ops []core.Op
			if len(from) > 0 {
				var err error
				if ops, err = take(ctx, from); err != nil {
					return err
				}
			}
			if err := s.note(ctx, cut{Layout: at.Layout, Taken: true}, ops); err != nil {
				return err
			}
		case at.Layout < len(s.k.Layouts):
			// Only before the first write of a lease may keys be given up; the next
			// lease goes on.
			return fmt.Errorf("tenure: shard %q is whole in layout %d of %d: it goes on when its handler is called next", s.lease.Shard(), at.Layout, len(s.k.Layouts))
		default:
			return nil
		}
	}
}

func (s *Slice) waitFor(shard string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waits = shard
}

// note commits how far the shard has come.
func (s *Slice) note(ctx context.Context, next cut, ops []core.Op) error {
	value, err := json.Marshal(next)
	if err != nil {
		return err
	}
	if _, err := s.lease.Commit(ctx, append(ops, core.Put(cutKey, value))...); err != nil {
		return err
	}
	s.mu.Lock()
	s.state = next
	s.mu.Unlock()
	return nil
}

func readCut(item *core.Item) (c cut, err error) {
	if item == nil {
		return cut{}, nil
	}
	if err := json.Unmarshal(item.Value, &c); err != nil || c.Layout < 1 || c.Layout > 255 {
		return cut{}, fmt.Errorf("its item %s was not written by this package: restore it, or choose another namespace", cutKey)
	}
	return c, nil
}

// awaitCut waits until a shard has given up what is not its own in a layout.
func awaitCut(ctx context.Context, b core.Backend, shard string, layout int) error {
	for wait := 10 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		item, err := persist(ctx, func(ctx context.Context) (*core.Item, error) { return b.Get(ctx, core.ShardID(shard), cutKey) })
		if err != nil {
			return err
		}
		c, err := readCut(item)
		if err != nil {
			return fmt.Errorf("tenure: shard %q: %w", shard, err)
		}
		if c.Layout >= layout {
			return nil
		}
		if !pause(ctx, wait) {
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

// Check is nil if the key is this shard's to serve now; else the error matches
// ErrMoved. What was this shard's stays so as long as its lease.
func (s *Slice) Check(key string) error {
	s.mu.Lock()
	at := s.state
	s.mu.Unlock()
	h := hash(key)
	if s.k.owns(at.Layout, s.index, h) && (at.Taken || s.k.owns(at.Layout-1, s.index, h)) {
		return nil
	}
	return fmt.Errorf("tenure: %w: %q is not served by %s in layout %d", ErrMoved, key, s.lease.Shard(), at.Layout)
}

// Commit is the lease's Commit for one key: ErrMoved, and nothing sent, if the key
// is not this shard's.
func (s *Slice) Commit(ctx context.Context, key string, ops ...core.Op) (core.Committed, error) {
	if err := s.Check(key); err != nil {
		return core.Committed{}, err
	}
	return s.lease.Commit(ctx, ops...)
}

// Layout is how far the shard has come, counted from 1, and whether it has all its
// keys in that layout.
func (s *Slice) Layout() (layout int, whole bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state.Layout, s.state.Taken
}

// Close ends what goes on in the background and waits for it, a Take that is under
// way included, so that nothing of it outlives the lease (S12). It may be called
// more than once; Whole fails afterwards unless the shard was whole before.
func (s *Slice) Close() {
	s.stop()
	<-s.ended
}

// Whole waits until the shard has all keys that it can get under this lease. The
// handler should return if it fails before ctx ends.
func (s *Slice) Whole(ctx context.Context) error {
	select {
	case <-s.whole:
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
