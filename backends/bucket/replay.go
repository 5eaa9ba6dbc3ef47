package bucket

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/tenure-go/tenure/core/driver"
)

const (
	maxWindow = 64 // objects that are read at the same time
	// ahead is the largest object, in bytes, that is read together with those before it.
	ahead = 256 << 10
)

// widen returns how many objects to read after all of n were there.
func widen(n int) int { return min(2*n, maxWindow) }

// look reads the log to its end as of this call, or later. If thorough is false and there is no new
// object, look may miss that the log went on without this process.
func (s *store) look(ctx context.Context, thorough bool) error {
	s.mu.Lock()
	want := s.started + 1
	s.mu.Unlock()
	select {
	case s.turn <- struct{}{}:
		defer func() { <-s.turn }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	s.mu.Lock()
	if s.broken != nil || s.finished >= want {
		defer s.mu.Unlock()
		return s.broken
	}
	s.started++
	n, from := s.started, s.proven
	s.mu.Unlock()
	ferr := s.forward(ctx, s.next, s.ahead(), s.apply)
	if ferr != nil && !errors.Is(ferr, driver.ErrDamaged) {
		return ended(ctx, ferr)
	}
	s.mu.Lock()
	at := s.state.point()
	s.mu.Unlock()
	if thorough || ferr != nil || at != from {
		ok, err := s.holds(ctx, from)
		if ok && ferr != nil {
			return ferr
		}
		if err == nil && !ok {
			err = s.restart(ctx, from)
		}
		if err != nil {
			return ended(ctx, err)
		}
		thorough = true
		s.mu.Lock()
		if ok {
			s.prove(at)
		}
		s.mu.Unlock()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.looked = time.Now()
	if thorough {
		s.finished = n
	}
	return s.broken
}

func ended(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return driver.Ended(ctx)
	}
	return err
}

// next returns the number of the next object.
func (s *store) next() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state.number + 1
}

// apply applies an entry unless it is known already.
func (s *store) apply(e *entry) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e.number <= s.state.number {
		return nil
	}
	if err := s.state.apply(e); err != nil {
		return err
	}
	if e.writer != s.writer {
		s.pace.met(e.pace)
	}
	s.notify()
	return nil
}

// prove records an object whose place in the log is proven.
func (s *store) prove(at point) {
	if at.number > s.proven.number {
		s.proven = at
		s.notify()
	}
	s.looked = time.Now()
}

// holds reports whether no object after the given one has been deleted. If an object exists, no
// later one has been deleted. The first deletion follows the second checkpoint, and from then on
// there are always two.
func (o *objects) holds(ctx context.Context, at point) (bool, error) {
	if o.blind {
		return true, nil
	}
	if at.number > 0 {
		return o.has(ctx, at.number, at.nonce)
	}
	numbers, err := o.checkpoints(ctx)
	return len(numbers) < 2, err
}

// ahead returns how many objects to read first: those of other processes that are expected, and the
// missing one at the log's end.
func (s *store) ahead() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return 1 + s.pace.expect(s.looked)
}

// forward reads objects from next on, at first n at the same time, and applies them until there is
// none.
func (o *objects) forward(ctx context.Context, next func() int64, n int, apply func(*entry) error) error {
	for ; ; n = widen(n) {
		found, err := o.fetch(ctx, next(), n)
		if err != nil {
			return err
		}
		for _, e := range found {
			if e == nil {
				return nil
			}
			if err := apply(e); err != nil {
				return err
			}
		}
	}
}

// fetch reads n objects at the same time. An entry of the result is nil if there is no such object.
// An error concerns the first object; after a later error, the result is shorter.
func (o *objects) fetch(ctx context.Context, from int64, n int) ([]*entry, error) {
	found, errs := make([]*entry, n), make([]error, n)
	var all sync.WaitGroup
	for i := range found {
		most := maxEntry
		if i > 0 {
			most = ahead
		}
		all.Go(func() {
			if found[i], errs[i] = o.entry(ctx, from+int64(i), most); errors.Is(errs[i], errMissing) {
				found[i], errs[i] = nil, nil
			}
		})
	}
	all.Wait()
	for i, err := range errs {
		if err != nil && i == 0 {
			return nil, err
		}
		if err != nil {
			return found[:i], nil
		}
	}
	return found, nil
}

// restart begins at a checkpoint, because the object that this process knew is gone.
func (s *store) restart(ctx context.Context, from point) error {
	fresh, err := s.load(ctx)
	if err != nil && !errors.Is(err, driver.ErrStoreChanged) {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case err != nil:
		s.broken = err
	case fresh.number < from.number:
		s.broken = fmt.Errorf("tenure: %w: the log ends at object %d after object %d was read: the bucket was "+
			"emptied or restored", driver.ErrStoreChanged, fresh.number, from.number)
	case from.number > 0 && fresh.id != s.state.id:
		s.broken = fmt.Errorf("tenure: %w: the bucket has another log: it was emptied", driver.ErrStoreChanged)
	default:
		s.state, s.proven = fresh, fresh.point()
		s.gen++
	}
	s.notify()
	return s.broken
}

// load returns the state at the log's end, which is proven.
func (o *objects) load(ctx context.Context) (*state, error) {
	for range 5 {
		st, err := o.begin(ctx)
		if err != nil {
			return nil, err
		}
		from := st.point()
		if err := o.forward(ctx, func() int64 { return st.number + 1 }, 4, st.apply); err != nil {
			return nil, err
		}
		var numbers []int64 // before it is known whether objects were deleted
		if st.number == 0 {
			if numbers, err = o.list(ctx, "!log/"); err != nil {
				return nil, err
			}
		}
		ok, err := o.holds(ctx, from)
		switch {
		case err != nil:
			return nil, err
		case ok && len(numbers) == 0:
			return st, nil
		case ok && numbers[0] > 1:
			return nil, fmt.Errorf("tenure: %w: the first object of the log of namespace %q is %d, and there is no checkpoint: "+
				"a lifecycle rule may have deleted objects; if the bucket was emptied, stop all processes and empty it again",
				driver.ErrStoreChanged, o.namespace, numbers[0])
		}
	}
	return nil, fmt.Errorf("tenure: %w: the log of namespace %q moved on while it was read", driver.ErrRetry, o.namespace)
}

// begin returns the state of the last checkpoint that can be read, or an empty one.
func (o *objects) begin(ctx context.Context) (*state, error) {
	numbers, err := o.checkpoints(ctx)
	if err != nil {
		return nil, err
	}
	for i := len(numbers) - 1; i >= 0; i-- {
		c, cerr := o.readCheckpoint(ctx, numbers[i])
		if cerr == nil {
			return c.state(), nil
		}
		if err = cerr; !errors.Is(err, driver.ErrDamaged) && !errors.Is(err, errMissing) {
			return nil, err
		}
	}
	if len(numbers) >= 2 {
		return nil, fmt.Errorf("tenure: no checkpoint of namespace %q can be read: %w", o.namespace, err)
	}
	return newState(), nil
}
