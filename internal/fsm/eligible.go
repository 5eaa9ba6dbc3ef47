package fsm

import (
	"errors"
	"time"

	"github.com/tenure-go/tenure/core/driver"
)

// A gift is a shard that this process gave to a member that should have the shard instead (C15,
// C16).
type gift struct {
	at Instant // when the shard was given
	n  uint8   // how many times in a row no member took the shard, up to maxGifts
}

// maxGifts limits gift.n. The wait before an untaken shard is given away again is BackoffMax times
// two to the power of n.
const maxGifts = 10

// A shard that returns within giftTTLs TTLs after a gift counts as untaken. This period allows for
// the TTL of a new owner that may have died, and for the wait before the next claim of the shard.
const giftTTLs = 3

// setEligible makes this process ineligible for a reason, or eligible if why is empty.
func (m *Machine) setEligible(why string) {
	if why == m.cfg.Ineligible {
		return
	}
	m.cfg.Ineligible = why
	m.cfg.Member.Update++
	m.yieldAt = m.now
	for i := range m.shards {
		if s := &m.shards[i]; s.waiting { // it waits for a turn that no longer applies
			s.waiting, s.notBefore = false, m.now
		}
	}
	if why != "" {
		m.event(EventIneligible, errors.New(why))
		return
	}
	m.event(EventEligible, nil)
	m.dueFree()
}

// bar records whether a peer is eligible, according to the peer's state.
func (m *Machine) bar(p *peer) {
	was := p.barred
	p.barred = p.member.Ineligible() != ""
	if was && !p.barred {
		p.since, p.first = m.now, min(p.first, m.now)
	}
	m.yieldAt = m.now
}

// precedes reports whether a peer should get the shards that this process holds, either now or
// after the peer has lived for Failback.
func (m *Machine) precedes(p *peer) bool {
	switch {
	case p.silent || p.barred || p.member.Draining:
		return false
	case m.cfg.Ineligible != "":
		return true
	}
	return m.cfg.Failback > 0 && p.member.Priority > m.cfg.Member.Priority
}

// patience returns how long a preceding member must live before it gets the shards that this member
// holds, and the reason for giving them up.
func (m *Machine) patience() (time.Duration, Cause) {
	if m.cfg.Ineligible != "" {
		return 0, CauseIneligible
	}
	return m.cfg.Failback, CauseFailback
}

// successor returns the first member, in the order of C9, that should have a shard instead of this
// member, or nil. The second result is the latest time at which such a member first qualified.
func (m *Machine) successor(thing uint64) (first *peer, newest Instant) {
	wait, _ := m.patience()
	for _, p := range m.peers {
		if !m.precedes(p) || m.now < p.since.Add(wait) {
			continue
		}
		newest = max(newest, p.first.Add(wait))
		if first == nil || before(thing, p, first) {
			first = p
		}
	}
	return first, newest
}

// lookForSuccessors schedules each held shard that another member should have. It also computes
// when the passing of time may change the result.
func (m *Machine) lookForSuccessors() {
	m.yieldAt = Never
	wait, _ := m.patience()
	now := false
	for _, p := range m.peers {
		switch at := p.since.Add(wait); {
		case !m.precedes(p):
		case at > m.now:
			m.yieldAt = min(m.yieldAt, at)
		default:
			now = true
		}
	}
	if !now {
		return
	}
	for i := range m.shards {
		if m.shards[i].lease() == held {
			m.schedule(int32(i), m.now)
		}
	}
}

// yieldsTo returns the member that should get a shard that this process wants and has, or nil. The
// second result is the earliest time at which that member should get the shard. If an assigner
// chose members for the shard, only the assigner moves it.
func (m *Machine) yieldsTo(i int32) (p *peer, from Instant) {
	s := &m.shards[i]
	if wait, _ := m.patience(); wait == 0 && m.cfg.Ineligible == "" || m.lapsed || s.heirs != (Heirs{}) || driver.IsLock(s.name) {
		return nil, 0
	}
	p, newest := m.successor(hash(string(s.name)))
	if g := m.gifts[i]; p != nil && g != nil {
		wait := m.cfg.BackoffMax
		if newest <= g.at { // no further member has qualified since the shard was given
			wait <<= g.n
		}
		from = g.at.Add(wait)
	}
	return p, from
}

// settleHeld asks the handler of a held lease to stop if another member should have the shard.
func (m *Machine) settleHeld(i int32) {
	p, from := m.yieldsTo(i)
	switch {
	case p == nil:
	case m.now < from:
		m.schedule(i, from)
	default:
		o := m.shards[i].own
		_, o.why = m.patience()
		o.lease, o.yield, o.drainBy = draining, true, m.now.Add(m.cfg.DrainBudget)
		m.emit(Effect{Kind: EffYield, Fence: o.fence, Cause: o.why})
		m.schedule(i, o.drainBy)
	}
}

// reconsider decides which member gets a wanted shard whose record contains this session while no
// lease is held. The chosen member may be this process or another member. This process keeps the
// shard if, for example, the other member left while the handler returned.
func (m *Machine) reconsider(i int32) {
	o := m.shards[i].own
	p, from := m.yieldsTo(i)
	if p == nil || o.why == 0 && m.now < from {
		o.yield, o.why, o.to = false, 0, ""
		return
	}
	_, o.why = m.patience()
	o.yield, o.to, o.chosen = true, p.member.Session, true
}

func (m *Machine) given(i int32) {
	if m.gifts[i] == nil {
		m.gifts[i] = &gift{}
	}
	m.gifts[i].at = m.now
}

// cameBack counts how many times in a row a given shard came back because no member took it.
func (m *Machine) cameBack(i int32) {
	switch g := m.gifts[i]; {
	case g == nil:
	case m.now > g.at.Add(giftTTLs*m.cfg.Member.TTL): // another member has had the shard since then
		g.n = 0
	default:
		g.n = min(g.n+1, maxGifts)
	}
}

// takeBack handles a wanted, free shard while this process is not eligible. The shard is claimed
// only if this process gave it away recently and no member took it within half a TTL.
func (m *Machine) takeBack(i int32) {
	s, g := &m.shards[i], m.gifts[i]
	ttl := m.cfg.Member.TTL
	if g == nil || m.now > g.at.Add(giftTTLs*ttl) || !m.viewed || m.lapsed {
		s.waiting = false
		return
	}
	if !s.waiting {
		s.waiting, s.notBefore = true, max(s.notBefore, m.now.Add(ttl/2))
	}
	if m.now < s.notBefore {
		m.schedule(i, s.notBefore)
		return
	}
	s.waiting = false
	m.decide(acquire, i)
}
