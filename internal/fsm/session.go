package fsm

import (
	"errors"
	"fmt"
	"time"

	"github.com/tenure-go/tenure/core/driver"
)

func (m *Machine) join() {
	m.phase = joining
	m.sess = m.cfg.NewSession() // fresh for each attempt: C3
	m.joinCall, m.joinSent = m.newCall(), m.now
	member := m.cfg.Member
	member.Session, member.MemberState = m.sess, m.Public()
	m.stored, m.updateErr = member.Update, nil
	m.emit(Effect{Kind: EffJoin, Call: m.joinCall, Session: m.sess, Member: member, Timeout: m.callTimeout(enter, 0)})
}

func (m *Machine) joined(id CallID, err error) {
	if id != m.joinCall || m.joinCall == 0 {
		return
	}
	m.joinCall = 0
	m.calls[enter].ended(err, m.now)
	if m.phase == left && err == nil {
		m.close()
		m.former, m.sess = m.sess, ""
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
	m.phase = live
	m.until = m.joinSent.Add(m.cfg.Member.TTL - m.cfg.Margin)
	m.lapsed = false
	m.beatSent, m.okSentAt = m.joinSent, m.joinSent // the join proves as much as a heartbeat: C5
	m.slow, m.beatErr = 0, nil
	m.beatAt = m.joinSent.Add(m.interval())
	m.resyncAt = m.now.Add(m.cfg.Resync)
	m.yieldAt = m.now
	m.event(EventJoined, nil)
	for _, p := range m.peers {
		p.watched = false // the silence of these peers starts to count now
	}
	m.watch()
	m.dueAll(m.now)
	m.lapse(0) // a reply that arrived too late starts no trust: S8
	if !m.lapsed {
		m.emit(Effect{Kind: EffExtend, Session: m.sess, Until: m.until})
	}
}

func (m *Machine) backOff() {
	m.phase, m.sess = waiting, ""
	m.joinAt = m.now.Add(m.rng.backoff(m.cfg.BackoffMin, m.cfg.BackoffMax, m.joins))
	m.joins++
}

// lapse revokes all leases when trust has ended. A very late step shows that this process was not
// running, so the store did not cause the lapse.
func (m *Machine) lapse(late time.Duration) {
	if m.phase != live || m.lapsed || m.now < m.until {
		return
	}
	if late >= m.cfg.Member.TTL/4 {
		m.beatErr = fmt.Errorf("this process did not run for %v: it was stopped or suspended, or had no processor", late)
	}
	m.lapsed, m.lapsedAt = true, m.now
	m.deaf, m.quietTo = 0, 0
	m.readAt = m.now
	m.event(EventLapsed, m.beatErr)
	m.revokeAll(CauseLapsed)
	m.resync()
}

func (m *Machine) resync() {
	m.emit(Effect{Kind: EffResync})
	m.resyncAt = m.now.Add(m.cfg.Resync)
}

// mayBeat implements C6 and C10. After a lapse, a member sends heartbeats only if a read since the
// lapse was answered recently. If a few heartbeats get no answer, the member stays silent until the
// others can evict it, and then tries to send heartbeats again. Without this limit, a member whose
// requests arrive, but whose replies are lost, would hold its shards forever.
func (m *Machine) mayBeat() bool {
	if !m.lapsed {
		return len(m.beats) < maxBeats
	}
	n := 0
	for _, b := range m.beats {
		if b.sentAt >= m.lapsedAt {
			n++
		}
	}
	return n < lapsedBeats && m.now >= m.quietTo &&
		m.heardAt >= m.lapsedAt && m.now < m.answered.Add(m.cfg.Member.TTL/2)
}

// mayRead reports whether a read may be sent. After a lapse of trust, a member sends a read every
// TTL/12 until the store answers one of them, and then every TTL/4. Each read is small and limited.
// A slow read therefore does not delay other reads, unlike a read of the entire namespace. One read
// at a time may take all of CallTimeout, so that it can connect even if connecting takes longer
// than half a TTL.
func (m *Machine) mayRead() bool { return m.lapsed && len(m.reads) < lapsedReads }

func (m *Machine) sendRead(long bool) {
	for _, r := range m.reads {
		long = long && !r.long
	}
	id := m.newCall()
	m.reads = append(m.reads, beat{call: id, sentAt: m.now, long: long})
	m.readAt = m.now.Add(m.cfg.Member.TTL / 12)
	limit := m.cfg.Member.TTL / 2
	if long {
		limit = max(limit, m.cfg.CallTimeout)
	}
	m.emit(Effect{Kind: EffRead, Call: id, Session: m.sess, Timeout: limit})
}

func (m *Machine) read(id CallID, err error) {
	r, ok := take(&m.reads, id)
	if !ok || m.phase != live || m.fatal(err) || err != nil {
		return
	}
	m.heard(r.sentAt)
	m.readAt = m.now.Add(m.cfg.Member.TTL / 4)
	if r.other {
		m.unheard(r.sentAt)
	}
	together(m.beats, r.sentAt)
}

func (m *Machine) heard(sentAt Instant) {
	if sentAt >= m.heardAt {
		m.heardAt, m.answered = sentAt, m.now
	}
}

// take removes the call with the given id from calls, and returns that call.
func take(calls *[]beat, id CallID) (b beat, ok bool) {
	for i, b := range *calls {
		if b.call == id {
			*calls = append((*calls)[:i], (*calls)[i+1:]...)
			return b, true
		}
	}
	return beat{}, false
}

// together finds the call that was sent with another call at sentAt, and records that the other
// call has ended.
func together(calls []beat, sentAt Instant) {
	for i := range calls {
		if calls[i].sentAt == sentAt {
			calls[i].other = true
		}
	}
}

// unheard counts a heartbeat after a lapse if its outcome is unknown although the read sent with it
// was answered. In an outage, neither the heartbeat nor the read is answered. If several heartbeats
// were sent at about the same time, unheard counts only one of them. A refusal counts as an answer.
func (m *Machine) unheard(sentAt Instant) {
	ttl := m.cfg.Member.TTL
	switch since := sentAt.Sub(m.deafAt); {
	case !m.lapsed || m.deaf > 0 && since < ttl/4:
		return
	case since > 2*ttl:
		m.deaf = 0
	}
	m.deafAt = sentAt
	if m.deaf++; m.deaf >= lapsedBeats {
		m.deaf, m.quietTo = 0, m.now.Add(2*ttl)
	}
}

// base returns the TTL that sets the pace of heartbeats. The result is the member's own TTL or, if
// smaller, the smallest watched TTL (C5).
func (m *Machine) base() time.Duration {
	ttl := m.cfg.Member.TTL
	if m.minTTL > 0 {
		ttl = min(ttl, time.Duration(m.minTTL))
	}
	return ttl
}

// interval returns the time from an answered heartbeat to the next heartbeat, which is a third of
// the TTL minus jitter. On a slow store, the interval is shorter, so that the next answer arrives
// early enough to cover the silence of others (C5).
func (m *Machine) interval() time.Duration {
	ttl := m.base()
	d := min(m.cfg.Interval, ttl/3)
	d -= time.Duration(float64(d) * m.cfg.Jitter * m.rng.float())
	return min(d, max(ttl/2-ttl/24-time.Duration(m.slow), ttl/12))
}

// pace returns the time between two heartbeats that are sent without waiting for answers.
func (m *Machine) pace() time.Duration {
	if len(m.beats) >= manyBeats {
		return m.cfg.Member.TTL / 12
	}
	return m.base() / 12
}

// late returns how long a heartbeat may remain unanswered before the member sends the next
// heartbeat (C4). If the store has several servers, the next heartbeat uses a different connection.
// On a slow store, this time is longer, so that the member does not send every heartbeat twice.
// After a lapse, it is also longer, so that an outage does not use up the unanswered heartbeats
// that C6 allows.
func (m *Machine) late() time.Duration {
	ttl := m.base()
	if m.lapsed {
		return ttl / 4
	}
	if m.slow > Instant(ttl/12) && !m.quiet() {
		return max(ttl/6, m.pace())
	}
	return m.pace()
}

// sendBeat sends a heartbeat, and schedules the next heartbeat for the time when this one is late.
// A late reply still extends trust from when the heartbeat was sent (C10).
func (m *Machine) sendBeat() {
	if m.lapsed && len(m.reads) < lapsedReads+lapsedBeats {
		m.sendRead(false) // the outcomes of the heartbeat and the read distinguish an outage from lost answers
	}
	id := m.newCall()
	m.beats = append(m.beats, beat{call: id, sentAt: m.now})
	m.beatSent = m.now
	m.beatAt = m.now.Add(m.late())
	m.emit(Effect{Kind: EffBeat, Call: id, Session: m.sess, Timeout: m.cfg.Member.TTL - m.cfg.Margin})
}

func (m *Machine) beaten(id CallID, err error) {
	b, ok := take(&m.beats, id)
	if !ok || m.phase != live || m.fatal(err) {
		return
	}
	if err != nil {
		ttl := m.cfg.Member.TTL
		m.beatAt = min(m.beatAt, m.now.Add(ttl/24+m.rng.upTo(ttl/24)))
		m.beatErr = err
		m.event(EventBeatFailed, err)
		if driver.Unknown(err) && b.sentAt >= m.lapsedAt {
			if b.other {
				m.unheard(b.sentAt)
			}
			together(m.reads, b.sentAt)
		}
		return
	}
	m.beatErr = nil
	m.slow = max(m.now-b.sentAt, m.slow-m.slow/16)
	m.covered(b.sentAt)
	if m.okSentAt == m.beatSent {
		m.beatAt = m.now.Add(m.untilNext())
	}
	until := b.sentAt.Add(m.cfg.Member.TTL - m.cfg.Margin)
	if until <= m.until || until <= m.now {
		return
	}
	m.until = until
	m.emit(Effect{Kind: EffExtend, Session: m.sess, Until: until})
	if m.lapsed {
		m.lapsed = false
		m.event(EventRegained, nil)
		// Each shard needs a new token first (C7). All shards share one delay, so they share one
		// batch.
		m.dueAll(m.now.Add(m.rng.upTo(m.cfg.Member.TTL / 24)))
	}
}

// untilNext returns the time from now to the next heartbeat, assuming that the newest heartbeat was
// answered.
func (m *Machine) untilNext() time.Duration {
	at := m.beatSent.Add(m.interval())
	if m.quiet() {
		at = m.beatSent.Add(m.pace())
	}
	return max(at.Sub(m.now), 0)
}

// lost ends the session because of err. The session's record no longer exists.
func (m *Machine) lost(err error) {
	m.revokeAll(CauseSessionLost)
	m.event(EventSessionLost, err)
	m.drop(CauseSessionLost)
	if !m.cfg.Member.Supersede || m.now.Sub(m.joinSent) > duel*m.cfg.Member.TTL {
		m.joins = 0
	}
	m.backOff()
}

// If a superseding session lives for duel TTLs, its loss counts as a first loss. If two processes
// under one label keep ending each other's sessions, the waits before their joins double.
const duel = 10

// drop forgets all of the session's outstanding calls. Leases that were being given up are lost,
// for the given cause.
func (m *Machine) drop(cause Cause) {
	m.former = m.sess
	m.beats, m.reads = m.beats[:0], m.reads[:0]
	for k := range m.calls {
		m.calls[k] = call{}
		m.batch[k], m.kept[k] = m.batch[k][:0], m.kept[k][:0]
	}
	for i := range m.shards {
		s := &m.shards[i]
		s.flight = noCall
		if s.lease() == returned {
			m.settled(s.own, Effect{Outcome: OutcomeLost, Cause: cause})
		}
	}
	for _, p := range m.peers {
		p.evicting = false
	}
}

func (m *Machine) halt(err error) {
	m.revokeAll(CauseStoreChanged)
	m.event(EventHalted, err)
	m.drop(CauseStoreChanged)
	m.phase, m.sess = halted, ""
}

func (m *Machine) leave() {
	switch m.phase {
	case live:
		m.revokeAll(CauseLeft)
		if !m.running() {
			m.close()
		}
		m.drop(CauseLeft)
		m.sess = ""
	case left, halted:
		return
	case idle, waiting:
		m.sess = ""
	default: // joining: see below
	}
	m.phase = left // an outstanding join keeps its id, so that its session can be closed
}

func (m *Machine) running() bool {
	for i := range m.shards {
		if m.shards[i].lease().running() {
			return true
		}
	}
	return false
}

func (m *Machine) close() {
	m.closing = m.newCall()
	m.emit(Effect{Kind: EffClose, Call: m.closing, Session: m.sess, Timeout: m.cfg.CallTimeout})
}

func (m *Machine) closed(id CallID, err error) {
	if id != m.closing || id == 0 {
		return
	}
	m.closing = 0
	if err != nil && !errors.Is(err, driver.ErrSessionLost) {
		m.emit(Effect{Kind: EffEvent, Event: EventCloseFailed, Session: m.former, Err: err})
	}
}
