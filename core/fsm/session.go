package fsm

import (
	"errors"
	"time"

	"github.com/tenure-go/tenure/core/driver"
)

func (m *Machine) join() {
	m.phase = joining
	m.sess = m.cfg.NewSession() // fresh for each attempt: C3
	m.joinCall, m.joinSent = m.newCall(), m.now
	member := m.cfg.Member
	member.Session = m.sess
	m.emit(Effect{Kind: EffJoin, Call: m.joinCall, Session: m.sess, Member: member, Timeout: m.cfg.CallTimeout})
}

func (m *Machine) joined(id CallID, err error) {
	if id != m.joinCall || m.joinCall == 0 {
		return
	}
	m.joinCall = 0
	if m.phase == left && err == nil {
		m.emit(Effect{Kind: EffClose, Session: m.sess})
	}
	if m.phase != joining {
		return
	}
	if err != nil {
		if errors.Is(err, driver.ErrStoreChanged) {
			m.halt(err)
			return
		}
		m.event(EventJoinFailed, err)
		m.backOff()
		return
	}
	m.phase, m.joins = live, 0
	m.until = m.joinSent.Add(m.cfg.Member.TTL - m.cfg.Margin)
	m.lapsed = false
	m.beatAt = m.joinSent.Add(m.interval())
	m.okSentAt = -1
	m.resyncAt = m.now.Add(m.cfg.Resync)
	m.event(EventJoined, nil)
	m.watch()
	m.dueAll(m.now)
	m.lapse() // a reply that came too late starts no trust: S8
	if !m.lapsed {
		m.emit(Effect{Kind: EffExtend, Session: m.sess, Until: m.until})
	}
}

func (m *Machine) backOff() {
	m.phase, m.sess = waiting, ""
	m.joinAt = m.now.Add(m.rng.backoff(m.cfg.BackoffMin, m.cfg.BackoffMax, m.joins))
	m.joins++
}

// lapse revokes everything when trust has ended.
func (m *Machine) lapse() {
	if m.phase != live || m.lapsed || m.now < m.until {
		return
	}
	m.lapsed, m.lapsedAt = true, m.now
	m.deaf, m.quietTo = 0, 0
	m.event(EventLapsed, nil)
	m.revokeAll(CauseLapsed)
	m.resync()
}

// resync asks for a full read, and for the next one in time.
func (m *Machine) resync() {
	m.emit(Effect{Kind: EffResync})
	d := m.cfg.Resync
	if m.lapsed {
		d = min(d, m.cfg.Member.TTL/3)
	}
	m.resyncAt = m.now.Add(d)
}

// mayBeat is C6: after a lapse, only who asked for a read since then, and was
// answered not long ago, may keep its record alive, and only until as many heartbeats as may
// be outstanding went without an answer; then it stays silent long enough to be
// evicted, before it tries again. Otherwise a member whose requests arrive but
// whose replies do not would hold its shards for ever.
func (m *Machine) mayBeat() bool {
	return !m.lapsed || m.now >= m.quietTo && m.heardAt >= m.lapsedAt && m.now < m.answered.Add(m.cfg.Member.TTL/2)
}

// unheard counts a heartbeat after a lapse whose outcome is unknown. A refusal is
// an answer.
func (m *Machine) unheard() {
	if m.deaf++; m.lapsed && m.deaf >= maxBeats {
		m.deaf, m.quietTo = 0, m.now.Add(2*m.cfg.Member.TTL)
	}
}

// interval is the time to the next heartbeat: a third of the own TTL or of the
// smallest one watched (C5), less jitter.
func (m *Machine) interval() time.Duration {
	d := m.cfg.Interval
	if m.minTTL > 0 {
		d = min(d, time.Duration(m.minTTL/3))
	}
	return d - time.Duration(float64(d)*m.cfg.Jitter*m.rng.float())
}

// sendBeat sends one, and plans the next for the moment at which this one is
// late: C4. A late reply still counts for what it is worth, up to the trust that
// it could give: C10.
func (m *Machine) sendBeat() {
	id := m.newCall()
	m.beats = append(m.beats, beat{id, m.now})
	m.beatSent = m.now
	ttl := m.cfg.Member.TTL
	next := m.interval()
	if !m.lapsed {
		next = min(next, max(m.until.Sub(m.now), ttl/24))
	}
	m.beatAt = m.now.Add(next)
	m.emit(Effect{Kind: EffBeat, Call: id, Session: m.sess, Timeout: ttl - m.cfg.Margin})
}

func (m *Machine) beaten(id CallID, err error) {
	k := -1
	for i := range m.beats {
		if m.beats[i].call == id {
			k = i
		}
	}
	if k < 0 || m.phase != live {
		return
	}
	sentAt := m.beats[k].sentAt
	m.beats = append(m.beats[:k], m.beats[k+1:]...)
	if m.fatal(err) {
		return
	}
	if err != nil {
		ttl := m.cfg.Member.TTL
		m.beatAt = min(m.beatAt, m.now.Add(ttl/24+m.rng.upTo(ttl/24)))
		m.event(EventBeatFailed, err)
		if driver.Unknown(err) && sentAt >= m.lapsedAt {
			m.unheard()
		}
		return
	}
	m.covered(sentAt)
	until := sentAt.Add(m.cfg.Member.TTL - m.cfg.Margin)
	if until <= m.until || until <= m.now {
		return
	}
	m.until = until
	m.emit(Effect{Kind: EffExtend, Session: m.sess, Until: until})
	if m.lapsed {
		m.lapsed = false
		m.resyncAt = max(m.resyncAt, m.now.Add(m.cfg.Resync))
		m.event(EventRegained, nil)
		// Each shard needs a new token first: C7. One delay for all: one batch.
		m.dueAll(m.now.Add(m.rng.upTo(m.cfg.Member.TTL / 24)))
	}
}

// lost ends the session: it has no record any more.
func (m *Machine) lost() {
	m.revokeAll(CauseSessionLost)
	m.event(EventSessionLost, nil)
	m.drop()
	m.joins = 0
	m.backOff()
}

// drop forgets what was outstanding in the session's name.
func (m *Machine) drop() {
	m.former = m.sess
	m.beats = m.beats[:0]
	for k := range m.calls {
		m.calls[k] = call{}
		m.batch[k], m.kept[k] = m.batch[k][:0], m.kept[k][:0]
	}
	for i := range m.shards {
		m.shards[i].flight = noCall
	}
	for _, p := range m.peers {
		p.evicting = false
	}
}

func (m *Machine) halt(err error) {
	m.revokeAll(CauseStoreChanged)
	m.event(EventHalted, err)
	m.drop()
	m.phase, m.sess = halted, ""
}

func (m *Machine) leave() {
	switch m.phase {
	case live:
		m.revokeAll(CauseLeft)
		if !m.running() {
			m.emit(Effect{Kind: EffClose, Session: m.sess})
		}
		m.drop()
		m.sess = ""
	case left, halted:
		return
	case idle, waiting:
		m.sess = ""
	}
	m.phase = left // a join still outstanding keeps its id, to be closed
}

func (m *Machine) running() bool {
	for i := range m.shards {
		if o := m.shards[i].own; o != nil && o.running {
			return true
		}
	}
	return false
}
