package sharding

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/tenure-go/tenure/core"
)

// A step is an action of a member for one shard.
type step uint8

const (
	keep     step = iota // no action
	contend              // for the shard
	withdraw             // from the shard
	handOver             // to the successor
)

// A situation is everything that decides the step for one shard.
type situation struct {
	contended bool            // the elector contends for it
	state     core.LeaseState // of this member's lease; empty without a lease
	leave     bool            // this member must be emptied
	alone     bool            // and no other member takes its shards
	successor core.SessionID  // of a lease that can be handed over; empty without one
}

func (s situation) step() step {
	switch {
	case s.state == "" && s.contended == !s.leave:
		return keep
	case s.state == "" && s.leave:
		return withdraw
	case s.state == "":
		return contend
	case !s.yields():
		return keep
	case s.successor != "":
		return handOver
	case s.alone:
		return withdraw
	}
	return keep
}

// yields reports whether the lease can be handed over.
func (s situation) yields() bool {
	return s.contended && (s.state == core.LeaseHeld || s.state == core.LeaseStarting)
}

// steps holds the steps for all shards, by kind.
type steps struct {
	contend, withdraw []string
	handOver          map[core.SessionID][]int
	left              int // leases still to be given away before this member is empty
}

// reconcile carries out the table and the view. It reports whether this member is leaving and has
// nothing left. It decides from the current state alone, so missed intermediate states do not
// matter.
func (m *Manager) reconcile(v *core.View) (empty bool, err error) {
	m.mu.Lock()
	table, leave := m.table, m.drained
	m.mu.Unlock()
	if table != m.known {
		if err := m.learn(table); err != nil {
			return false, err
		}
	}
	switch {
	case !leave:
		m.leftAt = time.Time{}
	case m.leftAt.IsZero():
		m.leftAt = time.Now()
	}
	if err := m.show(leave); err != nil {
		return false, err
	}
	others := slices.ContainsFunc(v.Members, func(x core.Member) bool { return x.Session != v.Session && m.o.Takes(x) })
	alone := leave && (!others || time.Since(m.leftAt) > 4*m.o.Interval)
	m.waiting = false
	todo := m.steps(v, leave, alone)
	m.prepare(v, leave)
	if err := m.carryOut(todo, leave); err != nil || !leave {
		return false, err
	}
	// Until it is withdrawn, a shard may be granted that this view does not show.
	if len(todo.withdraw) > 0 {
		signal(m.wake)
		return false, nil
	}
	if todo.left > 0 {
		return false, nil
	}
	m.noteEmptied()
	return true, nil
}

// steps decides the step for every shard.
func (m *Manager) steps(v *core.View, leave, alone bool) *steps {
	todo := &steps{handOver: map[core.SessionID][]int{}}
	leases := v.Leases // sorted, as the names are
	for i, name := range m.names {
		for len(leases) > 0 && cmp.Compare(string(leases[0].Fence.Shard), name) < 0 {
			leases = leases[1:]
		}
		s := situation{contended: m.contended[i], leave: leave || m.waits(v, i), alone: alone || m.suspects[i].held()}
		if len(leases) > 0 && string(leases[0].Fence.Shard) == name {
			s.state = leases[0].State
			if s.state != core.LeaseStuck && s.state != core.LeaseRevoked {
				todo.left++
			}
			if s.yields() {
				if token := leases[0].Fence.Token; token != m.seen[i].token {
					m.seen[i] = sight{token, m.known.number}
				}
				var prepares bool
				s.successor, prepares = m.successor(v, i, leave, alone)
				s.alone = s.alone && !prepares
			}
		}
		switch s.step() {
		case contend:
			todo.contend = append(todo.contend, name)
			m.contended[i] = true
		case withdraw:
			todo.withdraw = append(todo.withdraw, name)
			m.contended[i] = false
		case handOver:
			todo.handOver[s.successor] = append(todo.handOver[s.successor], i)
			m.contended[i] = false
		default: // keep
		}
	}
	return todo
}

// waits reports whether this member must not own a shard before a plan gives it the shard. The
// shard is in quarantine, or its next owner's death would put it there. In the latter case, an
// heir would be the first to die.
func (m *Manager) waits(v *core.View, i int) bool {
	s := m.suspects[i]
	if s == nil || m.o.Quarantine.Deaths < 0 {
		return false
	}
	k := m.at[i]
	return s.held() || m.cautious && m.o.Quarantine.close(s, m.top) && k != None && m.known.session(int(k)) != v.Session
}

// carryOut asks the elector for the steps. Later views show the results of hand-overs and
// withdrawals, so a handler that does not return delays no other shard.
func (m *Manager) carryOut(todo *steps, leave bool) error {
	if len(todo.contend) > 0 {
		if err := m.e.Contend(m.h, todo.contend...); err != nil {
			return err
		}
	}
	// This comes after the shards, because the first contention joins, and a visible member may
	// get a shard immediately.
	if err := m.standForAssigner(!leave && !m.blind.Load() && time.Now().UnixNano() >= m.refused.Load()); err != nil {
		return err
	}
	asked, cancel := context.WithCancel(context.Background())
	cancel()
	for to, list := range todo.handOver {
		names := make([]string, len(list))
		for k, i := range list {
			names[k] = m.names[i]
		}
		if err := m.e.HandOver(asked, to, names...); errors.Is(err, core.ErrInvalid) {
			for _, i := range list {
				m.contended[i] = true // the view was old: the successor is this process now
			}
		}
	}
	if len(todo.withdraw) > 0 {
		_ = m.e.Withdraw(asked, todo.withdraw...) // fails only because it does not wait
	}
	return nil
}

// noteEmptied closes the channel of Emptied.
func (m *Manager) noteEmptied() {
	m.mu.Lock()
	defer m.mu.Unlock()
	select {
	case <-m.emptied:
	default:
		if m.drained {
			close(m.emptied)
		}
	}
}

// successor returns the member that gets a shard of this member. It returns "" if no member
// does, or while that member still prepares the shard.
func (m *Manager) successor(v *core.View, i int, leave, alone bool) (to core.SessionID, prepares bool) {
	k := m.at[i]
	if k == None {
		return "", false
	}
	to = m.known.session(int(k))
	if to != "" && to != v.Session {
		if _, lives := v.Member(to); !lives || !leave && m.known.number <= m.seen[i].number {
			return "", false
		}
		if m.unready(v, int(k), to) {
			return "", true
		}
		return to, false
	}
	if alone && m.heirs[k] != None {
		if to = m.known.members[m.heirs[k]].ID; to != v.Session {
			if _, lives := v.Member(to); lives {
				return to, false
			}
		}
	}
	return "", false
}
