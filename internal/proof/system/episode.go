package system

import (
	"context"
	"fmt"
	"slices"

	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/proof/harness"
	"github.com/tenure-go/tenure/internal/proof/history"
)

// injectAll injects the faults of the schedule. At any time, at least one member has no fault.
func (s *supervisor) injectAll(ctx context.Context) error {
	defer s.episodes.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for n := 0; s.goesOn(n); n++ {
		if n >= s.config.Steps && s.lateWrites() < minLate {
			s.schedule.insert(faultSend)
		}
		st := s.schedule.next()
		pause(ctx, st.After)
		if st.Fault.ofStore() {
			if err := s.alone(ctx); err != nil {
				return err
			}
			if err := s.faultStore(ctx, st); err != nil {
				return err
			}
			continue
		}
		var victim *node
		choose := func() bool { victim = s.choose(st); return victim != nil }
		if err := s.await(ctx, "a member free for a fault", slack+s.ttls(settleTTLs), choose); err != nil {
			return err
		}
		s.episodes.Go(func() {
			err := s.faultMember(ctx, st, victim)
			s.mu.Lock()
			defer s.mu.Unlock()
			victim.busy = false
			if s.err == nil && err != nil {
				s.err = fmt.Errorf("%s: %w", st.Fault, err)
			}
		})
	}
	return s.alone(ctx)
}

// minLate is the number of late writes that a run should have. A late write is held until another
// member has been granted the shard. The fence exists to refuse late writes, so a run without them
// proves nothing.
const minLate = 2

// goesOn reports whether a schedule has step n. While there is too little evidence, a schedule
// continues beyond the planned steps, up to twice their number.
func (s *supervisor) goesOn(n int) bool {
	switch {
	case n < s.config.Steps:
		return true
	case n >= 2*s.config.Steps:
		return false
	}
	s.episodes.Wait() // each episode has a time limit, and may still produce findings
	return s.watch.seenTakeovers() < s.config.MinTakeovers || s.lateWrites() < minLate
}

func (s *supervisor) lateWrites() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, k := range s.injections {
		if k.late {
			n++
		}
	}
	return n
}

// The method waits until no episode is running and every shard is owned.
func (s *supervisor) alone(ctx context.Context) error {
	s.episodes.Wait() // each wait of an episode has a limit
	return s.await(ctx, "every shard to have an owner", slack+s.ttls(settleTTLs), s.owned)
}

// choose picks a member for a step and marks it as busy, or returns nil if no member is free.
func (s *supervisor) choose(st step) *node {
	s.mu.Lock()
	defer s.mu.Unlock()
	var free []*node
	for _, node := range s.nodes {
		if !node.busy && node.proc.isUp() {
			free = append(free, node)
		}
	}
	if len(free) < 2 {
		return nil
	}
	node := free[int(st.Victim*float64(len(free)))]
	if st.Owner {
		for _, other := range free {
			if len(s.watch.owned(other.proc.Name)) > len(s.watch.owned(node.proc.Name)) {
				node = other
			}
		}
	}
	node.busy = true
	return node
}

func (s *supervisor) begin(st step, process string) *injection {
	k := &injection{step: st, process: process, at: history.Now()}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.injections = append(s.injections, k)
	return k
}

func (s *supervisor) faultStore(ctx context.Context, st step) error {
	k := s.begin(st, "")
	defer func() { k.over = history.Now() }()
	if st.Fault == faultReboot {
		return s.store.Restart(ctx)
	}
	f := s.store.Pause
	if st.Fault == faultCut {
		f = s.store.Cut
	}
	heal, err := f(ctx)
	if err != nil {
		return err
	}
	k.took = history.Now()
	pause(ctx, st.For)
	return heal()
}

func (s *supervisor) faultMember(ctx context.Context, st step, node *node) error {
	p := node.proc
	switch st.Fault {
	case faultKill, faultRestart, faultSupersede:
		s.begin(st, p.Name)
		if err := p.Kill(); err != nil {
			return err
		}
		s.rec.Exited(p.Name)
		pause(ctx, st.For)
		return s.restart(ctx, node, st.Fault == faultSupersede)
	case faultLeave:
		s.begin(st, p.Name)
		if err := s.leave(ctx, node); err != nil {
			return err
		}
		pause(ctx, st.For)
		return s.restart(ctx, node, false)
	case faultStop, faultShort:
		return s.stop(ctx, st, p, nil)
	case faultSend:
		return s.stopHolding(ctx, st, p, harness.BeforeSend)
	case faultReply:
		return s.stopHolding(ctx, st, p, harness.AfterReply)
	case faultWithdraw, faultHandOver:
		return s.give(ctx, st, p)
	default:
		return fmt.Errorf("tenure: system: %q is no fault of a member", st.Fault)
	}
}

func (s *supervisor) restart(ctx context.Context, node *node, supersede bool) error {
	if ctx.Err() != nil {
		return nil
	}
	if err := s.start(node, supersede); err != nil {
		return err
	}
	p := node.proc
	err := s.await(ctx, p.Name+" to start", slack+s.ttls(settleTTLs), func() bool { return p.isUp() || p.Ended() })
	if p.Ended() {
		return fmt.Errorf("tenure: system: %s ended by itself: %w", p.Name, p.Err())
	}
	return err
}

// stop stops a process for the step's duration. The stop lasts longer if until is not nil and has
// not yet returned true.
func (s *supervisor) stop(ctx context.Context, st step, p *process, until func() bool) error {
	k := s.begin(st, p.Name)
	if err := p.Stop(); err != nil {
		return err
	}
	pause(ctx, st.For)
	late := false
	if until != nil {
		// If no takeover happens, the process continues as before.
		err := s.await(ctx, "the takeover", s.ttls(10), until)
		late = err == nil && st.Fault == faultSend
		if err := p.Order(order{Do: doSend}); err != nil {
			return err
		}
	}
	before := p.sends()
	err := p.Continue()
	over := history.Now()
	if late {
		// The store must have the write before the next fault begins.
		err := s.await(ctx, "the late write", harness.LateLimit, func() bool { return p.sends() > before || p.Ended() })
		late = err == nil && p.sends() > before
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	k.over, k.late = over, late
	return err
}

// stopHolding stops a process in the middle of a write until another member has been granted the
// shard.
func (s *supervisor) stopHolding(ctx context.Context, st step, p *process, where harness.Point) error {
	before, _ := p.holds()
	held := func() bool { n, _ := p.holds(); return n > before || p.Ended() }
	own := s.watch.owned(p.Name)
	for _, shard := range rotate(own, st.Shard) {
		if err := p.Order(order{Do: doHold, Shard: shard, Where: where}); err != nil {
			return err
		}
		if err := s.await(ctx, "a write to be held", s.ttls(2), held); err == nil {
			_, token := p.holds()
			return s.stop(ctx, st, p, func() bool {
				o, _ := s.watch.owner(shard)
				return o.Token > token && o.Session != ""
			})
		}
	}
	// The process did not hold a write in time, so it must send any write that it still holds.
	if err := p.Order(order{Do: doSend}); err != nil {
		return err
	}
	return s.stop(ctx, st, p, nil)
}

// give makes a member temporarily withdraw a shard or hand it over.
func (s *supervisor) give(ctx context.Context, st step, p *process) error {
	own := rotate(s.watch.owned(p.Name), st.Shard)
	if len(own) == 0 {
		return nil
	}
	o := order{Do: doWithdraw, Shard: own[0], For: st.For}
	if st.Fault == faultHandOver {
		o.Do = doHandOver
		if o.To = s.successor(p); o.To == "" {
			return nil
		}
	}
	s.begin(st, p.Name)
	if err := p.Order(o); err != nil {
		return err
	}
	pause(ctx, st.For+s.ttls(0.2))
	return nil
}

// successor returns the session of a member without a fault.
func (s *supervisor) successor(not *process) driver.SessionID {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, node := range s.nodes {
		if !node.busy && node.proc != not {
			if id := s.watch.session(node.proc.Name); id != "" {
				return id
			}
		}
	}
	return ""
}

// rotate returns the list, rotated to start at a share of its length.
func rotate[E any](list []E, share float64) []E {
	i := int(share * float64(len(list)))
	return slices.Concat(list[i:], list[:i])
}
