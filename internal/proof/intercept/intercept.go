// Package intercept passes all calls to a driver.Backend and its sessions through one function.
// Tests and the demonstration use the package to record, hold, lose, delay and change calls.
//
// The package does not intercept Info, ID, the backend's Close, or the optional interfaces
// driver.LabelLister and driver.Explainer.
package intercept

import (
	"context"
	"maps"
	"slices"

	"github.com/tenure-go/tenure/core/driver"
)

// Op identifies a method of driver.Backend or driver.Session.
type Op string

// The methods of a backend come first, followed by the methods of a session.
const (
	Join    Op = "join"
	Observe Op = "observe"
	ReadLog Op = "readlog"
	TailLog Op = "taillog"
	Get     Op = "get"
	List    Op = "list"

	Beat     Op = "beat"
	Acquire  Op = "acquire"
	Transfer Op = "transfer"
	Release  Op = "release"
	Commit   Op = "commit"
	Update   Op = "update"
	Evict    Op = "evict"
	Close    Op = "close"
)

// Writes reports whether the method writes to the store.
func (o Op) Writes() bool {
	switch o {
	case Observe, ReadLog, TailLog, Get, List:
		return false
	default:
		return true
	}
}

// Call is one call. The slices are copies of the caller's slices, so the call can still be made
// after its caller has given up. Each field's comment lists the methods that use it.
type Call struct {
	Op      Op
	Session driver.Session // the wrapped session; nil in a call of the backend

	// These are the arguments. An Around may change them before it calls proceed.
	Member    driver.Member       // Join
	Query     driver.ObserveQuery // Observe
	Shard     driver.ShardID      // ReadLog, Get, List
	After     driver.Seq          // ReadLog
	Since     driver.Cursor       // TailLog
	Max       int                 // ReadLog, TailLog
	Key       string              // Get; the prefix of List
	Claims    []driver.Claim      // Acquire
	Transfers []driver.Transfer   // Transfer
	Fences    []driver.Fence      // Release
	Writes    []driver.Write      // Commit
	State     driver.MemberState  // Update
	Suspects  []driver.Suspect    // Evict

	// These are the results. A successful call to proceed sets the results. An Around may change
	// them, or set them without calling proceed.
	Joined    driver.Session         // Join; its calls are intercepted as well
	View      *driver.View           // Observe
	Page      *driver.LogPage        // ReadLog
	Tail      *driver.TailPage       // TailLog
	Item      *driver.Item           // Get
	Items     []driver.Item          // List
	Granted   []driver.AcquireResult // Acquire, Transfer
	Committed []driver.CommitResult  // Commit
	Evicted   []driver.EvictResult   // Evict
}

// Around determines the effect of a call. The proceed function makes the call with the arguments in
// c, and stores the results in c. Around calls proceed at most once. After Around has returned an
// error, another goroutine may still call proceed. The caller gets the error that Around returns
// or, without an error, the results.
type Around func(ctx context.Context, c *Call, proceed func(context.Context) error) error

// Wrap returns a backend that calls around for each call to b. Closing the returned backend closes
// b.
func Wrap(b driver.Backend, around Around) driver.Backend {
	w := &backend{Backend: b, around: around}
	l, lists := b.(driver.LabelLister)
	h, remembers := b.(driver.Historian)
	switch {
	case lists && remembers:
		return struct {
			*backend
			driver.LabelLister
			driver.Historian
		}{w, l, h}
	case lists:
		return struct {
			*backend
			driver.LabelLister
		}{w, l}
	}
	return w
}

// WrapSession returns a session that calls around for each call to s.
func WrapSession(s driver.Session, around Around) driver.Session {
	w := &session{Session: s, around: around}
	if e, ok := s.(driver.Explainer); ok {
		return struct {
			*session
			driver.Explainer
		}{w, e}
	}
	return w
}

type backend struct {
	driver.Backend
	around Around
}

func (b *backend) Join(ctx context.Context, m driver.Member) (driver.Session, error) {
	c := &Call{Op: Join, Member: m}
	err := b.around(ctx, c, func(ctx context.Context) (err error) {
		c.Joined, err = b.Backend.Join(ctx, c.Member)
		return err
	})
	if err != nil {
		return nil, err
	}
	return WrapSession(c.Joined, b.around), nil
}

func (b *backend) Observe(ctx context.Context, q driver.ObserveQuery) (*driver.View, error) {
	q.Beats = slices.Clone(q.Beats)
	c := &Call{Op: Observe, Query: q}
	err := b.around(ctx, c, func(ctx context.Context) (err error) {
		c.View, err = b.Backend.Observe(ctx, c.Query)
		return err
	})
	if err != nil {
		return nil, err
	}
	return c.View, nil
}

func (b *backend) ReadLog(
	ctx context.Context, shard driver.ShardID, after driver.Seq, most int,
) (*driver.LogPage, error) {
	c := &Call{Op: ReadLog, Shard: shard, After: after, Max: most}
	err := b.around(ctx, c, func(ctx context.Context) (err error) {
		c.Page, err = b.Backend.ReadLog(ctx, c.Shard, c.After, c.Max)
		return err
	})
	if err != nil {
		return nil, err
	}
	return c.Page, nil
}

func (b *backend) TailLog(ctx context.Context, since driver.Cursor, most int) (*driver.TailPage, error) {
	c := &Call{Op: TailLog, Since: since, Max: most}
	err := b.around(ctx, c, func(ctx context.Context) (err error) {
		c.Tail, err = b.Backend.TailLog(ctx, c.Since, c.Max)
		return err
	})
	if err != nil {
		return nil, err
	}
	return c.Tail, nil
}

func (b *backend) Get(ctx context.Context, shard driver.ShardID, key string) (*driver.Item, error) {
	c := &Call{Op: Get, Shard: shard, Key: key}
	err := b.around(ctx, c, func(ctx context.Context) (err error) {
		c.Item, err = b.Backend.Get(ctx, c.Shard, c.Key)
		return err
	})
	if err != nil {
		return nil, err
	}
	return c.Item, nil
}

func (b *backend) List(ctx context.Context, shard driver.ShardID, prefix string, limit, largest int) ([]driver.Item, error) {
	c := &Call{Op: List, Shard: shard, Key: prefix}
	err := b.around(ctx, c, func(ctx context.Context) (err error) {
		c.Items, err = b.Backend.List(ctx, c.Shard, c.Key, limit, largest)
		return err
	})
	if err != nil {
		return nil, err
	}
	return c.Items, nil
}

type session struct {
	driver.Session
	around Around
}

func (s *session) Beat(ctx context.Context) error {
	return s.around(ctx, &Call{Op: Beat, Session: s.Session}, s.Session.Beat)
}

func (s *session) Acquire(ctx context.Context, claims []driver.Claim) ([]driver.AcquireResult, error) {
	c := &Call{Op: Acquire, Session: s.Session, Claims: slices.Clone(claims)}
	err := s.around(ctx, c, func(ctx context.Context) (err error) {
		c.Granted, err = s.Session.Acquire(ctx, c.Claims)
		return err
	})
	if err != nil {
		return nil, err
	}
	return c.Granted, nil
}

func (s *session) Transfer(ctx context.Context, to []driver.Transfer) ([]driver.AcquireResult, error) {
	c := &Call{Op: Transfer, Session: s.Session, Transfers: slices.Clone(to)}
	err := s.around(ctx, c, func(ctx context.Context) (err error) {
		c.Granted, err = s.Session.Transfer(ctx, c.Transfers)
		return err
	})
	if err != nil {
		return nil, err
	}
	return c.Granted, nil
}

func (s *session) Release(ctx context.Context, fences []driver.Fence) error {
	c := &Call{Op: Release, Session: s.Session, Fences: slices.Clone(fences)}
	return s.around(ctx, c, func(ctx context.Context) error { return s.Session.Release(ctx, c.Fences) })
}

func (s *session) Commit(ctx context.Context, writes []driver.Write) ([]driver.CommitResult, error) {
	c := &Call{Op: Commit, Session: s.Session, Writes: slices.Clone(writes)}
	for i := range c.Writes {
		c.Writes[i].Ops = slices.Clone(c.Writes[i].Ops)
	}
	err := s.around(ctx, c, func(ctx context.Context) (err error) {
		c.Committed, err = s.Session.Commit(ctx, c.Writes)
		return err
	})
	if err != nil {
		return nil, err
	}
	return c.Committed, nil
}

func (s *session) Update(ctx context.Context, st driver.MemberState) error {
	st.Meta = maps.Clone(st.Meta)
	c := &Call{Op: Update, Session: s.Session, State: st}
	return s.around(ctx, c, func(ctx context.Context) error { return s.Session.Update(ctx, c.State) })
}

func (s *session) Evict(ctx context.Context, suspects []driver.Suspect) ([]driver.EvictResult, error) {
	c := &Call{Op: Evict, Session: s.Session, Suspects: slices.Clone(suspects)}
	err := s.around(ctx, c, func(ctx context.Context) (err error) {
		c.Evicted, err = s.Session.Evict(ctx, c.Suspects)
		return err
	})
	if err != nil {
		return nil, err
	}
	return c.Evicted, nil
}

func (s *session) Close(ctx context.Context) error {
	return s.around(ctx, &Call{Op: Close, Session: s.Session}, s.Session.Close)
}
