package sqlite

import (
	"context"
	"errors"
	"sync"

	"github.com/tenure-go/tenure/backends/sql/internal/dialect"
	"github.com/tenure-go/tenure/backends/sql/internal/engine"
)

// store runs transactions on the two files. The data committer writes to the data file, and the
// members' committer writes to the members' file. A third committer writes heartbeats to the
// members' file.
//
// Before a claim reads a member, the claim takes the members' write lock on a separate connection.
// The claim holds that lock until the data is committed. Therefore, no member joins, leaves or is
// evicted during a claim (A1). Every claim takes the data file's lock first, so that no two claims
// wait for each other. A claim holds the members' lock only during the decision, so heartbeats wait
// only briefly (E4).
type store struct {
	data, members *database
	holder        *writer // holds the members' lock for claims; used by the data committer only
	wake          dialect.Wake
	link          *link
	hints         *dialect.Hints // nil if the store only polls
	stop          chan struct{}
	ended         context.CancelFunc // ends the hints
	closeOnce     sync.Once
}

var _ engine.Store = (*store)(nil)

func openStore(ctx context.Context, path string, o *Options, stmts *engine.Statements) (_ *store, err error) {
	life, ended := context.WithCancel(context.Background())
	s := &store{stop: make(chan struct{}), ended: ended, link: &link{path: path}}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	if s.data, err = openDatabase(ctx, path, dataSchema, o, stmts); err != nil {
		return nil, err
	}
	if s.members, err = openDatabase(ctx, path+membersSuffix, membersSchema, o, stmts); err != nil {
		return nil, err
	}
	if !o.NoNotify {
		s.hints = dialect.NewHints(life, &s.wake, s.link, o.IdlePollPeriod)
		s.hints.Start()
	}
	for _, c := range []struct {
		on    *database
		d     durability
		count *transactions
		as    **committer
	}{
		{s.members, flushed, s.members.count, &s.members.committer}, {s.members, unflushed, nil, &s.members.beats},
		{s.data, flushed, s.data.count, &s.data.committer},
	} {
		w, err := newWriter(ctx, c.on, c.d, c.count, stmts)
		if err != nil {
			return nil, err
		}
		*c.as = newCommitter(w, s.Check, s.committed)
	}
	if s.holder, err = newWriter(ctx, s.members, flushed, nil, stmts); err != nil {
		return nil, err
	}
	return s, nil
}

func (s *store) WriteData(ctx context.Context, fn func(context.Context, *engine.Tx) error) error {
	return s.data.committer.do(ctx, fn, nil)
}

func (s *store) WriteRoster(ctx context.Context, fn func(context.Context, *engine.Tx) error) error {
	return s.members.committer.do(ctx, fn, nil)
}

func (s *store) WriteBeat(ctx context.Context, fn func(context.Context, *engine.Tx) error) error {
	return s.members.beats.do(ctx, fn, nil)
}

func (s *store) WriteOwners(ctx context.Context, fn func(context.Context, *engine.Tx, func() (*engine.Tx, error)) error) error {
	held := false
	hold := func() (*engine.Tx, error) {
		if err := s.holder.begin(ctx, s.stop); err != nil {
			return nil, err
		}
		held = true
		return s.holder.tx, nil
	}
	release := func() {
		if held {
			s.holder.rollback()
		}
	}
	return s.data.committer.do(ctx, func(ctx context.Context, data *engine.Tx) error { return fn(ctx, data, hold) }, release)
}

func (s *store) ReadData(ctx context.Context, fn func(context.Context, *engine.Tx) error) error {
	return s.data.read(ctx, fn)
}

func (s *store) ReadRoster(ctx context.Context, fn func(context.Context, *engine.Tx) error) error {
	return s.members.read(ctx, fn)
}

func (s *store) Read(ctx context.Context, fn func(ctx context.Context, data, roster *engine.Tx) error) error {
	return readFailed(s.data.path, fn(ctx, engine.NewTx(s.data.prep, nil), engine.NewTx(s.members.prep, nil)))
}

// Ping is the same as Read, because reading a file does not wait for other calls.
func (s *store) Ping(ctx context.Context, fn func(ctx context.Context, data, roster *engine.Tx) error) error {
	return s.Read(ctx, fn)
}

// Check returns an error if a file of either database was removed or replaced. SQLite may remove
// files when the store is closed, so the error is then errClosed.
func (s *store) Check() error {
	err := s.data.check()
	if err == nil {
		err = s.members.check()
	}
	if err != nil {
		select {
		case <-s.stop:
			return errClosed
		default:
		}
	}
	return err
}

func (s *store) Classify(err error) error { return notApplied(s.data.path, err) }

func (s *store) Changed(of engine.Readers) <-chan struct{} { return s.wake.C(of) }

func (s *store) Hears() bool { return s.hints != nil && s.hints.Hears() }

func (s *store) committed(readers engine.Readers) {
	s.wake.Broadcast(readers &^ engine.Watchers)
	if s.hints != nil {
		s.hints.Tell(readers)
	}
}

func (s *store) Close() error {
	var errs []error
	s.closeOnce.Do(func() {
		close(s.stop)
		for _, d := range []*database{s.data, s.members} {
			if d != nil {
				errs = append(errs, d.close())
			}
		}
		if s.holder != nil {
			errs = append(errs, s.holder.close())
		}
		s.ended()
		if s.hints != nil {
			s.hints.Close()
		}
		errs = append(errs, s.link.close())
	})
	return errors.Join(errs...)
}
