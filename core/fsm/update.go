package fsm

import (
	"errors"

	"github.com/tenure-go/tenure/core/driver"
)

// update replaces what this process tells the others about itself. Its number orders it
// behind all before, in this session and the next ones.
func (m *Machine) update(st driver.MemberState) {
	st.Update = m.cfg.Member.Update + 1
	m.cfg.Member.MemberState = st
}

// mayUpdate is C12: the store does not have the newest state, and no call is under way
// that may bring it a state.
func (m *Machine) mayUpdate() bool { return m.stored < m.cfg.Member.Update && m.calls[update].id == 0 }

func (m *Machine) sendUpdate() {
	c := &m.calls[update]
	c.id, c.number = m.newCall(), m.cfg.Member.Update
	m.emit(Effect{Kind: EffUpdate, Call: c.id, Session: m.sess, State: m.cfg.Member.MemberState, Timeout: m.callTimeout(update, 1)})
}

func (m *Machine) updated(id CallID, err error) {
	c := &m.calls[update]
	if id != c.id || id == 0 {
		return
	}
	c.id = 0
	c.ended(err)
	if m.fatal(err) {
		return
	}
	if err != nil && !errors.Is(err, driver.ErrConflict) { // a conflict is with a later one of this session
		m.updateErr = err
		m.updateAt = m.now.Add(m.rng.backoff(m.cfg.BackoffMin, m.cfg.BackoffMax, m.updates))
		m.updates++
		m.event(EventCallFailed, err)
		return
	}
	m.stored, m.updateErr, m.updates = c.number, nil, 0
}

// Updated is the number of the newest state of this member that the store has, or that
// its join brings, and why the store does not have a later one yet, if a call failed.
// What it was told without a session goes with the next join.
func (m *Machine) Updated() (driver.UpdateNo, error) {
	if m.phase == live || m.phase == joining {
		return m.stored, m.updateErr
	}
	return m.cfg.Member.Update, nil
}

// State is what this process tells the others about itself.
func (m *Machine) State() driver.MemberState { return m.cfg.Member.MemberState }
