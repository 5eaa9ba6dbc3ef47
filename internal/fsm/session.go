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

// lapse revokes everything when trust has ended. This step is late by so much: a process
// that did not run sent no heartbeat, whatever the store would have answered.
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

// resync asks for a full read, and for the next one in time.
func (m *Machine) resync() {
	m.emit(Effect{Kind: EffResync})
	m.resyncAt = m.now.Add(m.cfg.Resync)
}

// mayBeat is C10 and C6: after a lapse a member may keep its record alive only if
// it asked for a read since then and was answered not long ago, and only until a
// few heartbeats went without an answer; then it stays silent long enough to be
// evicted, before it tries again. Otherwise a member whose requests arrive but
// whose replies do not would hold its shards for ever.
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

// mayRead reports whether reads are asked for: while trust has lapsed, one every
// TTL/12 until one is answered, then one every TTL/4. Each is small and bounded, so
// that one which hangs delays no other, unlike a read of the whole namespace. One of
// those under way has all of CallTimeout: where connecting takes longer than half a TTL,
// that one connects.
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

// heard notes that a read asked for at sentAt was answered.
func (m *Machine) heard(sentAt Instant) {
	if sentAt >= m.heardAt {
		m.heardAt, m.answered = sentAt, m.now
	}
}

// take removes a call from those outstanding.
func take(calls *[]beat, id CallID) (b beat, ok bool) {
	for i, b := range *calls {
		if b.call == id {
			*calls = append((*calls)[:i], (*calls)[i+1:]...)
			return b, true
		}
	}
	return beat{}, false
}

// together notes in the call that was sent with another at sentAt what became of that.
func together(calls []beat, sentAt Instant) {
	for i := range calls {
		if calls[i].sentAt == sentAt {
			calls[i].other = true
		}
	}
}

// unheard counts a heartbeat after a lapse whose outcome is unknown although the read
// that was sent with it was answered: neither was, in an outage. Of several that were
// sent at about the same time one counts. A refusal is an answer.
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

// base is the time by which heartbeats are paced: the own TTL, or the smallest one
// watched if that is less (C5).
func (m *Machine) base() time.Duration {
	ttl := m.cfg.Member.TTL
	if m.minTTL > 0 {
		ttl = min(ttl, time.Duration(m.minTTL))
	}
	return ttl
}

// interval is the time from a heartbeat that was answered to the next: a third of
// the TTL, less jitter, and less again where the store is so slow that the answer
// to the next would come too late to cover the silence of others (C5).
func (m *Machine) interval() time.Duration {
	ttl := m.base()
	d := min(m.cfg.Interval, ttl/3)
	d -= time.Duration(float64(d) * m.cfg.Jitter * m.rng.float())
	return min(d, max(ttl/2-ttl/24-time.Duration(m.slow), ttl/12))
}

// pace is the time between two heartbeats that are sent without waiting for answers.
func (m *Machine) pace() time.Duration {
	if len(m.beats) >= manyBeats {
		return m.cfg.Member.TTL / 12
	}
	return m.base() / 12
}

// late is how long a heartbeat may go unanswered before the next is sent, on
// another connection where the store has several servers: C4. On a store that is
// known to be slow it is longer, so that not every heartbeat is sent twice; after a
// lapse, so that an outage does not use up those that may go unanswered (C6).
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

// sendBeat sends one, and plans the next for the moment at which this one is
// late. A late reply still counts for what it is worth, up to the trust that it
// could give: C10.
func (m *Machine) sendBeat() {
	if m.lapsed && len(m.reads) < lapsedReads+lapsedBeats {
		m.sendRead(false) // what becomes of the two tells deafness from an outage
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
		// Each shard needs a new token first: C7. One delay for all: one batch.
		m.dueAll(m.now.Add(m.rng.upTo(m.cfg.Member.TTL / 24)))
	}
}

// untilNext is the time from now to the next heartbeat when the newest was
// answered.
func (m *Machine) untilNext() time.Duration {
	at := m.beatSent.Add(m.interval())
	if m.quiet() {
		at = m.beatSent.Add(m.pace())
	}
	return max(at.Sub(m.now), 0)
}

// lost ends the session, which has no record any more, as err says.
func (m *Machine) lost(err error) {
	m.revokeAll(CauseSessionLost)
	m.event(EventSessionLost, err)
	m.drop(CauseSessionLost)
	if !m.cfg.Member.Supersede || m.now.Sub(m.joinSent) > duel*m.cfg.Member.TTL {
		m.joins = 0
	}
	m.backOff()
}

// duel is for how many TTLs a superseding session has to live before its loss counts
// as the first: two processes under one label end each other in turn, and the waits
// before their joins double.
const duel = 10

// drop forgets what was outstanding in the session's name. Leases that were being
// given back are lost, because of cause.
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
