package fsm

import (
	"errors"
	"time"

	"github.com/tenure-go/tenure/core/driver"
)

// A gift is a shard that this process gave to a member that was to have it rather than
// this one (C15, C16).
type gift struct {
	at Instant // when the shard was given
	n  uint8   // how often in a row nobody took it, up to maxGifts
}

// maxGifts bounds the wait before a shard that nobody took is given again: BackoffMax times
// two to the power of n.
const maxGifts = 10

// giftTTLs is for how many TTLs after it was given a shard may come back as one that nobody
// took: of its new owner, which may have died, and of the wait until it is claimed again.
const giftTTLs = 3

// setEligible takes in that this process is not eligible, and why, or that it is.
func (m *Machine) setEligible(why string) {
	if why == m.cfg.Ineligible {
		return
	}
	m.cfg.Ineligible = why
	m.cfg.Member.Update++
	m.yieldAt = m.now
	for i := range m.shards {
		if s := &m.shards[i]; s.waiting { // for a turn that is over
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

// bar takes in whether a peer says that it is eligible.
func (m *Machine) bar(p *peer) {
	was := p.barred
	p.barred = p.member.Ineligible() != ""
	if was && !p.barred {
		p.since, p.first = m.now, min(p.first, m.now)
	}
	m.yieldAt = m.now
}

// precedes reports whether a peer is to have what this process holds, at the latest when
// it has lived for Failback.
func (m *Machine) precedes(p *peer) bool {
	switch {
	case p.silent || p.barred || p.member.Draining:
		return false
	case m.cfg.Ineligible != "":
		return true
	}
	return m.cfg.Failback > 0 && p.member.Priority > m.cfg.Member.Priority
}

// patience is how long a member has to live before it precedes this one, and why it does.
func (m *Machine) patience() (time.Duration, Cause) {
	if m.cfg.Ineligible != "" {
		return 0, CauseIneligible
	}
	return m.cfg.Failback, CauseFailback
}

// successor returns the first in the order of C9 of the members that are to have a thing
// rather than this one, nil if there is none; and when the newest of them came to be one.
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

// lookForSuccessors has each held shard settled if some other member is to have it, and
// finds out when that may change by time alone.
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

// yieldsTo returns who is to have a shard that this process wants and has, nil for nobody,
// and from when on. A shard of which somebody said who claims it first is an assigner's
// to move.
func (m *Machine) yieldsTo(i int32) (p *peer, from Instant) {
	s := &m.shards[i]
	if wait, _ := m.patience(); wait == 0 && m.cfg.Ineligible == "" || m.lapsed || s.heirs != (Heirs{}) || driver.IsLock(s.name) {
		return nil, 0
	}
	p, newest := m.successor(hash(string(s.name)))
	if g := m.gifts[i]; p != nil && g != nil {
		wait := m.cfg.BackoffMax
		if newest <= g.at { // nobody whom it was not given to
			wait <<= g.n
		}
		from = g.at.Add(wait)
	}
	return p, from
}

// settleHeld asks the handler of a lease that is held to stop, if another member is to have
// the shard.
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

// reconsider decides who gets a shard that this process wants, whose record names it, and
// of which no lease is held: another member, or itself, as where the one that was to have
// it has gone while the handler returned.
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

// given notes that a shard is sent to the member that is to have it.
func (m *Machine) given(i int32) {
	if m.gifts[i] == nil {
		m.gifts[i] = &gift{}
	}
	m.gifts[i].at = m.now
}

// cameBack counts how often a shard that was given came back, as nobody took it.
func (m *Machine) cameBack(i int32) {
	switch g := m.gifts[i]; {
	case g == nil:
	case m.now > g.at.Add(giftTTLs*m.cfg.Member.TTL): // somebody else had it meanwhile
		g.n = 0
	default:
		g.n = min(g.n+1, maxGifts)
	}
}

// takeBack: the shard is wanted and free, and this process is not eligible. It claims what
// it gave away not long ago and nobody took within half a TTL, and nothing else.
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
