package fsm

import (
	"slices"
	"strings"
	"time"

	"github.com/tenure-go/tenure/core/driver"
)

// A peer is another member with a session record.
type peer struct {
	member   driver.Member
	hash     uint64
	version  driver.Version // the version last seen, or 0 if none was seen
	changed  Instant        // when the last change arrived
	seenAt   Instant        // like changed, or when the silence clock was last restarted
	watched  bool
	silent   bool    // silent for its TTL
	evictAt  Instant // when it is this process's turn to evict the peer, once the peer is silent
	evicting bool
	beat     bool   // it has sent a heartbeat since it was first seen; C14
	lock     string // the lock that its record names; C14
	listed   bool   // listed in the page of the view that is being read

	barred bool    // it is not eligible: C15
	since  Instant // since when, as seen here, it has lived and been eligible: C16
	first  Instant // when it was first seen eligible, or Never
}

func (p *peer) silentAt() Instant { return p.seenAt.Add(p.member.TTL) }

// quietAt returns when this member should begin to prove p's silence (C5).
func (p *peer) quietAt() Instant { return p.changed.Add(p.member.TTL / 2) }

func (m *Machine) restart(p *peer) {
	if p.silent {
		m.yieldAt = m.now // the peer counts again: C15, C16
	}
	p.seenAt, p.silent = m.now, false
}

func (m *Machine) heardOf(p *peer) {
	p.changed = m.now
	m.restart(p)
}

func (m *Machine) observed(v *driver.View, sentAt Instant) {
	if v == nil {
		return
	}
	m.heard(sentAt)
	changed, gone := false, false
	for i := range v.Members {
		changed = m.addPeer(&v.Members[i]) || changed
	}
	for _, id := range v.Gone {
		if id == m.sess && m.phase == live {
			m.lost(nil)
		}
		gone = m.removePeer(id) || gone
	}
	if v.Reset {
		for i := 0; i < len(m.peers); {
			if p := m.peers[i]; !p.listed {
				gone = m.removePeer(p.member.Session) || gone
				continue
			}
			i++
		}
	}
	for i := range v.Members {
		if p := m.alive[v.Members[i].Session]; p != nil {
			p.listed = false
		}
	}
	if v.Reset {
		m.expect(len(v.Shards) - len(m.shards))
	}
	for i := range v.Shards {
		m.learnState(&v.Shards[i])
	}
	if v.Reset {
		m.unlisted(v)
	}
	for _, b := range v.Beats {
		if p := m.alive[b.Session]; p != nil && b.Version > p.version { // M1
			m.beatOf(p, b.Version)
		}
	}
	if changed || gone {
		m.watch()
	}
	if gone || !m.viewed {
		m.viewed = true
		m.dueFree()
	}
}

func (m *Machine) beatOf(p *peer, v driver.Version) {
	p.beat = p.beat || p.version != 0
	if p.version != 0 && m.now >= p.changed.Add(p.member.TTL) {
		p.since, m.yieldAt = m.now, m.now // C16: it may have been away
	}
	p.version = v
	m.heardOf(p)
}

// addPeer adds or updates a member, and reports whether the member is new.
func (m *Machine) addPeer(member *driver.Member) bool {
	id := member.Session
	if id == m.sess || id == m.former && m.phase != live || id == "" {
		return false
	}
	if p := m.alive[id]; p != nil {
		p.listed = true
		if member.Update > p.member.Update {
			p.member.MemberState, p.lock = cutLock(member.MemberState)
			m.bar(p)
			m.emit(Effect{Kind: EffEvent, Event: EventPeerUpdated, Peer: p.member})
		}
		return false
	}
	p := &peer{member: *member, hash: hash(member.Node), changed: m.now, seenAt: m.now, listed: true, barred: true, first: Never}
	p.member.MemberState, p.lock = cutLock(member.MemberState)
	m.bar(p)
	i, _ := m.findPeer(id)
	m.peers = slices.Insert(m.peers, i, p)
	m.alive[id] = p
	m.emit(Effect{Kind: EffEvent, Event: EventPeerJoined, Peer: p.member})
	return true
}

// removePeer removes a member, and reports whether the member was known. The member's shards may
// now be claimed, so the caller must then call watch and dueFree.
func (m *Machine) removePeer(id driver.SessionID) bool {
	p := m.alive[id]
	if p == nil {
		return false
	}
	delete(m.alive, id)
	i, _ := m.findPeer(id)
	m.peers = slices.Delete(m.peers, i, i+1)
	m.emit(Effect{Kind: EffEvent, Event: EventPeerGone, Peer: p.member})
	return true
}

func (m *Machine) findPeer(id driver.SessionID) (int, bool) {
	return slices.BinarySearchFunc(m.peers, id, func(p *peer, id driver.SessionID) int {
		return strings.Compare(string(p.member.Session), string(id))
	})
}

// watch chooses the members whose heartbeats this member watches. In a small cluster, it watches
// all members. In a large cluster, it watches a few predecessors on the ring of sessions (O3).
func (m *Machine) watch() {
	m.watched, m.minTTL = m.watched[:0], 0
	if m.phase != live {
		return
	}
	n := len(m.peers)
	few := n
	if n > m.cfg.WatchAll && m.wideTo == 0 {
		few = min(n, m.cfg.WatchFew)
	}
	at, _ := m.findPeer(m.sess)
	for _, p := range m.peers {
		p.listed = false
	}
	for k := 1; k <= few; k++ {
		p := m.peers[((at-k)%n+n)%n]
		p.listed = true
		m.watched = append(m.watched, p)
		if ttl := Instant(p.member.TTL); m.minTTL == 0 || ttl < m.minTTL {
			m.minTTL = ttl
		}
	}
	for _, p := range m.peers {
		if !p.listed && m.dead(p) {
			p.listed = true
			m.watched = append(m.watched, p)
		}
	}
	for _, p := range m.peers {
		if p.listed && !p.watched {
			p.version = 0
			m.heardOf(p)
		}
		p.watched, p.listed = p.listed, false
	}
	// The smallest watched TTL also sets the interval of heartbeats (C5).
	m.beatAt = min(m.beatAt, m.now.Add(m.interval()))
}

// AppendWatch appends the sessions whose heartbeats the machine needs, with their known versions,
// for the Beats of the next driver.ObserveQuery.
func (m *Machine) AppendWatch(b []driver.Beat) []driver.Beat {
	if m.phase != live {
		return b
	}
	for _, p := range m.watched {
		b = append(b, driver.Beat{Session: p.member.Session, Version: p.version})
	}
	return b
}

// covered implements one half of C5. An answered heartbeat proves that the store was reached
// between the request and the reply. If a reply arrives long after the previous answered heartbeat
// was sent, every silence clock restarts. Between these two times, this process or the store may
// have been unreachable, so the silence of other members means nothing. If the replies were late,
// the time from reply to reply would not show the outage.
func (m *Machine) covered(sentAt Instant) {
	if m.minTTL > 0 && m.now-m.okSentAt > m.minTTL/2 {
		for _, p := range m.watched {
			m.restart(p)
		}
	}
	m.okSentAt = max(m.okSentAt, sentAt)
}

// proven implements the other half of C5: it reports whether the newest answered heartbeat was sent
// recently enough to cover silence up to now. While a member is quiet (see quiet), this member
// sends a heartbeat every TTL/12, and the answers follow at the same rate. If the newest answered
// heartbeat is too old, an outage may have begun since then.
func (m *Machine) proven() bool {
	ttl := Instant(m.base())
	return m.now-m.okSentAt <= min(ttl/2, ttl/6+m.slow)
}

// watchSilence finds members that were silent for their TTL. If the silence of these members is
// proven (C5), watchSilence evicts each of them when it is this process's turn (C9).
func (m *Machine) watchSilence() {
	var suspects []driver.Suspect
	var members []driver.Member
	if m.quiet() {
		m.beatAt = min(m.beatAt, m.beatSent.Add(m.pace()))
	}
	m.widen()
	for _, p := range m.watched {
		dead := p.version != 0 && m.dead(p)
		switch {
		case m.now < p.silentAt() && !dead:
			continue
		case p.silent:
		case dead:
			p.silent, p.evictAt = true, m.now
			m.emit(Effect{Kind: EffEvent, Event: EventPeerDead, Peer: p.member})
		default:
			p.silent = true
			p.evictAt = m.now.Add(m.turn(hash(string(p.member.Session)), Heirs{}, ""))
			m.emit(Effect{Kind: EffEvent, Event: EventPeerSilent, Peer: p.member})
		}
		switch {
		case m.now < p.evictAt || p.evicting || m.lapsed || p.version == 0 || !dead && !m.proven():
		case m.calls[evict].id == 0:
			p.evicting = true
			suspects = append(suspects, driver.Suspect{Session: p.member.Session, Version: p.version})
			members = append(members, p.member)
		}
	}
	if len(suspects) == 0 {
		return
	}
	c := &m.calls[evict]
	c.id = m.newCall()
	c.suspects = append(c.suspects[:0], suspects...)
	m.buried[c.id] = members
	m.emit(Effect{Kind: EffEvict, Call: c.id, Session: m.sess, Suspects: suspects,
		Timeout: m.callTimeout(evict, len(suspects))})
}

// dead implements C14: it reports whether this process holds the lock of the peer's process.
func (m *Machine) dead(p *peer) bool {
	return m.cfg.HostLock != "" && !p.beat &&
		p.member.Node == m.cfg.Member.Node && p.lock == m.cfg.HostLock
}

// quiet reports whether a watched member has been quiet for half its TTL. While a member is quiet,
// this member sends a heartbeat every TTL/12. A slow or missing answer therefore does not interrupt
// the proof that the store answers requests (C5).
func (m *Machine) quiet() bool {
	for _, p := range m.watched {
		if m.now >= p.quietAt() {
			return true
		}
	}
	return false
}

// If most of the few watched members are silent, widen makes this member watch all members for a
// while. If many members that watched each other died together, this member would otherwise find
// only a few of the dead members per TTL.
func (m *Machine) widen() {
	if m.wideTo != 0 {
		if m.now >= m.wideTo {
			m.wideTo = 0
			m.watch()
		}
		return
	}
	silent, longest := 0, time.Duration(0)
	for _, p := range m.watched {
		longest = max(longest, p.member.TTL)
		if m.now >= p.silentAt() {
			silent++
		}
	}
	if 2*silent <= len(m.watched) || len(m.watched) == len(m.peers) {
		return
	}
	m.wideTo = m.now.Add(2 * longest)
	m.watch()
	m.resync()
}

// AppendSilent appends the sessions of watched members whose heartbeats have not been seen for
// their TTL, if this session is trusted at the given instant. Unlike an eviction (C5), the list of
// silent members needs no proof, because only operators use it.
func (m *Machine) AppendSilent(b []driver.SessionID, now Instant) []driver.SessionID {
	if !m.Trusted(now) {
		return b
	}
	for _, p := range m.watched {
		if now >= p.changed.Add(p.member.TTL) {
			b = append(b, p.member.Session)
		}
	}
	return b
}

// AppendHeard appends, for operators, when each watched member's last heartbeat was seen.
func (m *Machine) AppendHeard(b []Heard) []Heard {
	for _, p := range m.watched {
		b = append(b, Heard{Session: p.member.Session, At: p.changed})
	}
	return b
}

// Heard records when a member's last heartbeat was seen.
type Heard struct {
	Session driver.SessionID
	At      Instant
}

func (m *Machine) nextSilence() Instant {
	at := Never
	for _, p := range m.watched {
		switch {
		case !p.silent:
			at = min(at, p.silentAt())
			if q := p.quietAt(); q > m.now {
				at = min(at, q)
			}
		case p.evictAt > m.now:
			at = min(at, p.evictAt)
		}
	}
	return at
}

// bury reports the members that a call has evicted, even if a view already showed that these
// members, or this session, are gone.
func (m *Machine) bury(in *Input) {
	members := m.buried[in.Call]
	delete(m.buried, in.Call)
	for k := range in.Evictions[:min(len(in.Evictions), len(members))] {
		if in.Err == nil && in.Evictions[k].Evicted {
			m.emit(Effect{Kind: EffEvent, Event: EventPeerEvicted, Peer: members[k]})
		}
	}
}

func (m *Machine) evicted(in *Input) {
	m.bury(in)
	c := &m.calls[evict]
	if in.Call != c.id || c.id == 0 {
		return
	}
	suspects := c.suspects
	*c = call{failed: c.failed, until: c.until}
	c.ended(in.Err, m.now)
	if m.fatal(in.Err) {
		return
	}
	gone := false
	err := in.Err
	for k, suspect := range suspects {
		p := m.alive[suspect.Session]
		if p == nil {
			continue
		}
		p.evicting = false
		switch {
		case in.Err != nil || k >= len(in.Evictions) || in.Evictions[k].Err != nil:
			if k < len(in.Evictions) && in.Err == nil {
				err = in.Evictions[k].Err
				if m.fatal(err) {
					return
				}
			}
			p.evictAt = m.now.Add(m.cfg.RankDelay + m.rng.upTo(m.cfg.RankDelay))
		case in.Evictions[k].Evicted || in.Evictions[k].Current == 0:
			gone = m.removePeer(suspect.Session) || gone
		case p.version == suspect.Version:
			// The member did send a heartbeat, but no view has shown it yet.
			p.version, p.beat = in.Evictions[k].Current, true
			m.heardOf(p)
			m.resync()
		}
	}
	if err != nil {
		m.event(EventCallFailed, err)
	}
	if gone {
		m.watch()
		m.dueFree()
	}
}
