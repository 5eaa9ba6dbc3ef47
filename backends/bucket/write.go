package bucket

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"slices"
	"time"

	"github.com/tenure-go/tenure/backends/kv"
	"github.com/tenure-go/tenure/core/driver"
)

const (
	maxGroup = maxEntry - 64<<10 // bytes of the operations of one object
	maxTries = 3                 // of a request whose outcome is unknown
)

type answer struct {
	out *kv.Outcome
	err error
}

// call is a batch that waits for its answer. The fields below done belong to store.mu.
type call struct {
	batch *kv.Batch // not used once gone is true
	size  int
	done  chan answer

	gone bool // answered, or the caller has left
	sent bool // in an object that may exist, or still arrive
	gen  int  // of the store, when it was sent
}

func (c *call) answer(out *kv.Outcome, err error) {
	if !c.gone {
		c.gone = true
		c.done <- answer{out, err}
	}
}

// fail answers a call with an error. A heartbeat is neither undone nor repeated, so it learns that
// the store changed even if its outcome is unknown. The caller holds store.mu.
func (s *store) fail(c *call, err error) {
	if s.broken != nil && c.batch.Heartbeat && !c.gone {
		err = s.broken
	}
	c.answer(nil, err)
}

// refuse answers a call that was not applied. If the call was sent before, that is not proven.
func (s *store) refuse(c *call, err error) {
	if c.sent {
		err = unknown(err)
	}
	s.fail(c, err)
}

func (s *store) enqueue(calls ...*call) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range calls {
		if c.batch.Heartbeat {
			s.beats = append(s.beats, c)
		} else {
			s.writes = append(s.writes, c)
		}
	}
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// take returns the calls for the next object, heartbeats first.
func (s *store) take() (group []*call) {
	s.mu.Lock()
	defer s.mu.Unlock()
	size := 0
	for _, queue := range [...]*[]*call{&s.beats, &s.writes} {
		n := 0
		for _, c := range *queue {
			if size += c.size; size > maxGroup {
				break
			}
			group = append(group, c)
			n++
		}
		*queue = (*queue)[n:]
		if len(*queue) == 0 {
			*queue = nil
		}
	}
	return group
}

// write is the goroutine that writes objects, one at a time.
func (s *store) write() {
	lost := 0
	for {
		group := s.take()
		if len(group) == 0 {
			select {
			case <-s.wake:
				s.pace.rest(s.life, &s.mu)
				continue
			case <-s.life.Done():
			}
		}
		if s.life.Err() != nil {
			s.failAll(group, s.fail, errClosed)
			if len(group) == 0 {
				return
			}
			continue
		}
		if s.commit(group, lost) {
			lost = 0
			s.pace.rest(s.life, &s.mu)
		} else {
			lost++
		}
	}
}

func (s *store) failAll(calls []*call, how func(*call, error), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range calls {
		how(c, err)
	}
}

// plan is an entry that answers calls.
type plan struct {
	e     *entry // nil if nothing is to be written
	calls []*call
	outs  []*kv.Outcome
	from  point
}

// plan evaluates calls on the known state.
func (s *store) plan(group []*call) *plan {
	s.mu.Lock()
	defer s.mu.Unlock()
again:
	p := &plan{from: s.proven}
	v := &view{state: s.state, over: make(map[string]kv.Pair)}
	for _, c := range group {
		switch {
		case c.gone:
			continue
		case c.sent && c.gen != s.gen:
			s.fail(c, unknown(errors.New("the log went on without this process")))
			continue
		case s.broken != nil:
			s.refuse(c, s.broken)
			continue
		}
		out, err := v.run(c.batch)
		if err != nil {
			s.refuse(c, err)
			goto again
		}
		p.calls, p.outs = append(p.calls, c), append(p.outs, out)
	}
	if len(v.txns) > 0 {
		p.e = &entry{number: s.state.number + 1, prev: s.state.nonce, rev: s.state.rev, pace: s.pace.own,
			writer: s.writer, txns: v.txns}
	}
	return p
}

func (s *store) answer(p *plan) {
	for i, c := range p.calls {
		c.answer(p.outs[i], nil)
	}
}

// commit writes an object. It reports false if another process wrote the object with this number.
// In that case, the calls are queued again.
func (s *store) commit(group []*call, lost int) bool {
	if n := s.ahead(); lost == 0 && n > 1 {
		// A read is cheaper than a create that fails. It reads once, as the log's end may move on
		// faster than this process can read.
		if found, err := s.fetch(s.life, s.next(), n); err == nil {
			_, _ = s.applyAll(found) // create meets an error
		}
	} else if lost%8 == 7 {
		_ = s.look(s.life, true) // so that the object known to be in the log is not deleted; create meets an error
	}
	p := s.plan(group)
	if p.e == nil && len(p.calls) > 0 {
		// A refusal counts only if the state has all that was acknowledged.
		if err := s.look(s.life, true); err != nil {
			s.failAll(p.calls, s.refuse, notSent(err))
			return true
		}
		p = s.plan(group)
	}
	if p.e == nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.answer(p)
		return true
	}
	s.mu.Lock()
	for _, c := range p.calls {
		c.sent, c.gen = true, s.gen
	}
	s.mu.Unlock()
	began := time.Now()
	won, err := s.create(p, lost)
	switch {
	case err != nil:
		s.failAll(p.calls, s.fail, err)
	case won:
		s.succeed(p, time.Since(began)/2)
	default:
		s.mu.Lock()
		s.beats, s.writes = requeue(p.calls, s.beats, true), requeue(p.calls, s.writes, false)
		s.mu.Unlock()
		return false
	}
	return true
}

func requeue(calls, queue []*call, beats bool) (all []*call) {
	for _, c := range calls {
		if !c.gone && c.batch.Heartbeat == beats {
			all = append(all, c)
		}
	}
	return append(all, queue...)
}

// create creates the object of a plan, and proves its place. It reports false if another process
// created the object with this number.
//
// Each attempt has its own nonce. Otherwise, a copy of the object that arrives late, after the
// number was deleted, could pass for the object.
func (s *store) create(p *plan, lost int) (won bool, err error) {
	name := s.logName(p.e.number)
	tried := make([]nonce, 0, maxTries)
	for try := 0; try < maxTries && s.life.Err() == nil && s.awaited(p); try++ {
		if try > 0 {
			wait(s.life, 100*time.Millisecond<<try)
		}
		_, _ = rand.Read(p.e.nonce[:]) // never fails
		tried = append(tried, p.e.nonce)
		cerr := s.objects.create(s.life, name, p.e.encode())
		if cerr == nil {
			return true, s.proveOwn(p)
		}
		// The reply may have been lost, or the store's client may have sent the request twice.
		n := 2 + 2*min(lost, 1)
		found, rerr := s.fetch(s.life, p.e.number, n)
		switch {
		case rerr != nil:
			err = rerr
			continue
		case found[0] == nil && errors.Is(cerr, errTaken):
			// The object was there, and is gone.
			_ = s.look(s.life, true) // it remembers an error that matters
			return false, unknown(errors.New("the log went on without this process, or the bucket was emptied"))
		case found[0] == nil && errors.Is(cerr, driver.ErrDenied):
			return false, notSent(cerr)
		case found[0] == nil:
			err = cerr
			continue
		case slices.Contains(tried, found[0].nonce):
			p.e.nonce = found[0].nonce
			return true, s.proveOwn(p)
		}
		for all := true; all && rerr == nil; n = widen(n) { // while this process is behind
			if all, rerr = s.applyAll(found); all && rerr == nil {
				found, rerr = s.fetch(s.life, s.next(), widen(n))
			}
		}
		if rerr != nil {
			_ = s.look(s.life, true) // it remembers an error that matters
			return false, unknown(rerr)
		}
		return false, nil
	}
	if s.life.Err() != nil {
		return false, errClosed
	}
	if err == nil {
		err = errors.New("the callers have left")
	}
	return false, unknown(err)
}

// applyAll applies objects up to the first that is missing, and reports whether none is.
func (s *store) applyAll(found []*entry) (bool, error) {
	for _, e := range found {
		if e == nil {
			return false, nil
		}
		if err := s.apply(e); err != nil {
			return false, err
		}
	}
	return true, nil
}

// unknown returns an error that does not satisfy driver.NotApplied.
func unknown(err error) error {
	if errors.Is(err, driver.ErrDenied) {
		return fmt.Errorf("tenure: %w: the outcome is unknown: %v", driver.ErrDenied, err)
	}
	return fmt.Errorf("tenure: the outcome is unknown: %v", err)
}

// awaited reports whether any caller waits.
func (s *store) awaited(p *plan) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range p.calls {
		if !c.gone {
			return true
		}
	}
	return false
}

// proveOwn proves that a created object belongs to the log.
func (s *store) proveOwn(p *plan) error {
	for try := 1; ; try++ {
		ok, err := s.holds(s.life, p.from)
		switch {
		case ok:
			return nil
		case err == nil:
			_ = s.look(s.life, true) // it remembers an error that matters
			return unknown(errors.New("the log went on without this process, or the bucket was emptied or restored"))
		case s.life.Err() != nil:
			return errClosed
		case try == maxTries:
			return unknown(err)
		}
		wait(s.life, 100*time.Millisecond<<try)
	}
}

// succeed answers the calls of an entry whose place is proven.
func (s *store) succeed(p *plan, took time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state.number == p.e.number-1 && s.state.nonce == p.e.prev {
		if err := s.state.apply(p.e); err != nil {
			s.broken = err
		}
		s.notify()
	}
	if s.state.number >= p.e.number {
		s.prove(point{p.e.number, p.e.nonce, p.e.rev + kv.Rev(len(p.e.txns))})
	}
	s.pace.done(took)
	s.answer(p)
	if p.e.number%s.every == 0 && s.state.number == s.proven.number {
		s.save(s.state.checkpoint())
	}
}

// wait waits for about d, or until ctx ends.
func wait(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d/2 + mathrand.N(d/2+1))
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
