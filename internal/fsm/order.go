package fsm

import (
	"time"

	"github.com/tenure-go/tenure/core/driver"
)

// turn returns how long this member waits before it claims a shard or evicts a member. The first
// member in the order does not wait. A member with k predecessors waits k delays (at most three)
// plus some jitter (C9). Heirs come first in the order. The other members follow by priority, then
// by the rendezvous hash (Thaler and Ravishankar) of the thing and the node, and then by session. A
// session passed as last comes after all other live sessions (C13). The order leaves out members
// that are not eligible (C15).
func (m *Machine) turn(thing uint64, heirs Heirs, last driver.SessionID) time.Duration {
	const most = 3
	if last != "" && last == m.sess {
		rank := 0
		for _, p := range m.peers {
			if !p.silent && !p.barred {
				rank++
			}
		}
		return m.delay(min(rank, most))
	}
	self := peer{member: m.cfg.Member, hash: hash(m.cfg.Member.Node)}
	self.member.Session = m.sess
	rank := 0
	for k, h := range heirs {
		if h == m.sess && h != "" {
			return m.delay(rank)
		}
		if h == last {
			continue
		}
		if p := m.alive[h]; p != nil && !p.silent && !p.barred && (k == 0 || h != heirs[0]) {
			rank++
		}
	}
	for _, p := range m.peers {
		if p.silent || p.barred || p.member.Session == last || p.member.Session == heirs[0] || p.member.Session == heirs[1] {
			continue
		}
		if before(thing, p, &self) {
			if rank++; rank >= most {
				rank = most
				break
			}
		}
	}
	return m.delay(rank)
}

// turnOf returns this member's turn for a shard. If the shard is a released lock, only the lock's
// rivals have a turn. A rival is a member that is known to want the lock (C17).
func (m *Machine) turnOf(s *shard, thing uint64) time.Duration {
	switch {
	case !driver.IsLock(s.name):
		return m.turn(thing, s.heirs, s.releaser)
	case s.owner.Session != "" || s.releaser == m.sess:
		return m.turn(thing, Heirs{}, s.releaser)
	}
	self := peer{member: m.cfg.Member, hash: hash(m.cfg.Member.Node)}
	self.member.Session = m.sess
	rank := 0
	for _, id := range s.heirs {
		if p := m.alive[id]; p != nil && id != s.releaser && !p.silent && before(thing, p, &self) {
			rank++
		}
	}
	return m.delay(rank)
}

// rival records that a session took a lock after another holder. The last two sessions that took
// the lock while this member waits may want the lock again.
func (m *Machine) rival(s *shard, id driver.SessionID) {
	switch {
	case !s.want || id == m.sess:
		s.heirs = Heirs{}
	case id != "" && s.owner.Token != 0 && id != s.heirs[0]:
		s.heirs = Heirs{id, s.heirs[0]}
	}
}

// standby returns the session that immediately gets a shard that this member gives up, or "" if no
// known session is likely to act (C13). The standby is the first heir that is likely to act or, if
// no heir is, the only other member. A member is likely to act if it sent a heartbeat within
// half its TTL, is eligible and is not draining.
func (m *Machine) standby(s *shard) driver.SessionID {
	for _, h := range s.heirs {
		if m.acts(m.alive[h]) {
			return h
		}
	}
	if len(m.peers) == 1 && m.acts(m.peers[0]) {
		return m.peers[0].member.Session
	}
	return ""
}

func (m *Machine) acts(p *peer) bool {
	return p != nil && p.watched && m.now < p.quietAt() && !p.barred && !p.member.Draining
}

// The function before reports whether p precedes q in the order of C9, without heirs.
func before(thing uint64, p, q *peer) bool {
	if p.member.Priority != q.member.Priority {
		return p.member.Priority > q.member.Priority
	}
	ps, qs := mix(thing^p.hash), mix(thing^q.hash)
	return ps > qs || ps == qs && p.member.Session < q.member.Session
}

// delay returns how long a member with the given number of predecessors waits.
func (m *Machine) delay(rank int) time.Duration {
	if rank == 0 {
		return 0
	}
	return time.Duration(rank)*m.cfg.RankDelay + m.rng.upTo(m.cfg.RankDelay/2)
}

// hash returns the 64-bit FNV-1a hash of s.
func hash(s string) uint64 {
	h := uint64(14695981039346656037)
	for i := 0; i < len(s); i++ {
		h = (h ^ uint64(s[i])) * 1099511628211
	}
	return h
}

// mix is the finalizer of SplitMix64 (Steele, Lea and Flood).
func mix(z uint64) uint64 {
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// rng is SplitMix64, a seeded source of random numbers whose entire state is one word.
type rng uint64

func (r *rng) next() uint64 {
	*r += 0x9e3779b97f4a7c15
	return mix(uint64(*r))
}

// float returns a uniform value in [0, 1).
func (r *rng) float() float64 { return float64(r.next()>>11) / (1 << 53) }

// upTo returns a uniform duration in [0, d).
func (r *rng) upTo(d time.Duration) time.Duration {
	return time.Duration(float64(d) * r.float())
}

// backoff doubles least n times, up to most, and subtracts a random part of at most half of the
// result.
func (r *rng) backoff(least, most time.Duration, n int) time.Duration {
	d := least
	for ; n > 0 && d < most; n-- {
		d *= 2
	}
	d = min(d, most)
	return d - r.upTo(d/2)
}
