package fsm

import (
	"errors"
	"maps"

	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/mark"
)

// update replaces the state that this process publishes. Its number is greater than all before,
// in this session and earlier ones.
func (m *Machine) update(st driver.MemberState) {
	st.Update = m.cfg.Member.Update + 1
	m.cfg.Member.MemberState = st
	m.yieldAt = m.now // C16: its priority may have changed
}

// mayUpdate is C12. It reports whether the store lacks the newest state, and no call in
// progress may bring it a state.
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
	if err != nil && !errors.Is(err, driver.ErrConflict) { // a conflict is with a later one of this session
		m.updateErr = err
		m.updateAt = m.now.Add(m.rng.backoff(m.cfg.BackoffMin, m.cfg.BackoffMax, m.updates))
		m.updates++
		m.event(EventCallFailed, err)
		return
	}
	m.stored, m.updateErr, m.updates = c.number, nil, 0
}

// Updated returns the number of this member's newest state that the store has, or that its join
// brings. If a call failed, it also returns the reason why the store does not have a later
// state yet. Without a session, the next join carries the newest state.
func (m *Machine) Updated() (driver.UpdateNo, error) {
	if m.phase == live || m.phase == joining {
		return m.stored, m.updateErr
	}
	return m.cfg.Member.Update, nil
}

// Hold sets the identity of the lock that this process holds (C14). It is called before the first
// Step.
func (m *Machine) Hold(lock string) { m.cfg.HostLock = lock }

// Public returns State as the others see it: with the lock, and with the reason why this process
// is not eligible.
func (m *Machine) Public() driver.MemberState { return with(m.shown(), HostLockKey, m.cfg.HostLock) }

// shown returns Public without the lock.
func (m *Machine) shown() driver.MemberState {
	return with(m.cfg.Member.MemberState, mark.IneligibleKey, m.cfg.Ineligible)
}

// with returns the state with a value in its metadata, which it copies, unless the value
// is empty or there is no room.
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

// Ineligible returns the reason why this process is not eligible, or "" if it is.
func (m *Machine) Ineligible() string { return m.cfg.Ineligible }

// State returns the state that this process publishes.
func (m *Machine) State() driver.MemberState { return m.cfg.Member.MemberState }
