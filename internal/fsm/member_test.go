package fsm

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/mark"
)

// A member is one process: a machine, and as much of the runner and the application as the protocol
// sees. At every step, it checks the machine's promises about inputs and effects. The surrounding
// world carries the member's calls to the store and runs its handlers.
type member struct {
	idx, inc int
	out      outside
	store    *modelStore
	rules    ignored
	cfg      Config
	m        *Machine
	ids      int // session ids made

	now      Instant
	calls    []asked // outstanding
	runs     []run   // one per shard
	want     []bool
	says     driver.MemberState
	barred   string  // why it is not eligible
	until    Instant // of the trust in the leases held
	isHalted bool
	isLeft   bool

	// These are the facts that the machine may know, kept separately from the machine.
	proven    Instant // when this session's newest successful join or heartbeat was sent
	hasProof  bool
	peers     []heardPeer
	successes []success // own joins and heartbeats that succeeded, by arrival

	buried []driver.SessionID // in this step, the answer shows that this process evicted them
}

// outside contains what a member needs from the world around it.
type outside interface {
	ask(p *member, e *Effect)
	resync(p *member)
	granted(p *member, sh int)
	revoked(p *member, sh int, cause Cause)
	extended(p *member)
	yields(p *member, sh int)
	event(p *member, e *Effect)
	// stepped is called for each step of p, with the machine's configuration before the step.
	stepped(p *member, cfg *Config, in *Input, out []Effect)
	// trusting returns a fence of sh that another process currently trusts, or nil.
	trusting(p *member, sh int) *driver.Fence
}

type asked struct {
	id      CallID
	kind    EffectKind
	session driver.SessionID
	sentAt  Instant
	timeout time.Duration
	shards  []driver.ShardID

	suspects []driver.Suspect
}

// run is the work of a process on one shard.
type run struct {
	held   bool // granted, and not revoked
	active bool // the handler has not been joined
	told   bool // to stop
	open   bool // granted, and not settled
	fence  driver.Fence
	sentTo driver.SessionID // by the last transfer of it
	gave   bool             // the shard was given away although it was wanted: C15, C16
	given  Instant          // when it was last given away
	cause  Cause            // of the last revocation
	burnt  driver.Token     // never to be granted (again)

	number  driver.WriteNo // of the last commit known
	known   bool
	index   int // writes made under this lease
	pending *handlerWrite
}

type handlerWrite struct {
	write driver.Write
	id    writeID
	blind bool // no lease was checked
	told  bool // its handler learned that it was applied
}

type heardPeer struct {
	member  driver.Member
	version driver.Version
	at      Instant
	since   Instant // the start of the time for which it has lived and been eligible: C16
}

type success struct{ sentAt, at Instant }

func newMember(idx, inc int, cfg Config, out outside, store *modelStore, rules ignored) *member {
	p := &member{idx: idx, inc: inc, cfg: cfg, out: out, store: store, rules: rules}
	p.runs = make([]run, len(store.shards))
	p.want = make([]bool, len(store.shards))
	p.cfg.NewSession = p.newSession
	p.m = New(p.cfg)
	p.says, p.barred = p.m.State(), cfg.Ineligible
	return p
}

func (p *member) newSession() driver.SessionID {
	p.ids++
	return driver.SessionID(fmt.Sprintf("m%d.%d.%d", p.idx, p.inc, p.ids))
}

func (p *member) shardIndex(name driver.ShardID) int {
	for i := range p.store.shards {
		if p.store.shards[i].name == name {
			return i
		}
	}
	panic("unknown shard " + name)
}

func (p *member) call(id CallID) *asked {
	for i := range p.calls {
		if p.calls[i].id == id {
			return &p.calls[i]
		}
	}
	return nil
}

// onCall reports whether the session has an outstanding call of the kind for the shard. A call of a
// former session affects no later lease.
func (p *member) onCall(kind EffectKind, id driver.SessionID, name driver.ShardID) bool {
	for i := range p.calls {
		if p.calls[i].kind != kind || p.calls[i].session != id {
			continue
		}
		for _, s := range p.calls[i].shards {
			if s == name {
				return true
			}
		}
	}
	return false
}

func (p *member) holds() bool {
	for i := range p.runs {
		if p.runs[i].held {
			return true
		}
	}
	return false
}

// trusts reports whether the process trusts its lease of sh when its own clock shows now. Like a
// validity check, trusts decides by the clock.
func (p *member) trusts(sh int, now Instant) bool { return p.runs[sh].held && now < p.until }

// step feeds one input to the machine and checks the effects.
func (p *member) step(now Instant, in Input) {
	if now < p.now {
		panic("time went backwards")
	}
	p.now = now
	session := p.m.Session()
	lost, halts := p.before(&in, session)
	cfg := p.m.Config()
	effects := p.m.Step(now, in)
	p.out.stepped(p, &cfg, &in, effects)
	for i := range effects {
		p.effect(&effects[i])
	}
	if len(p.buried) > 0 {
		p.rules.fail("C9", "m%d evicted %v and does not say so", p.idx, p.buried)
	}
	p.after(&in, lost, halts)
}

// before records an input. It reports whether the input ends the session, or halts the machine.
func (p *member) before(in *Input, session driver.SessionID) (lost, halts bool) {
	switch in.Kind {
	case InWant:
		p.want[p.shardIndex(in.Shard)] = true
	case InUnwant:
		p.want[p.shardIndex(in.Shard)] = false
	case InDrained:
		if r := &p.runs[p.shardIndex(in.Shard)]; r.active && r.fence.Token == in.Token {
			r.active = false
		}
	case InObserved:
		lost = p.viewed(in.View, session)
	case InJoined, InBeaten, InAcquired, InTransferred, InReleased, InEvicted, InUpdated, InRead:
		c := p.call(in.Call)
		if c == nil {
			return false, false
		}
		for i, x := range c.suspects {
			if in.Err == nil && i < len(in.Evictions) && in.Evictions[i].Evicted {
				p.buried = append(p.buried, x.Session)
			}
		}
		mine := c.session == session && session != ""
		lost = mine && replyIs(in, driver.ErrSessionLost)
		halts = (mine || in.Kind == InJoined) && replyIs(in, driver.ErrStoreChanged) && !p.isLeft
		if in.Err == nil {
			switch {
			case in.Kind == InJoined:
				p.proven, p.hasProof = c.sentAt, true
				p.successes = append(p.successes[:0], success{c.sentAt, p.now})
			case in.Kind == InBeaten && mine:
				p.proven = max(p.proven, c.sentAt)
				p.addSuccess(success{c.sentAt, p.now})
			case in.Kind == InEvicted && mine:
				p.unsilenced(c.suspects, in.Evictions)
			}
		}
		p.endCall(in.Call)
	case InLeave:
		p.isLeft = true
	case InEligible:
		p.barred = in.Reason
	}
	return lost, halts
}

func (p *member) endCall(id CallID) {
	for i := range p.calls {
		if p.calls[i].id == id {
			p.calls = append(p.calls[:i], p.calls[i+1:]...)
			return
		}
	}
}

// replyIs reports whether the call, or one of its items, failed with err.
func replyIs(in *Input, err error) bool {
	if in.Err != nil {
		return errors.Is(in.Err, err)
	}
	for i := range in.Results {
		if e := in.Results[i].Err; e != nil && errors.Is(e, err) {
			return true
		}
	}
	for i := range in.Evictions {
		if e := in.Evictions[i].Err; e != nil && errors.Is(e, err) {
			return true
		}
	}
	return false
}

func (p *member) addSuccess(s success) {
	if len(p.successes) == 256 {
		p.successes = append(p.successes[:0], p.successes[128:]...)
	}
	p.successes = append(p.successes, s)
}

// viewed records when the changes of peers arrived. It reports whether the view shows that the
// session is gone.
func (p *member) viewed(v *driver.View, session driver.SessionID) (lost bool) {
	peers := p.peers[:0]
	for _, h := range p.peers {
		if !contains(v.Gone, h.member.Session) && (!v.Reset || listed(v.Members, h.member.Session)) {
			peers = append(peers, h)
		}
	}
	for _, x := range v.Members {
		h := find(peers, x.Session)
		if h == nil {
			peers = append(peers, heardPeer{member: x, at: p.now, since: p.now})
			continue
		}
		if x.Update > h.member.Update {
			if h.member.Ineligible() != "" {
				h.since = p.now
			}
			h.member.MemberState = x.MemberState
		}
	}
	for _, b := range v.Beats {
		if h := find(peers, b.Session); h != nil && b.Version > h.version {
			h.version, h.at = b.Version, p.now
		}
	}
	p.peers = peers
	return session != "" && contains(v.Gone, session)
}

// unsilenced records the versions that refused evictions reported, unless a view has reported a
// newer version.
func (p *member) unsilenced(suspects []driver.Suspect, results []driver.EvictResult) {
	for i, x := range suspects {
		h := find(p.peers, x.Session)
		if h != nil && h.version == x.Version && i < len(results) && results[i].Err == nil && results[i].Current != 0 {
			h.version, h.at = results[i].Current, p.now
		}
	}
}

func find(peers []heardPeer, id driver.SessionID) *heardPeer {
	for i := range peers {
		if peers[i].member.Session == id {
			return &peers[i]
		}
	}
	return nil
}

func listed(members []driver.Member, id driver.SessionID) bool {
	for i := range members {
		if members[i].Session == id {
			return true
		}
	}
	return false
}

func contains(ids []driver.SessionID, id driver.SessionID) bool {
	for _, x := range ids {
		if x == id {
			return true
		}
	}
	return false
}

// effect checks one effect, records it and passes it on.
func (p *member) effect(e *Effect) {
	switch e.Kind {
	case EffGrant:
		p.grant(e)
	case EffRevoke:
		p.revoke(e)
	case EffExtend:
		if !p.hasProof || e.Until > p.proven.Add(p.cfg.Member.TTL-p.cfg.Margin) {
			p.rules.fail("S8", "m%d trusts session %s until %v, later than its last proof at %v allows", p.idx, e.Session, showInstant(e.Until), showInstant(p.proven))
		}
		if p.holds() && p.until <= p.now {
			p.rules.fail("C8", "m%d revived leases whose trust had ended at %v", p.idx, showInstant(p.until))
		}
		if p.holds() && e.Until < p.until {
			p.rules.fail("S8", "m%d shortened its trust from %v to %v", p.idx, showInstant(p.until), showInstant(e.Until))
		}
		p.until = e.Until
		p.out.extended(p)
	case EffSettled:
		p.settled(e)
		p.out.event(p, e)
	case EffYield:
		p.yields(e)
	case EffResync:
		p.out.resync(p)
	case EffEvent:
		switch e.Event {
		case EventHalted:
			p.isHalted = true
		case EventPeerEvicted:
			i := slices.Index(p.buried, e.Peer.Session)
			if i < 0 {
				p.rules.fail("C9", "m%d says that it evicted %s, and no answer says so", p.idx, e.Peer.Session)
				break
			}
			p.buried = slices.Delete(p.buried, i, i+1)
		}
		p.out.event(p, e)
	case EffClose:
		for i := range p.runs {
			r := &p.runs[i]
			if r.active {
				p.rules.fail("S12", "m%d closed session %s while the handler of %s runs", p.idx, e.Session, r.fence.Shard)
			}
			if r.fence.Session == e.Session {
				r.burnt = max(r.burnt, r.fence.Token)
			}
		}
		p.out.ask(p, e)
	default:
		p.asks(e)
	}
}

func (p *member) asks(e *Effect) {
	c := asked{id: e.Call, kind: e.Kind, session: e.Session, sentAt: p.now, timeout: e.Timeout}
	if e.Timeout <= 0 {
		p.rules.fail("C4", "m%d made a call of kind %d without a time-out", p.idx, e.Kind)
	}
	switch e.Kind {
	case EffJoin:
		if p.store.joinedOnce(e.Session) || e.Session != e.Member.Session || p.m.Session() != "" {
			p.rules.fail("C3", "m%d joins as %s, an id that was used before", p.idx, e.Session)
		}
	case EffAcquire:
		for _, x := range e.Claims {
			c.shards = append(c.shards, x.Shard)
			if p.onCall(EffRelease, e.Session, x.Shard) {
				p.rules.fail("C1", "m%d claims %s while its own release of it is outstanding", p.idx, x.Shard)
			}
			r := &p.runs[p.shardIndex(x.Shard)]
			if driver.IsLock(x.Shard) && !p.want[p.shardIndex(x.Shard)] && x.Seen.Session == "" {
				p.rules.fail("C17", "m%d claims %s, which is free, and which it does not want", p.idx, x.Shard)
			}
			if r.held {
				p.rules.fail("C2", "m%d claims %s, which it holds", p.idx, x.Shard)
			}
			if p.barred != "" && !driver.IsLock(x.Shard) && (!r.gave || p.now > r.given.Add(giftTTLs*p.cfg.Member.TTL)) {
				p.rules.fail("C15", "m%d claims %s although it is not eligible, and did not give it away before", p.idx, x.Shard)
			}
		}
	case EffTransfer:
		for _, x := range e.Transfers {
			c.shards = append(c.shards, x.Fence.Shard)
			p.gives(x.Fence, x.To == e.Session)
			if r := &p.runs[p.shardIndex(x.Fence.Shard)]; r.fence == x.Fence {
				r.sentTo = x.To
			}
		}
	case EffRelease:
		for _, x := range e.Fences {
			c.shards = append(c.shards, x.Shard)
			p.gives(x, false)
		}
	case EffUpdate:
		p.says.Update = e.State.Update
		if !reflect.DeepEqual(e.State, p.public()) {
			p.rules.fail("C12", "m%d sends %+v although it was told to say %+v", p.idx, e.State, p.public())
		}
	case EffEvict:
		c.suspects = e.Suspects
		for _, x := range e.Suspects {
			p.evicts(x)
		}
	}
	p.calls = append(p.calls, c)
	most := 1
	switch e.Kind {
	case EffBeat:
		most = maxBeats + lapsedBeats
	case EffRead:
		most = lapsedReads + lapsedBeats
	}
	// Calls of a former session may still be outstanding. Their replies are ignored.
	n := 0
	for i := range p.calls {
		if p.calls[i].kind == e.Kind && p.calls[i].session == e.Session {
			n++
		}
	}
	if n > most {
		p.rules.fail(ruleOutstanding, "m%d has %d calls of kind %d outstanding", p.idx, n, e.Kind)
	}
	p.out.ask(p, e)
}

// gives checks a release, or a transfer to another member or to the process itself.
func (p *member) gives(f driver.Fence, toSelf bool) {
	r := &p.runs[p.shardIndex(f.Shard)]
	if r.held {
		p.rules.fail("S12", "m%d gives %s away while it holds token %d", p.idx, f.Shard, r.fence.Token)
	}
	if p.want[p.shardIndex(f.Shard)] && !toSelf && (r.fence != f || r.cause != CauseReturned) {
		r.gave, r.given = true, p.now
	}
	if r.active && !toSelf && p.cfg.AbandonAfter == 0 {
		p.rules.fail("S12", "m%d gives %s away while the handler of token %d runs", p.idx, f.Shard, r.fence.Token)
	}
	r.burnt = max(r.burnt, f.Token)
}

// evicts checks that the silence of a suspect was complete, and that this member's own heartbeats
// covered it without a gap until now (C5).
func (p *member) evicts(x driver.Suspect) {
	h := find(p.peers, x.Session)
	if h == nil || h.version != x.Version {
		p.rules.fail("C5", "m%d evicts %s at version %d, which it did not see", p.idx, x.Session, x.Version)
		return
	}
	if h.member.Meta[HostLockKey] != "" && p.former(x.Session) {
		return // its process has ended, and its record names the lock that it had: C14
	}
	ttl := h.member.TTL
	start, sent := h.at, Instant(-1)
	for _, s := range p.successes {
		if sent < 0 || s.at.Sub(sent) > ttl/2 {
			start = max(start, s.at)
		}
		sent = max(sent, s.sentAt)
	}
	if p.now < start.Add(ttl) || p.now.Sub(sent) > ttl/2 {
		p.rules.fail("C5", "m%d evicts %s, whose silence since %v is not covered by own heartbeats", p.idx, x.Session, showInstant(start))
	}
}

// public returns the state that the process publishes, with its lock.
func (p *member) public() driver.MemberState {
	st := p.shown()
	if p.cfg.HostLock != "" {
		if st.Meta == nil {
			st.Meta = map[string]string{}
		}
		st.Meta[HostLockKey] = p.cfg.HostLock
	}
	return st
}

// shown returns public without the lock.
func (p *member) shown() driver.MemberState {
	st := p.says
	if p.barred != "" {
		st.Meta = map[string]string{mark.IneligibleKey: p.barred}
	}
	return st
}

// yields checks that a shard that is given up without a request is held, and that some other member
// should have it (C15, C16).
func (p *member) yields(e *Effect) {
	sh := p.shardIndex(e.Fence.Shard)
	r := &p.runs[sh]
	if !r.held || r.fence != e.Fence || !p.want[sh] {
		p.rules.fail("C15", "m%d gives up %s token %d, which it does not hold, or does not want", p.idx, e.Fence.Shard, e.Fence.Token)
	}
	if !slices.ContainsFunc(p.peers, func(h heardPeer) bool { return p.precedes(&h, e.Cause) }) {
		p.rules.fail("C15", "m%d gives up %s as %v, and knows nobody who is to have it", p.idx, e.Fence.Shard, e.Cause)
	}
	p.out.yields(p, sh)
}

// precedes reports whether a peer should get the shards that this process holds, for the given
// cause.
func (p *member) precedes(h *heardPeer, cause Cause) bool {
	if h.member.Ineligible() != "" || h.member.Draining {
		return false
	}
	if p.barred != "" {
		return cause == CauseIneligible
	}
	return cause == CauseFailback && h.member.Priority > p.says.Priority && p.now >= h.since.Add(p.cfg.Failback)
}

// shunned reports whether no member took a shard that the process gave away, and the process now
// waits before it gives the shard away again.
func (p *member) shunned(sh int32) bool {
	g := p.m.gifts[sh]
	return g != nil && (g.n > 0 || p.m.now < g.at.Add(p.cfg.BackoffMax))
}

// former reports whether the session belonged to this process, or to an earlier process in its
// place.
func (p *member) former(id driver.SessionID) bool {
	var idx, inc, n int
	_, err := fmt.Sscanf(string(id), "m%d.%d.%d", &idx, &inc, &n)
	return err == nil && idx == p.idx && inc <= p.inc
}

func (p *member) grant(e *Effect) {
	sh := p.shardIndex(e.Fence.Shard)
	r := &p.runs[sh]
	switch {
	case r.held:
		p.rules.fail("S11", "m%d was granted %s twice without a revocation: tokens %d and %d", p.idx, e.Fence.Shard, r.fence.Token, e.Fence.Token)
	case r.active:
		p.rules.fail("S11", "m%d was granted %s while the handler of token %d runs", p.idx, e.Fence.Shard, r.fence.Token)
	case e.Until <= p.now || e.Fence.Session != p.m.Session():
		p.rules.fail("S5", "m%d was granted %s at or after the end of its trust, or under another session", p.idx, e.Fence.Shard)
	case p.isHalted || p.isLeft:
		p.rules.fail("S14", "m%d was granted %s although it left, or the store changed", p.idx, e.Fence.Shard)
	case r.open:
		p.rules.fail("W1", "m%d was granted %s before token %d was settled", p.idx, e.Fence.Shard, r.fence.Token)
	}
	if e.Fence.Token <= r.burnt || e.Fence.Token <= r.fence.Token {
		p.rules.fail("S6", "m%d was granted %s with token %d again: it was revoked, or given away", p.idx, e.Fence.Shard, e.Fence.Token)
	}
	if !p.hasProof || e.Until > p.proven.Add(p.cfg.Member.TTL-p.cfg.Margin) {
		p.rules.fail("S8", "m%d trusts %s until %v, later than its last proof at %v allows", p.idx, e.Fence.Shard, showInstant(e.Until), showInstant(p.proven))
	}
	s := &p.store.shards[sh]
	l := s.lease(e.Fence)
	if l == nil {
		p.rules.fail("S4", "m%d was granted %s with token %d, which the store did not grant", p.idx, e.Fence.Shard, e.Fence.Token)
		l = &grantedLease{}
	}
	if e.HeadKnown && e.Head != l.head {
		p.rules.fail("O1", "m%d was granted %s with token %d and head %+v; the lease found %+v", p.idx, e.Fence.Shard, e.Fence.Token, e.Head, l.head)
	}
	for i := range s.leases {
		if o := &s.leases[i]; o.claimed && o.fence.Token >= e.Fence.Token && !l.exempt {
			p.rules.fail("S2", "m%d was granted %s with token %d after token %d was", p.idx, e.Fence.Shard, e.Fence.Token, o.fence.Token)
		}
	}
	l.claimed = true
	if f := p.out.trusting(p, sh); f != nil && !l.exempt {
		if o := s.lease(*f); o == nil || !o.exempt {
			p.rules.fail("S1", "two processes trust %s: m%d token %d, and session %s token %d", e.Fence.Shard, p.idx, e.Fence.Token, f.Session, f.Token)
		}
	}
	*r = run{held: true, active: true, open: true, fence: e.Fence, burnt: r.burnt, number: e.Head.Number, known: e.HeadKnown, gave: r.gave, given: r.given}
	p.until = e.Until
	p.out.granted(p, sh)
}

// settled checks that a lease is reported as settled once, after its handler was joined, and that
// the outcome agrees with the store.
func (p *member) settled(e *Effect) {
	r := &p.runs[p.shardIndex(e.Fence.Shard)]
	if r.fence != e.Fence || r.held || r.active || !r.open {
		p.rules.fail("W1", "m%d: %s, which is held, or whose handler runs, or which was settled before", p.idx, showEffect(e))
	}
	r.open = false
	if r.gave {
		r.given = p.now
	}
	o, released := e.Owner, driver.Owner{Token: e.Fence.Token}
	valid := false
	switch e.Outcome {
	case OutcomeReleased:
		valid = o == released
	case OutcomeTransferred:
		valid = o.Token > e.Fence.Token && o.Session == r.sentTo
	case OutcomeUnknown:
		valid = o.Token > e.Fence.Token && (o.Session == "" || o.Session != r.sentTo)
	case OutcomeRefused:
		valid = e.Err != nil && r.sentTo != ""
	case OutcomeLost:
		valid = e.Cause != 0
	}
	if !valid {
		p.rules.fail("A5", "m%d: %s, which was sent to %q: the record is %s", p.idx, showEffect(e), r.sentTo, showOwner(o))
	}
	named := driver.Owner{Session: e.Fence.Session, Token: e.Fence.Token}
	if e.Outcome < OutcomeRefused && p.store.shard(e.Fence.Shard).owner == named {
		p.rules.fail("S4", "m%d: %s, which the store still names", p.idx, showEffect(e))
	}
}

func (p *member) revoke(e *Effect) {
	sh := p.shardIndex(e.Fence.Shard)
	r := &p.runs[sh]
	if !r.held || r.fence != e.Fence {
		p.rules.fail("S11", "m%d revoked %s token %d, which it does not hold", p.idx, e.Fence.Shard, e.Fence.Token)
	}
	r.held, r.cause = false, e.Cause
	r.burnt = max(r.burnt, e.Fence.Token)
	p.out.revoked(p, sh, e.Cause)
}

func (p *member) after(in *Input, lost, halts bool) {
	if (lost || halts || p.isHalted || p.isLeft) && p.holds() {
		p.rules.fail("M1", "m%d holds leases although its session is lost, or it left or halted", p.idx)
	}
	if halts && !p.isHalted {
		p.rules.fail("S14", "m%d goes on although the store changed", p.idx)
	}
	if p.holds() {
		if p.until <= p.now {
			p.rules.fail("C8", "m%d holds leases although trust ended at %v", p.idx, showInstant(p.until))
		}
		if p.m.WakeAt() > p.until {
			p.rules.fail("S9", "m%d wants to be woken at %v, after the end of trust at %v", p.idx, showInstant(p.m.WakeAt()), showInstant(p.until))
		}
		if !p.m.Trusted(p.now) {
			p.rules.fail("S9", "m%d holds leases and does not trust its session", p.idx)
		}
	}
	for i := range p.runs {
		r := &p.runs[i]
		if !r.open || r.active && !r.held {
			continue // it is settled, or will be once its handler was joined
		}
		o := p.m.shards[p.m.index[r.fence.Shard]].owner
		if o.Session != r.fence.Session || o.Token != r.fence.Token || o.Session != p.m.Session() {
			p.rules.fail("W1", "m%d did not settle %s: the record is %s", p.idx, showFence(r.fence), showOwner(o))
		}
	}
	switch in.Kind {
	case InFenced, InStalled:
		if r := &p.runs[p.shardIndex(in.Shard)]; r.held && r.fence.Token == in.Token {
			p.rules.fail("S9", "m%d holds %s token %d although it was fenced or stalled", p.idx, in.Shard, in.Token)
		}
	case InObserved:
		for _, s := range in.View.Shards {
			if r := &p.runs[p.shardIndex(s.Shard)]; r.held && s.Owner.Token > r.fence.Token {
				p.rules.fail("C11", "m%d holds %s token %d although it saw token %d", p.idx, s.Shard, r.fence.Token, s.Owner.Token)
			}
		}
	}
}

func (p *member) clone(out outside, store *modelStore) *member {
	c := *p
	c.out, c.store = out, store
	c.cfg.NewSession = c.newSession
	c.calls = append([]asked(nil), p.calls...)
	c.runs = append([]run(nil), p.runs...)
	c.want = append([]bool(nil), p.want...)
	c.peers = append([]heardPeer(nil), p.peers...)
	c.successes = append([]success(nil), p.successes...)
	c.m = p.m.clone()
	c.m.cfg.NewSession = c.newSession
	return &c
}
