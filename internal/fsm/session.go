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
	m.beatSent, m.okSentAt = m.joinSent, m.joinSent // it proves as much as a heartbeat: C5
	m.slow, m.beatErr = 0, nil
	m.beatAt = m.joinSent.Add(m.interval())
	m.resyncAt = m.now.Add(m.cfg.Resync)
	m.yieldAt = m.now
	m.event(EventJoined, nil)
	for _, p := range m.peers {
		p.watched = false // their silence counts from now on
	}
	m.watch()
	m.dueAll(m.now)
	m.lapse(0) // a reply that came too late starts no trust: S8
	if !m.lapsed {
		m.emit(Effect{Kind: EffExtend, Session: m.sess, Until: m.until})
	}
}

func (m *Machine) backOff() {
	m.phase, m.sess = waiting, ""
	m.joinAt = m.now.Add(m.rng.backoff(m.cfg.BackoffMin, m.cfg.BackoffMax, m.joins))
	m.joins++
}

// lapse revokes all leases when trust has ended. late is how late this step is. If the process
// did not run, it sent no heartbeat, so the store is not the reason.
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

// resync requests a full read and schedules the next.
func (m *Machine) resync() {
	m.emit(Effect{Kind: EffResync})
	m.resyncAt = m.now.Add(m.cfg.Resync)
}

// mayBeat is C10 and C6. After a lapse, a member sends heartbeats only if a read since the
// lapse was answered recently. If a few heartbeats get no answer, it stays silent long enough
// to be evicted, and then tries again. Otherwise, a member whose requests arrive but whose
// replies are lost would hold its shards forever.
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

// mayRead reports whether reads are sent. While trust has lapsed, one is sent every TTL/12
// until one is answered, then every TTL/4. Each is small and limited, so, unlike a read of the
// whole namespace, a slow one delays no other. One read at a time may take all of CallTimeout,
// so that it can connect even if connecting takes longer than half a TTL.
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

// heard notes that a read requested at sentAt was answered.
func (m *Machine) heard(sentAt Instant) {
	if sentAt >= m.heardAt {
		m.heardAt, m.answered = sentAt, m.now
	}
}

// take removes a call from calls.
func take(calls *[]beat, id CallID) (b beat, ok bool) {
	for i, b := range *calls {
		if b.call == id {
			*calls = append((*calls)[:i], (*calls)[i+1:]...)
			return b, true
		}
	}
	return beat{}, false
}

// together finds the call that was sent with another at sentAt, and notes in it that the other
// has ended.
func together(calls []beat, sentAt Instant) {
	for i := range calls {
		if calls[i].sentAt == sentAt {
			calls[i].other = true
		}
	}
}

// unheard counts a heartbeat after a lapse whose outcome is unknown although the read sent with
// it was answered. In an outage, neither gets an answer. Of several heartbeats sent at about
// the same time, unheard counts one. A refusal is an answer.
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

// base returns the TTL that sets the pace of heartbeats. This is the member's own or, if that
// is less, the smallest one watched (C5).
func (m *Machine) base() time.Duration {
	ttl := m.cfg.Member.TTL
	if m.minTTL > 0 {
		ttl = min(ttl, time.Duration(m.minTTL))
	}
	return ttl
}

// interval returns the time from an answered heartbeat to the next: a third of the TTL, less
// jitter. On a slow store, it is less, so that the next answer still comes in time to cover the
// silence of others (C5).
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

// late returns how long a heartbeat may go unanswered before the next is sent (C4), over another
// connection if the store has several servers. It is longer on a slow store, so that not every
// heartbeat is sent twice. It is longer after a lapse, so that an outage does not use up the
// unanswered heartbeats that C6 allows.
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

// sendBeat sends a heartbeat, and schedules the next one for when this one is late. A late
// reply still counts from its sending (C10).
func (m *Machine) sendBeat() {
	if m.lapsed && len(m.reads) < lapsedReads+lapsedBeats {
		m.sendRead(false) // the outcomes of the two distinguish an outage from lost answers
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
		// Each shard needs a new token first (C7). All share one delay, so they share one
		// batch.
		m.dueAll(m.now.Add(m.rng.upTo(m.cfg.Member.TTL / 24)))
	}
}

// untilNext returns the time from now to the next heartbeat if the newest was answered.
func (m *Machine) untilNext() time.Duration {
	at := m.beatSent.Add(m.interval())
	if m.quiet() {
		at = m.beatSent.Add(m.pace())
	}
	return max(at.Sub(m.now), 0)
}

// lost ends the session, whose record no longer exists, because of err.
func (m *Machine) lost(err error) {
	m.revokeAll(CauseSessionLost)
	m.event(EventSessionLost, err)
	m.drop(CauseSessionLost)
	if !m.cfg.Member.Supersede || m.now.Sub(m.joinSent) > duel*m.cfg.Member.TTL {
		m.joins = 0
	}
	m.backOff()
}

// duel is the number of TTLs that a superseding session must live before its loss counts as the
// first. If two processes under one label keep ending each other's sessions, the waits before
// their joins double.
const duel = 10

// drop forgets the outstanding calls of the session. Leases that were being given back are lost,
// because of cause.
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
	m.phase = left // a join still outstanding keeps its id, to be closed
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
