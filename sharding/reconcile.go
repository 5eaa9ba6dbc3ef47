package sharding

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/sharding/assign"
)

// A step is what a member does with one shard.
type step uint8

const (
	keep     step = iota // do nothing
	contend              // contend for the shard
	withdraw             // withdraw from the shard
	handOver             // hand the shard over to the successor
)

type situation struct {
	contended bool            // the elector contends for the shard
	state     core.LeaseState // the state of this member's lease; empty if it has no lease
	leave     bool            // this member must give away its shards
	alone     bool            // no other member takes this member's shards
	successor core.SessionID  // the successor of a lease that can be handed over; otherwise empty
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

type steps struct {
	contend, withdraw []string
	handOver          map[core.SessionID][]int
	left              int // number of leases that must be given away before this member is empty
}

// reconcile makes this member's leases follow the table and the view, and reports whether this
// member is leaving and has no shards left. Only the current state counts, so missed intermediate
// states do not matter.
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
	// Until the withdrawal, the store may grant this member a shard that this view does not show.
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

func (m *Manager) steps(v *core.View, leave, alone bool) *steps {
	todo := &steps{handOver: map[core.SessionID][]int{}}
	leases := v.Leases // sorted by name, like s.names
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

// If waits returns true, this member may claim a shard only once a plan assigns the shard to it.
// Such a shard is in quarantine, or its next owner's death would put it there. If this member did
// not wait, it could be the next owner to die.
func (m *Manager) waits(v *core.View, i int) bool {
	s := m.suspects[i]
	if s == nil || m.o.Quarantine.Deaths < 0 {
		return false
	}
	k := m.at[i]
	return s.held() || m.cautious && m.o.Quarantine.close(s, m.top) && k != assign.None && m.known.session(int(k)) != v.Session
}

// carryOut does not wait for hand-overs and withdrawals, whose results appear in later views.
// Therefore, a handler that does not return does not delay other shards.
func (m *Manager) carryOut(todo *steps, leave bool) error {
	if len(todo.contend) > 0 {
		if err := m.e.Contend(m.h, todo.contend...); err != nil {
			return err
		}
	}
	// The member contends for the assigner's shard last, because the first contention makes the
	// member join, and a visible member may get a shard immediately.
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
				m.contended[i] = true // the view was old: the successor is now this process
			}
		}
	}
	if len(todo.withdraw) > 0 {
		_ = m.e.Withdraw(asked, todo.withdraw...) // fails only because the call does not wait
	}
	return nil
}

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

// successor returns the member to which this member should hand a shard. If there is no such
// member, or if it is still preparing the shard, successor returns "".
func (m *Manager) successor(v *core.View, i int, leave, alone bool) (to core.SessionID, prepares bool) {
	k := m.at[i]
	if k == assign.None {
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
	if alone && m.heirs[k] != assign.None {
		if to = m.known.members[m.heirs[k]].ID; to != v.Session {
			if _, lives := v.Member(to); lives {
				return to, false
			}
		}
	}
	return "", false
}
