package fsm

import (
	"errors"
	"maps"

	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/mark"
)

// update replaces the state that this process publishes. The new state's number exceeds all earlier
// numbers in this process's sessions.
func (m *Machine) update(st driver.MemberState) {
	st.Update = m.cfg.Member.Update + 1
	m.cfg.Member.MemberState = st
	m.yieldAt = m.now // C16: its priority may have changed
}

// mayUpdate implements C12: it reports whether the store lacks the newest state and no call in
// progress may write a state.
func (m *Machine) mayUpdate() bool { return m.stored < m.cfg.Member.Update && m.calls[update].id == 0 }

func (m *Machine) sendUpdate() {
	c := &m.calls[update]
	c.id, c.number = m.newCall(), m.cfg.Member.Update
	m.emit(Effect{Kind: EffUpdate, Call: c.id, Session: m.sess, State: m.Public(), Timeout: m.callTimeout(update, 1)})
}

func (m *Machine) updated(id CallID, err error) {
	c := &m.calls[update]
	if id != c.id || id == 0 {
		return
	}
	c.id = 0
	c.ended(err, m.now)
	if m.fatal(err) {
		return
	}
	if err != nil && !errors.Is(err, driver.ErrConflict) { // a conflict means that a later update of this session was applied
		m.updateErr = err
		m.updateAt = m.now.Add(m.rng.backoff(m.cfg.BackoffMin, m.cfg.BackoffMax, m.updates))
		m.updates++
		m.event(EventCallFailed, err)
		return
	}
	m.stored, m.updateErr, m.updates = c.number, nil, 0
}

// Updated returns the number of this member's newest state in the store, or of the state that the
// join in progress writes. If a later state is not in the store because a call failed, Updated also
// returns that call's error. Without a session, the next join publishes the newest state.
func (m *Machine) Updated() (driver.UpdateNo, error) {
	if m.phase == live || m.phase == joining {
		return m.stored, m.updateErr
	}
	return m.cfg.Member.Update, nil
}

// Hold sets the identity of the lock that this process holds (C14). The runner calls Hold before
// the first Step.
func (m *Machine) Hold(lock string) { m.cfg.HostLock = lock }

// Public returns State as other members see it, with the lock and the reason why this process is
// ineligible.
func (m *Machine) Public() driver.MemberState { return with(m.shown(), HostLockKey, m.cfg.HostLock) }

// shown returns the result of Public without the lock.
func (m *Machine) shown() driver.MemberState {
	return with(m.cfg.Member.MemberState, mark.IneligibleKey, m.cfg.Ineligible)
}

func with(st driver.MemberState, key, value string) driver.MemberState {
	if value == "" {
		return st
	}
	meta := make(map[string]string, len(st.Meta)+1)
	maps.Copy(meta, st.Meta)
	meta[key] = value
	if driver.CheckUpdate(driver.MemberState{Meta: meta, Update: 1}) == nil {
		st.Meta = meta
	}
	return st
}

// cutLock separates the state and the lock that Public combined.
func cutLock(st driver.MemberState) (driver.MemberState, string) {
	lock, ok := st.Meta[HostLockKey]
	if !ok {
		return st, ""
	}
	var meta map[string]string
	if len(st.Meta) > 1 {
		meta = maps.Clone(st.Meta)
		delete(meta, HostLockKey)
	}
	st.Meta = meta
	return st, lock
}

// Ineligible returns the reason why this process is ineligible, or "" if it is eligible.
func (m *Machine) Ineligible() string { return m.cfg.Ineligible }

// State returns the state that this process publishes.
func (m *Machine) State() driver.MemberState { return m.cfg.Member.MemberState }
