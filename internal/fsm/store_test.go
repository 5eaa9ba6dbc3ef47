package fsm

import (
	"github.com/tenure-go/tenure/core/driver"
)

// modelStore implements the driver's contract as plain sequential code: one namespace in memory, in
// which every operation is one atomic step. The machines of a simulation or an exploration share
// it. The model remembers more than a real store, so that a checker knows what really happened. A
// copy made with clone is independent.
type modelStore struct {
	rev     int64
	now     int64 // real time in nanoseconds, set by the owner before each call
	shards  []modelShard
	members []modelMember
	labels  []modelLabel
	gone    []departure
	ids     []driver.SessionID // every session id that ever joined
	stats   storeStats
}

type modelShard struct {
	name   driver.ShardID
	owner  driver.Owner
	from   driver.Owner // the record that the current one replaced (A3)
	rev    int64
	freed  driver.Token // of the lease after which a lock's record was removed (R2)
	head   driver.Head
	leases []grantedLease // every lease the store ever granted, in order
	last   writeID        // of the last commit applied
}

// grantedLease is a lease that the store granted. Its exclusion no longer applies after a
// preemption, or after supersession or an operator ended its session (C11, S1).
type grantedLease struct {
	fence   driver.Fence
	head    driver.Head // at the grant
	exempt  bool
	claimed bool // a machine reported the grant
}

type modelMember struct {
	driver.Member
	version driver.Version
	rev     int64 // of the join, or of the last update
	beatAt  int64 // real time of the last change of the version
}

type modelLabel struct {
	node    string
	session driver.SessionID
	rev     int64
}

type departure struct {
	session driver.SessionID
	rev     int64
}

// writeID orders the writes of one shard as their handlers issued them. The index counts the writes
// of one lease.
type writeID struct {
	token driver.Token
	index int
}

func (a writeID) before(b writeID) bool {
	return a.token < b.token || a.token == b.token && a.index < b.index
}

type storeStats struct {
	grants, takeovers, transfers, preemptions, supersedes, evictions, updates, commits, fenced, lateRefused int
}

func newModelStore(shards []driver.ShardID) *modelStore {
	s := &modelStore{rev: 100}
	for _, n := range shards {
		s.shards = append(s.shards, modelShard{name: n})
	}
	return s
}

// clone returns an independent copy. The copies share append-only data, up to its current length.
func (s *modelStore) clone() *modelStore {
	c := *s
	c.shards = append([]modelShard(nil), s.shards...)
	for i := range c.shards {
		c.shards[i].leases = append([]grantedLease(nil), s.shards[i].leases...)
	}
	c.members = append([]modelMember(nil), s.members...)
	c.labels = append([]modelLabel(nil), s.labels...)
	c.gone = s.gone[:len(s.gone):len(s.gone)]
	c.ids = s.ids[:len(s.ids):len(s.ids)]
	return &c
}

func (s *modelStore) tick() int64 { s.rev++; return s.rev }

func (s *modelStore) shard(name driver.ShardID) *modelShard {
	for i := range s.shards {
		if s.shards[i].name == name {
			return &s.shards[i]
		}
	}
	return nil
}

func (s *modelStore) member(id driver.SessionID) *modelMember {
	for i := range s.members {
		if s.members[i].Session == id {
			return &s.members[i]
		}
	}
	return nil
}

func (s *modelStore) label(node string) *modelLabel {
	for i := range s.labels {
		if s.labels[i].node == node {
			return &s.labels[i]
		}
	}
	s.labels = append(s.labels, modelLabel{node: node})
	return &s.labels[len(s.labels)-1]
}

func (s *modelStore) joinedOnce(id driver.SessionID) bool {
	for _, x := range s.ids {
		if x == id {
			return true
		}
	}
	return false
}

func (s *modelStore) remove(id driver.SessionID) {
	for i := range s.members {
		if s.members[i].Session == id {
			s.members = append(s.members[:i], s.members[i+1:]...)
			s.gone = append(s.gone, departure{id, s.tick()})
			return
		}
	}
}

// exempt ends the exclusion of all leases of a session (C11).
func (s *modelStore) exempt(id driver.SessionID) {
	for i := range s.shards {
		for j := range s.shards[i].leases {
			if l := &s.shards[i].leases[j]; l.fence.Session == id {
				l.exempt = true
			}
		}
	}
}

// join is the second half of a join: the compare-and-set on the label's record, which was read at
// revision seen when the call began (M3).
func (s *modelStore) join(m driver.Member, seen int64) error {
	l := s.label(m.Node)
	switch {
	case s.joinedOnce(m.Session):
		return driver.ErrConflict
	case l.rev != seen:
		return driver.ErrRetry
	}
	if m.Supersede && l.session != "" && s.member(l.session) != nil {
		s.exempt(l.session)
		s.remove(l.session)
		s.stats.supersedes++
	}
	l.rev, l.session = s.tick(), m.Session
	s.members = append(s.members, modelMember{Member: m, version: driver.Version(s.rev), rev: s.rev, beatAt: s.now})
	s.ids = append(s.ids, m.Session)
	return nil
}

func (s *modelStore) beat(id driver.SessionID) error {
	m := s.member(id)
	if m == nil {
		return driver.ErrSessionLost
	}
	m.version, m.beatAt = driver.Version(s.tick()), s.now
	return nil
}

// update implements M4.
func (s *modelStore) update(id driver.SessionID, st driver.MemberState) error {
	m := s.member(id)
	switch {
	case m == nil:
		return driver.ErrSessionLost
	case st.Update == m.Update:
		return nil
	case st.Update < m.Update:
		return driver.ErrConflict
	}
	m.MemberState, m.rev = st, s.tick()
	s.stats.updates++
	return nil
}

func (s *modelStore) grant(sh *modelShard, to driver.SessionID) driver.Fence {
	sh.rev = s.tick()
	sh.from = sh.owner
	sh.owner = driver.Owner{Session: to, Token: driver.Token(sh.rev)}
	f := driver.Fence{Shard: sh.name, Session: to, Token: sh.owner.Token}
	sh.leases = append(sh.leases, grantedLease{fence: f, head: sh.head})
	s.stats.grants++
	return f
}

func (sh *modelShard) lease(f driver.Fence) *grantedLease {
	for i := len(sh.leases) - 1; i >= 0; i-- {
		if sh.leases[i].fence == f {
			return &sh.leases[i]
		}
	}
	return nil
}

func (s *modelStore) acquire(id driver.SessionID, claims []driver.Claim) ([]driver.AcquireResult, error) {
	if s.member(id) == nil {
		return nil, driver.ErrSessionLost
	}
	out := make([]driver.AcquireResult, len(claims))
	for i, c := range claims {
		sh := s.shard(c.Shard)
		switch {
		case sh.owner.Session == id && sh.owner.Token != 0 && sh.from == c.Seen:
			out[i] = driver.AcquireResult{Fence: driver.Fence{Shard: c.Shard, Session: id, Token: sh.owner.Token}, Head: sh.head}
		case driver.IsLock(c.Shard) && c.Seen.Session == "" && sh.owner.Session == "":
			out[i] = driver.AcquireResult{Fence: s.grant(sh, id), Head: sh.head}
			sh.from = c.Seen
		case sh.owner != c.Seen, !c.Preempt && sh.owner.Session != "" && s.member(sh.owner.Session) != nil:
			out[i] = driver.AcquireResult{Err: &driver.HeldError{Shard: c.Shard, Owner: sh.owner}}
		default:
			if c.Preempt && len(sh.leases) > 0 {
				sh.leases[len(sh.leases)-1].exempt = true
				s.stats.preemptions++
			}
			if sh.owner.Session != "" && sh.owner.Session != id {
				s.stats.takeovers++
			}
			out[i] = driver.AcquireResult{Fence: s.grant(sh, id), Head: sh.head}
		}
	}
	return out, nil
}

func (s *modelStore) transfer(id driver.SessionID, to []driver.Transfer) ([]driver.AcquireResult, error) {
	if s.member(id) == nil {
		return nil, driver.ErrSessionLost
	}
	out := make([]driver.AcquireResult, len(to))
	for i, h := range to {
		sh := s.shard(h.Fence.Shard)
		named := driver.Owner{Session: h.Fence.Session, Token: h.Fence.Token}
		switch {
		case sh.owner.Session == h.To && sh.owner.Token != named.Token && sh.from == named:
			out[i] = driver.AcquireResult{Fence: driver.Fence{Shard: sh.name, Session: h.To, Token: sh.owner.Token}, Head: sh.head}
		case sh.owner != named:
			out[i] = driver.AcquireResult{Err: &driver.FencedError{Fence: h.Fence, Current: sh.owner}}
		case s.member(h.To) == nil:
			out[i] = driver.AcquireResult{Err: driver.ErrNoTarget}
		default:
			s.stats.transfers++
			out[i] = driver.AcquireResult{Fence: s.grant(sh, h.To), Head: sh.head}
		}
	}
	return out, nil
}

func (s *modelStore) release(fences []driver.Fence) {
	for _, f := range fences {
		sh := s.shard(f.Shard)
		if sh.owner == (driver.Owner{Session: f.Session, Token: f.Token}) {
			sh.from = sh.owner
			sh.owner.Session = ""
			sh.rev = s.tick()
			if driver.IsLock(f.Shard) && sh.head == (driver.Head{}) {
				sh.owner, sh.from, sh.freed = driver.Owner{}, driver.Owner{}, f.Token
			}
		}
	}
}

func (s *modelStore) evict(id driver.SessionID, suspects []driver.Suspect) ([]driver.EvictResult, error) {
	if s.member(id) == nil {
		return nil, driver.ErrSessionLost
	}
	out := make([]driver.EvictResult, len(suspects))
	for i, x := range suspects {
		m := s.member(x.Session)
		switch {
		case m == nil:
		case m.version != x.Version:
			out[i].Current = m.version
		default:
			s.remove(x.Session)
			s.stats.evictions++
			out[i].Evicted = true
		}
	}
	return out, nil
}

func (s *modelStore) commit(g ignored, w driver.Write, id writeID) driver.CommitResult {
	sh := s.shard(w.Fence.Shard)
	if sh.owner != (driver.Owner{Session: w.Fence.Session, Token: w.Fence.Token}) {
		s.stats.fenced++
		return driver.CommitResult{Err: &driver.FencedError{Fence: w.Fence, Current: sh.owner}}
	}
	if w.Number != sh.head.Number+1 {
		s.stats.lateRefused++
		return driver.CommitResult{Err: &driver.ConflictError{Shard: sh.name, Op: driver.NumberConflict, Head: sh.head}}
	}
	if n := len(sh.leases); n == 0 || sh.leases[n-1].fence != w.Fence {
		g.fail("S3", "shard %s accepted a write of token %d, which is not the latest grant", sh.name, w.Fence.Token)
	}
	if !sh.last.before(id) {
		g.fail("S15", "shard %s: write %d of token %d was applied after write %d of token %d", sh.name, id.index, id.token, sh.last.index, sh.last.token)
	}
	sh.last = id
	sh.head.Number++
	sh.head.Seq++
	sh.head.Oldest = 1
	sh.head.Nonce, sh.head.Token = w.Nonce, w.Fence.Token
	s.stats.commits++
	return driver.CommitResult{Head: sh.head}
}

// observe returns the changes since revision since, or nil if there are none. With 0, it returns
// the full state.
func (s *modelStore) observe(since int64, beats []driver.Beat) *driver.View {
	v := &driver.View{Reset: since == 0}
	found := v.Reset
	for i := range s.shards {
		if sh := &s.shards[i]; sh.rev > since {
			st := driver.ShardState{Shard: sh.name, Owner: sh.owner}
			if sh.owner == (driver.Owner{}) {
				if st.Owner.Token = sh.freed; v.Reset {
					continue
				}
			}
			if sh.owner.Session != "" && sh.owner.Token%3 != 0 { // some stores report the head, and only sometimes
				st.Head = new(sh.head)
			}
			v.Shards = append(v.Shards, st)
			found = true
		}
	}
	for i := range s.members {
		m := &s.members[i]
		if m.rev > since {
			v.Members = append(v.Members, m.Member)
			found = true
		}
	}
	for _, b := range beats {
		if m := s.member(b.Session); m != nil && m.version != b.Version {
			v.Beats = append(v.Beats, driver.Beat{Session: b.Session, Version: m.version})
			found = true
		}
	}
	if !v.Reset {
		for i := len(s.gone) - 1; i >= 0 && s.gone[i].rev > since; i-- {
			v.Gone = append(v.Gone, s.gone[i].session)
			found = true
		}
	}
	if !found {
		return nil
	}
	return v
}
