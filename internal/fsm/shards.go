package fsm

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tenure-go/tenure/core/driver"
)

// A shard value holds what the machine knows about one shard. There may be 100,000 shards that this
// process does not own, so the fields that only an owner needs are separate.
type shard struct {
	name      driver.ShardID
	owner     driver.Owner // the newest known record
	due       Instant      // when to settle the shard; Never if there is nothing to do
	notBefore Instant      // earliest instant of the next claim or new token
	own       *own
	heirs     Heirs            // the sessions that claim the shard first, if an assigner named them; for a lock, its rivals
	releaser  driver.SessionID // the session that made the record free, if this was seen: C13
	slot      int32            // the shard's place in the queue
	tries     int8             // consecutive failed claims
	returns   int8             // consecutive short leases that were given up
	flight    callKind
	want      bool
	waiting   bool // waiting for its turn to claim
	burnt     bool // the record's token and all earlier tokens are never granted again: C1
}

// A leaseState is the state of this process's lease on a shard.
//
//	none -> held                 granted
//	held -> draining             unwanted: its handler should return
//	held, draining -> returned   its handler returned
//	held, draining -> revoked    lost while its handler runs
//	returned -> none             settled: the record moved on, or the session ended
//	revoked -> none              settled: its handler returned
type leaseState uint8

const (
	none     leaseState = iota // never granted, or settled
	held                       // trusted; its handler runs
	draining                   // trusted until drainBy; its handler runs
	revoked                    // may not be used; its handler runs
	returned                   // may not be used; the record still names the lease
)

func (l leaseState) trusted() bool { return l == held || l == draining }

func (l leaseState) running() bool { return l.trusted() || l == revoked }

// An own value contains the state of a shard that this process owns, has owned or is about to own.
type own struct {
	lease     leaseState
	cause     Cause        // cause of the last Revoke
	fence     driver.Fence // fence of the last Grant
	grantedAt Instant
	endedAt   Instant // instant of the last Revoke
	drainBy   Instant
	to        driver.SessionID // successor named by InUnwant, or chosen
	sentTo    driver.SessionID // successor named by the last transfer sent
	chosen    bool             // to is a standby that the machine chose: C13
	yield     bool             // the shard is given away although it is wanted
	why       Cause            // the cause of a yield to a member that should have the shard: C15, C16
	head      driver.Head
	headToken driver.Token // token of the grant that head belongs to
}

func (s *shard) lease() leaseState {
	if s.own == nil {
		return none
	}
	return s.own.lease
}

// shard returns the index of a shard, and adds the shard if it is new.
func (m *Machine) shard(name driver.ShardID) int32 {
	i, ok := m.index[name]
	if ok {
		return i
	}
	if n := len(m.unused); n > 0 {
		i, m.unused = m.unused[n-1], m.unused[:n-1]
	} else {
		i = int32(len(m.shards))
		m.shards = append(m.shards, shard{})
	}
	m.shards[i] = shard{name: name, due: Never, slot: -1}
	m.index[name] = i
	return i
}

// forget removes a free lock that this process does not want. Otherwise, the process would remember
// every name that was ever locked (C17).
func (m *Machine) forget(i int32) {
	s := &m.shards[i]
	if !driver.IsLock(s.name) || s.want || s.own != nil || s.owner.Session != "" {
		return
	}
	for k := acquire; k <= release; k++ {
		if c := &m.calls[k]; c.id != 0 && slices.Contains(c.shards, i) {
			return // the reply names the shard by index, and schedules the shard again
		}
	}
	m.forgot = max(m.forgot, s.owner.Token)
	m.schedule(i, Never)
	delete(m.index, s.name)
	*s = shard{due: Never, slot: -1}
	m.unused = append(m.unused, i)
}

// expect allocates space for n more shards. If the slice instead grew by doubling, a standby for
// many shards could waste half of its memory.
func (m *Machine) expect(n int) { m.shards = slices.Grow(m.shards, max(0, n)) }

// mine reports whether the newest known record contains this session.
func (m *Machine) mine(s *shard) bool { return m.phase == live && s.owner.Session == m.sess }

// free reports whether the shard may be claimed. The shard's record must contain no session, or a
// session that has no member record and is therefore permanently dead. When the claim arrives, the
// store decides whether the shard is free (A1).
func (m *Machine) free(s *shard) bool {
	id := s.owner.Session
	return id == "" || id != m.sess && m.alive[id] == nil
}

func (m *Machine) want(name driver.ShardID, wait time.Duration) {
	i := m.shard(name)
	if s := &m.shards[i]; !s.want {
		s.want = true
		if wait > 0 {
			s.waiting, s.notBefore = true, max(s.notBefore, m.now.Add(wait))
		}
		m.wants++
		m.schedule(i, m.now)
	}
}

func (m *Machine) unwant(name driver.ShardID, to driver.SessionID) {
	i := m.shard(name)
	s := &m.shards[i]
	if s.want {
		s.want, s.waiting = false, false
		m.wants--
	}
	delete(m.gifts, i)
	if o := s.own; o != nil {
		if o.why != 0 {
			o.why, o.yield = 0, false
		}
		o.to, o.chosen = to, false
		if o.lease == held {
			o.lease, o.drainBy = draining, m.now.Add(m.cfg.DrainBudget)
		}
	}
	m.schedule(i, m.now)
}

// prefer sets the sessions that claim a shard first. If this member is waiting for its turn, the
// turn is recomputed.
func (m *Machine) prefer(name driver.ShardID, h Heirs) {
	i := m.shard(name)
	s := &m.shards[i]
	if s.heirs == h {
		return
	}
	s.heirs = h
	if s.waiting {
		s.waiting, s.notBefore = false, m.now
		m.schedule(i, m.now)
	}
	if s.lease() == held {
		m.schedule(i, m.now) // perhaps no assigner moves the shard now: C15, C16
	}
}

// drained records that the handler was joined, which ends a held lease.
func (m *Machine) drained(name driver.ShardID, token driver.Token) {
	i := m.shard(name)
	s := &m.shards[i]
	o := s.own
	if !s.lease().running() || o.fence.Token != token {
		return
	}
	switch o.lease {
	case revoked:
		m.settled(o, Effect{Outcome: OutcomeLost, Cause: o.cause})
	case draining:
		m.revoke(i, cmp.Or(o.why, CauseReleased))
		o.lease = returned
		if o.to == "" && !s.want && !driver.IsLock(name) { // other members may not want a lock
			o.to, o.chosen = m.standby(s), true
		}
	case held:
		m.revoke(i, CauseReturned)
		o.lease, o.yield = returned, true
		if m.now.Sub(o.grantedAt) > m.cfg.BackoffMax {
			s.returns = 0
		}
		s.notBefore = m.now.Add(m.rng.backoff(m.cfg.BackoffMin, m.cfg.BackoffMax, int(s.returns)))
		s.returns = min(s.returns+1, 30)
	default: // none, returned: nothing changes
	}
	m.schedule(i, m.now)
}

func (m *Machine) endLease(name driver.ShardID, token driver.Token, cause Cause) {
	i := m.shard(name)
	if s := &m.shards[i]; s.lease().trusted() && s.own.fence.Token == token {
		m.revoke(i, cause)
	}
}

// revoke ends a lease and burns its token (C1, S6).
func (m *Machine) revoke(i int32, cause Cause) {
	s := &m.shards[i]
	o := s.own
	o.lease, o.cause, o.endedAt = revoked, cause, m.now
	s.burn(o.fence.Token)
	m.emit(Effect{Kind: EffRevoke, Fence: o.fence, Cause: cause})
	m.schedule(i, m.now)
}

// settled reports that a lease has ended in the way that e describes.
func (m *Machine) settled(o *own, e Effect) {
	o.lease = none
	e.Kind, e.Fence = EffSettled, o.fence
	m.emit(e)
}

// outcome returns how a lease that was being given up ended, according to the shard's new record.
func (o *own) outcome(r driver.Owner) Outcome {
	switch {
	case r == driver.Owner{Token: o.fence.Token}:
		return OutcomeReleased
	case r.Session != "" && r.Session == o.sentTo:
		return OutcomeTransferred
	}
	return OutcomeUnknown
}

// revokeAll ends every lease, and burns every token of this session, granted or not.
func (m *Machine) revokeAll(cause Cause) {
	for i := range m.shards {
		s := &m.shards[i]
		if s.lease().trusted() {
			m.revoke(int32(i), cause)
		}
		if m.mine(s) {
			s.burn(s.owner.Token)
		}
	}
}

// burn prevents grants of tokens up to t. A later record has a higher token, so one bit for the
// newest known record is enough.
func (s *shard) burn(t driver.Token) { s.burnt = s.burnt || t >= s.owner.Token }

// learnState reads a shard's record from a view, and also the shard's head if the view contains it.
// A head that comes with this session's grant is as reliable as the head in the reply, because no
// other session can change it. The first commit also compares this head with the store's head (F1).
func (m *Machine) learnState(st *driver.ShardState) {
	i := m.shard(st.Shard)
	m.learn(i, st.Owner)
	s := &m.shards[i]
	if st.Head == nil || s.owner != st.Owner || !m.mine(s) || s.lease() != none && s.own.fence.Token == s.owner.Token {
		return
	}
	if s.own == nil {
		s.own = &own{}
	}
	if s.own.headToken != s.owner.Token {
		s.own.head, s.own.headToken = *st.Head, s.owner.Token
	}
	if s.flight == acquire || s.flight == transfer {
		s.notBefore = m.now // the reply could add nothing
	}
}

// learn processes a record from any source. The record counts only if it is newer than the newest
// known record (C1). A release keeps the token and clears the session. If two sessions have the
// same token, the store forgot a grant (S14).
func (m *Machine) learn(i int32, o driver.Owner) {
	s := &m.shards[i]
	if o.Token == s.owner.Token && o.Session != s.owner.Session && o.Session != "" && s.owner.Session != "" {
		if m.phase != left && m.phase != halted {
			m.halt(fmt.Errorf("%w: token %d of shard %q was granted to session %s before, and belongs to session %s now: "+
				"the store lost its newest writes", driver.ErrStoreChanged, o.Token, s.name, s.owner.Session, o.Session))
		}
		return
	}
	if o.Token < s.owner.Token || o.Token == s.owner.Token && (o.Session != "" || s.owner.Session == "") {
		return
	}
	s.burnt = s.burnt && o.Token == s.owner.Token
	s.releaser = ""
	if o.Token == s.owner.Token {
		s.releaser = s.owner.Session
	}
	if s.waiting { // it waits for a turn among the candidates of the previous record
		s.waiting, s.notBefore = false, m.now
	}
	if m.phase == live && o.Session == m.sess && s.owner.Session != m.sess {
		m.cameBack(i)
	}
	if driver.IsLock(s.name) {
		m.rival(s, o.Session)
	}
	s.owner, s.tries = o, 0
	if s.flight != noCall && m.mine(s) {
		// The reply, which contains the heads of all the call's shards, has not arrived yet.
		s.notBefore = m.now.Add(m.cfg.Member.TTL/24 + time.Duration(len(m.calls[s.flight].shards))*itemTime)
	}
	switch lease := s.lease(); { // the lease of the record before this one
	case lease.trusted():
		m.revoke(i, CausePreempted)
	case lease == returned:
		if g := m.gifts[i]; g != nil && s.own.why != 0 {
			g.at = m.now
		}
		m.settled(s.own, Effect{Outcome: s.own.outcome(o), Owner: o})
	}
	if m.mine(s) && (m.lapsed || driver.IsLock(s.name) && o.Token <= m.forgot) {
		s.burn(o.Token)
	}
	if s.want || s.own != nil || m.mine(s) || driver.IsLock(s.name) {
		m.schedule(i, m.now)
	}
}

// unlisted frees the locks that a full state does not list (R2), except this session's locks, which
// may be newer than that state.
func (m *Machine) unlisted(v *driver.View) {
	listed := make(map[driver.ShardID]bool)
	for i := range v.Shards {
		if driver.IsLock(v.Shards[i].Shard) {
			listed[v.Shards[i].Shard] = true
		}
	}
	for i := range m.shards {
		if s := &m.shards[i]; driver.IsLock(s.name) && !listed[s.name] && !m.mine(s) {
			m.learn(int32(i), driver.Owner{Token: s.owner.Token})
		}
	}
}

// dueAll schedules every shard that may concern this process.
func (m *Machine) dueAll(at Instant) {
	for i := range m.shards {
		if s := &m.shards[i]; s.want || s.own != nil || m.mine(s) || driver.IsLock(s.name) {
			m.schedule(int32(i), at)
		}
	}
}

// dueFree schedules every wanted shard that may be claimed, and every lock of a member that has
// left. Each shard waits for this member's turn. Attempts made before the shard was free do not
// count.
func (m *Machine) dueFree() {
	for i := range m.shards {
		if s := &m.shards[i]; (s.want || driver.IsLock(s.name)) && m.free(s) {
			s.tries = 0
			m.schedule(int32(i), m.now)
		}
	}
}

// settle takes the next step that one shard needs. The decision depends only on the shard's state,
// not on the event, view or timer that caused the call (C2).
func (m *Machine) settle(i int32) {
	s := &m.shards[i]
	if s.lease() == draining && m.now >= s.own.drainBy {
		m.revoke(i, CauseDrainBudget)
	}
	if s.want && s.flight != release && m.mine(s) && !s.burnt && m.now >= s.notBefore {
		s.flight = noCall // the record confirms the grant without a reply: C2
	}
	switch lease := s.lease(); {
	case s.flight != noCall:
		if m.now < s.notBefore {
			m.schedule(i, s.notBefore)
		}
	case lease == draining:
		m.schedule(i, s.own.drainBy)
	case lease == held:
		m.settleHeld(i)
	case m.mine(s):
		m.settleMine(i)
	case lease == revoked: // the handler of an earlier lease still runs: S11
	case s.want && m.free(s):
		m.settleFree(i)
	case driver.IsLock(s.name) && s.owner.Session != "" && m.free(s):
		s.own = nil
		m.claim(i) // to release the lock, because no other member may ever want it (C17)
	default:
		s.own = nil // there is nothing left to remember
		m.forget(i)
	}
}

// settleMine decides what to do with a shard if its record contains this session but no lease is
// held.
func (m *Machine) settleMine(i int32) {
	s := &m.shards[i]
	if s.own == nil {
		s.own = &own{}
	}
	o := s.own
	running := o.lease == revoked
	abandon := m.cfg.AbandonAfter > 0 && running && m.now >= o.endedAt.Add(m.cfg.AbandonAfter)
	failed := m.now < s.notBefore && s.tries > 0 // the last attempt failed
	if s.want && (!o.yield || o.why != 0) && !running && !failed {
		m.reconsider(i)
	}
	if o.chosen && !m.acts(m.alive[o.to]) {
		o.to = ""
	}
	switch {
	case abandon && failed:
		m.schedule(i, s.notBefore)
	case abandon:
		o.yield = s.want
		m.decide(release, i)
	case s.want && !o.yield:
		switch {
		case m.lapsed: // regained trust schedules it again
		case !s.burnt:
			if !running {
				m.grant(i)
			}
		case m.now < s.notBefore:
			m.schedule(i, s.notBefore)
			return
		default:
			m.decide(transfer, i) // to oneself: C1, C7
		}
		if running && m.cfg.AbandonAfter > 0 && s.due == Never {
			m.schedule(i, o.endedAt.Add(m.cfg.AbandonAfter))
		}
	case running: // not before the work was joined: S12
		if m.cfg.AbandonAfter > 0 {
			m.schedule(i, o.endedAt.Add(m.cfg.AbandonAfter))
		}
	case failed:
		m.schedule(i, s.notBefore)
	case (!s.want || o.why != 0) && o.to != "" && o.to != m.sess && m.alive[o.to] != nil:
		m.decide(transfer, i)
	default:
		m.decide(release, i)
	}
}

func (m *Machine) settleFree(i int32) {
	s := &m.shards[i]
	if s.own != nil {
		s.own.yield, s.own.why, s.own.to = false, 0, ""
	}
	if m.cfg.Ineligible != "" && !driver.IsLock(s.name) {
		m.takeBack(i)
		return
	}
	m.claim(i)
}

// claim claims a shard when this member's turn comes (C9). If no holder of a lock was ever seen,
// the lock has no rivals, and the member claims it immediately (C17).
func (m *Machine) claim(i int32) {
	s := &m.shards[i]
	if !m.viewed || m.lapsed {
		return // the first view, and regained trust, schedule it again
	}
	thing := hash(string(s.name))
	if driver.IsLock(s.name) {
		thing = mix(thing + uint64(s.owner.Token)) // another order each time
	}
	if !s.waiting && m.now >= s.notBefore {
		if d := m.turnOf(s, thing); d > 0 && s.tries == 0 {
			s.waiting, s.notBefore = true, m.now.Add(d)
		}
	}
	if m.now < s.notBefore {
		m.schedule(i, s.notBefore)
		return
	}
	s.waiting = false
	m.decide(acquire, i)
}

func (m *Machine) grant(i int32) {
	s := &m.shards[i]
	o := s.own
	o.lease, o.grantedAt = held, m.now
	o.fence = driver.Fence{Shard: s.name, Session: m.sess, Token: s.owner.Token}
	o.to, o.sentTo, o.chosen, o.yield, o.why = "", "", false, false, 0
	e := Effect{Kind: EffGrant, Session: m.sess, Until: m.until, Fence: o.fence}
	if o.headToken == s.owner.Token {
		e.Head, e.HeadKnown = o.head, true
	}
	m.emit(e)
	m.settleHeld(i)
}

// decide puts a shard into the batch of a kind of call. If a call of that kind is outstanding, or
// the batch is full, decide keeps the shard for a later call.
func (m *Machine) decide(k callKind, i int32) {
	if m.calls[k].id != 0 || len(m.batch[k]) == maxItems {
		m.kept[k] = append(m.kept[k], i)
		return
	}
	m.batch[k] = append(m.batch[k], i)
	m.shards[i].flight = k
}

// After a call has ended, again schedules the shards that waited for it. To schedule each shard
// only once, no more are scheduled than fit into the next call.
func (m *Machine) again() bool {
	any := false
	for k := acquire; k <= release; k++ {
		if m.calls[k].id != 0 || len(m.kept[k]) == 0 {
			continue
		}
		any = true
		n := min(len(m.kept[k]), maxItems)
		for _, i := range m.kept[k][:n] {
			m.schedule(i, m.now)
		}
		if m.kept[k] = m.kept[k][n:]; len(m.kept[k]) == 0 {
			m.kept[k] = nil
		}
	}
	return any
}

func (m *Machine) send() {
	for k := acquire; k <= release; k++ {
		if len(m.batch[k]) == 0 {
			continue
		}
		c := &m.calls[k]
		c.id = m.newCall()
		c.shards, m.batch[k] = m.batch[k], c.shards[:0]
		c.tokens = c.tokens[:0]
		e := Effect{Call: c.id, Session: m.sess, Timeout: m.callTimeout(k, len(c.shards))}
		switch k {
		case acquire:
			e.Kind, e.Claims = EffAcquire, make([]driver.Claim, len(c.shards))
		case transfer:
			e.Kind, e.Transfers = EffTransfer, make([]driver.Transfer, len(c.shards))
		case release:
			e.Kind, e.Fences = EffRelease, make([]driver.Fence, len(c.shards))
		default: // the other calls concern no shards
		}
		for j, i := range c.shards {
			s := &m.shards[i]
			f := driver.Fence{Shard: s.name, Session: m.sess, Token: s.owner.Token}
			if k == acquire {
				e.Claims[j] = driver.Claim{Shard: s.name, Seen: s.owner}
				continue
			}
			s.burn(f.Token) // C1: from now on
			if s.own.yield && s.own.why != 0 {
				m.given(i)
			}
			if k == release {
				e.Fences[j] = f
				c.tokens = append(c.tokens, f.Token)
				continue
			}
			to := m.sess
			if !s.want || s.own.yield {
				to = s.own.to
			}
			s.own.sentTo = to
			e.Transfers[j] = driver.Transfer{Fence: f, To: to}
		}
		m.emit(e)
	}
}

// reply ends the outstanding call of a kind and returns its shards. The ok result is false if the
// reply belongs to a different call or ended the session.
func (m *Machine) reply(k callKind, in *Input) (shards []int32, ok bool) {
	c := &m.calls[k]
	if c.id == 0 || in.Call != c.id {
		return nil, false
	}
	shards = c.shards
	c.id = 0
	c.ended(in.Err, m.now)
	for _, i := range shards {
		if m.shards[i].flight == k {
			m.shards[i].flight = noCall
		}
		m.schedule(i, m.now)
	}
	if in.Err != nil && !m.fatal(in.Err) {
		m.event(EventCallFailed, in.Err)
	}
	return shards, m.phase == live
}

// retryLater schedules the next attempt for one shard after a back-off.
func (m *Machine) retryLater(i int32) {
	s := &m.shards[i]
	limit := max(m.cfg.Member.TTL/3, m.cfg.RankDelay)
	s.notBefore = m.now.Add(m.rng.backoff(m.cfg.RankDelay, limit, int(s.tries)))
	s.tries = min(s.tries+1, 30)
}

func (m *Machine) acquired(in *Input) {
	shards, ok := m.reply(acquire, in)
	for j, i := range shards {
		if !ok {
			return
		}
		ok = m.result(i, in, j)
	}
}

func (m *Machine) transferred(in *Input) {
	shards, ok := m.reply(transfer, in)
	for j, i := range shards {
		if !ok {
			return
		}
		s := &m.shards[i]
		if in.Err == nil && j < len(in.Results) {
			switch err := in.Results[j].Err; {
			case !s.want && s.own != nil && errors.Is(err, driver.ErrNoTarget):
				s.own.to = "" // so the shard is released
				continue
			case !s.want && s.own != nil && s.own.chosen && refused(err):
				s.own.to = "" // here too, because no caller asked for this successor
				if errors.Is(err, driver.ErrDamaged) {
					continue
				}
			case s.lease() == returned && refused(err):
				m.settled(s.own, Effect{Outcome: OutcomeRefused, Err: err})
			}
		}
		ok = m.result(i, in, j)
	}
}

// refused reports whether err means that a transfer was not applied, and that another attempt may
// not help. A fence error that contains the current record does not prove a refusal, because an
// earlier attempt may have been applied. In that case, the method learn decides.
func refused(err error) bool {
	if f, ok := errors.AsType[*driver.FencedError](err); ok && f.Current != (driver.Owner{}) {
		return false
	}
	return driver.NotApplied(err) && !errors.Is(err, driver.ErrRetry) && !errors.Is(err, driver.ErrNoTarget)
}

// result handles one result of a batch, and returns false if it ended the session.
func (m *Machine) result(i int32, in *Input, j int) bool {
	if in.Err != nil || j >= len(in.Results) {
		m.retryLater(i)
		return true
	}
	r := &in.Results[j]
	if r.Err == nil {
		s := &m.shards[i]
		m.learn(i, driver.Owner{Session: r.Fence.Session, Token: r.Fence.Token})
		if m.mine(s) && s.owner.Token == r.Fence.Token {
			if s.own == nil {
				s.own = &own{}
			}
			s.own.head, s.own.headToken = r.Head, r.Fence.Token
		}
		return true
	}
	if m.fatal(r.Err) {
		return false
	}
	before := m.shards[i].owner
	var heldErr *driver.HeldError
	var fenced *driver.FencedError
	switch {
	case errors.As(r.Err, &heldErr):
		m.learn(i, heldErr.Owner)
	case errors.As(r.Err, &fenced) && fenced.Current != (driver.Owner{}):
		m.learn(i, fenced.Current)
	case errors.Is(r.Err, driver.ErrDamaged): // D1: until a person repairs it
		s := &m.shards[i]
		s.notBefore, s.tries = m.now.Add(m.rng.backoff(m.cfg.BackoffMax, m.cfg.BackoffMax, 0)), 1
		return true
	default:
		m.event(EventCallFailed, r.Err)
	}
	if m.shards[i].owner == before {
		m.retryLater(i) // no news: the outcome is unknown, or a view lags behind
	}
	return true
}

func (m *Machine) released(in *Input) {
	shards, ok := m.reply(release, in)
	if !ok {
		return
	}
	for j, i := range shards {
		s := &m.shards[i]
		if in.Err != nil {
			m.retryLater(i)
			continue
		}
		// The record may belong to a later lease of this session (R1).
		if m.mine(s) && s.owner.Token == m.calls[release].tokens[j] {
			m.learn(i, driver.Owner{Token: s.owner.Token})
		}
	}
}
