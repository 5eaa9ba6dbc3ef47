package fsm

import (
	"errors"
	"time"

	"github.com/tenure-go/tenure/core/driver"
)

// These constants limit outstanding calls. The intervals between the first manyBeats heartbeats may
// be as short as a twelfth of the smallest watched TTL. The other heartbeats, up to maxBeats, are a
// twelfth of the member's own TTL apart. The limit therefore always allows another heartbeat (C10).
// After a lapse, at most lapsedBeats heartbeats and lapsedReads reads are outstanding, each for
// half a TTL (C6).
const (
	manyBeats   = 12
	maxBeats    = 24
	lapsedBeats = 3
	lapsedReads = 6
)

type phase uint8

const (
	idle    phase = iota // never joined, because no shard was wanted yet
	joining              // a join is outstanding
	waiting              // backing off before the next join
	live                 // joined; trusted unless lapsed
	left                 // gave up the session permanently
	halted               // the store changed (I1)
)

// A callKind identifies a kind of batch. One call of each kind may be outstanding.
type callKind uint8

const (
	noCall callKind = iota
	acquire
	transfer
	release
	evict
	update
	enter // a join
	callKinds
)

// Each item adds itemTime to the time-out of its batch, which has at most maxItems items. Leases
// start batch by batch as the replies arrive. Each batch has a time-out that is long enough for its
// items.
const (
	itemTime = 2 * time.Millisecond
	maxItems = 4096
)

type call struct {
	id       CallID  // 0 if no call is outstanding
	until    Instant // when the newest call times out
	failed   uint8   // consecutive calls without an answer, up to 8
	shards   []int32
	tokens   []driver.Token // the released tokens, one per shard
	suspects []driver.Suspect
	number   driver.UpdateNo
}

// A beat is an outstanding heartbeat, or a read after a lapse.
type beat struct {
	call   CallID
	sentAt Instant
	other  bool // a heartbeat: the read sent with it was answered; a read: the heartbeat sent with it failed
	long   bool // a read that may take all of CallTimeout
}

// Machine is one member's side of the lease protocol. A Machine is a pure state machine without
// I/O, clock or goroutine, and is not safe for concurrent use.
type Machine struct {
	cfg  Config
	rng  rng
	now  Instant
	out  []Effect
	last CallID

	phase    phase
	sess     driver.SessionID // the session under which it has joined or is joining, or empty
	former   driver.SessionID // the session that was lost or left last
	joinCall CallID
	joinSent Instant
	joinAt   Instant // end of the back-off
	joins    int     // consecutive failed attempts to join
	closing  CallID

	until    Instant // end of trust: send instant of the best heartbeat + TTL - margin
	lapsed   bool    // live, but not trusted since lapsedAt
	lapsedAt Instant
	reads    []beat  // reads outstanding since the lapse
	readAt   Instant // when to send the next read
	heardAt  Instant // when the newest answered read was requested; C6
	answered Instant // when that answer arrived
	beats    []beat  // outstanding heartbeats
	beatAt   Instant // when to send the next heartbeat
	beatSent Instant // when the last heartbeat was sent
	beatErr  error   // error of the last heartbeat that failed since a success
	deaf     int     // heartbeats since the lapse whose outcome is unknown; C6
	deafAt   Instant // when the last of those heartbeats was sent
	quietTo  Instant // no heartbeat is sent before this instant
	okSentAt Instant // the latest send instant among the successes; C5
	slow     Instant // the longest recent duration of a heartbeat

	stored    driver.UpdateNo // the newest state of this session in the store
	updateAt  Instant         // when to send the next update
	updateErr error           // error of the last update that failed since a success
	updates   int             // consecutive failed updates

	viewed   bool // the full state was seen
	resyncAt Instant

	peers   []*peer // sorted by session
	alive   map[driver.SessionID]*peer
	watched []*peer
	minTTL  Instant // smallest TTL watched, or 0
	wideTo  Instant // until this instant all members are watched, because most watched members fell silent

	// buried holds the suspects of unanswered evictions, including evictions sent under an earlier
	// session. It is used only to report the evictor.
	buried map[CallID][]driver.Member

	shards []shard
	unused []int32      // places in shards of locks that were forgotten
	forgot driver.Token // the largest token of forgotten locks: tokens up to this one may be burnt (C1)
	index  map[driver.ShardID]int32
	queue  queue // shards that need a step, by due instant
	wants  int
	calls  [callKinds]call
	batch  [callKinds][]int32 // decided on in this step
	kept   [callKinds][]int32 // waiting for the call of that kind to end

	yieldAt Instant         // when to look next for members that should get held shards: C15, C16
	gifts   map[int32]*gift // shards that were given to such members
}

// New returns a machine that has not joined. The machine joins when it first wants a shard.
func New(cfg Config) *Machine {
	return &Machine{
		cfg: cfg, rng: rng(cfg.Seed),
		heardAt: -1,
		alive:   make(map[driver.SessionID]*peer),
		buried:  make(map[CallID][]driver.Member),
		index:   make(map[driver.ShardID]int32),
		gifts:   make(map[int32]*gift),
	}
}

// Config returns the machine's current configuration.
func (m *Machine) Config() Config { return m.cfg }

// keptEffects is the maximum capacity of an effects slice that Step keeps for the next Step.
const keptEffects = 1024

// Step applies one input at the given instant, and returns the effects to carry out, in order.
// Instants never decrease. The returned slice is valid until the next Step.
func (m *Machine) Step(now Instant, in Input) []Effect {
	late := now.Sub(m.WakeAt())
	m.now = max(m.now, now)
	clear(m.out)
	if m.out = m.out[:0]; cap(m.out) > keptEffects {
		m.out = nil
	}
	m.lapse(late) // before the input is looked at: C8
	m.apply(&in)
	m.advance()
	return m.out
}

func (m *Machine) apply(in *Input) {
	switch in.Kind {
	case InWake:
	case InWant:
		if in.Shard != "" {
			m.want(in.Shard, in.Wait)
		}
		m.expect(len(in.Shards))
		for _, s := range in.Shards {
			m.want(s, in.Wait)
		}
	case InUnwant:
		if in.Shard != "" {
			m.unwant(in.Shard, in.To)
		}
		for _, s := range in.Shards {
			m.unwant(s, in.To)
		}
	case InDrained:
		m.drained(in.Shard, in.Token)
	case InStalled:
		m.endLease(in.Shard, in.Token, CauseStalled)
	case InFenced:
		m.endLease(in.Shard, in.Token, CauseFenced)
		if in.Owner != (driver.Owner{}) {
			m.learn(m.shard(in.Shard), in.Owner)
		}
	case InObserved:
		m.observed(in.View, in.SentAt)
	case InJoined:
		m.joined(in.Call, in.Err)
	case InBeaten:
		m.beaten(in.Call, in.Err)
	case InAcquired:
		m.acquired(in)
	case InTransferred:
		m.transferred(in)
	case InReleased:
		m.released(in)
	case InEvicted:
		m.evicted(in)
	case InUpdated:
		m.updated(in.Call, in.Err)
	case InRead:
		m.read(in.Call, in.Err)
	case InClosed:
		m.closed(in.Call, in.Err)
	case InLeave:
		m.leave()
	case InStoreChanged:
		if m.phase != left && m.phase != halted {
			m.halt(in.Err)
		}
	case InPrefer:
		for k, s := range in.Shards[:min(len(in.Shards), len(in.Heirs))] {
			m.prefer(s, in.Heirs[k])
		}
	case InUpdate:
		m.update(in.State)
	case InEligible:
		m.setEligible(in.Reason)
	}
}

// advance does all work that is due now.
func (m *Machine) advance() {
	switch m.phase {
	case idle, waiting:
		if m.wants > 0 && m.now >= m.joinAt {
			m.join()
		}
	case live:
		m.watchSilence()
		if m.mayRead() && m.now >= m.readAt {
			m.sendRead(true)
		}
		if m.now >= m.beatAt && m.mayBeat() {
			m.sendBeat()
		}
		if m.mayUpdate() && m.now >= m.updateAt {
			m.sendUpdate()
		}
		if m.now >= m.resyncAt {
			m.resync()
		}
		if m.now >= m.yieldAt {
			m.lookForSuccessors()
		}
		for more := true; more; more = m.again() {
			for len(m.queue) > 0 && m.shards[m.queue[0]].due <= m.now {
				i := m.queue[0]
				m.schedule(i, Never)
				m.settle(i)
			}
			m.send()
		}
	default: // nothing is due before the join has ended, or ever again
	}
}

// WakeAt returns when the machine needs its next Step if no input arrives earlier, or Never.
func (m *Machine) WakeAt() Instant {
	switch m.phase {
	case idle, waiting:
		if m.wants > 0 {
			return m.joinAt
		}
	case live:
		at := min(m.resyncAt, m.yieldAt)
		if !m.lapsed {
			at = min(at, m.until)
		}
		if m.mayRead() {
			at = min(at, m.readAt)
		}
		if m.mayBeat() {
			at = min(at, m.beatAt)
		}
		if m.mayUpdate() {
			at = min(at, m.updateAt)
		}
		if len(m.queue) > 0 {
			at = min(at, m.shards[m.queue[0]].due)
		}
		return min(at, m.nextSilence())
	default: // as in advance
	}
	return Never
}

// Session returns the session under which the machine has joined, or the empty session if the
// machine has not joined.
func (m *Machine) Session() driver.SessionID {
	if m.phase != live {
		return ""
	}
	return m.sess
}

// Trusted reports whether the session is trusted at the given instant.
func (m *Machine) Trusted(now Instant) bool {
	return m.phase == live && !m.lapsed && now < m.until
}

// Settled reports whether no handler runs, no record contains this session, and no call for a
// shard is in flight. A settled machine loses nothing when it leaves. Settled checks every shard.
func (m *Machine) Settled() bool {
	for i := range m.shards {
		s := &m.shards[i]
		if s.flight != noCall || s.lease() != none || m.mine(s) {
			return false
		}
	}
	return true
}

// AppendMembers appends the members that are known to be alive: this member first, then the others,
// sorted by session.
func (m *Machine) AppendMembers(b []driver.Member) []driver.Member {
	if m.phase == live {
		self := m.cfg.Member
		self.Session, self.MemberState = m.sess, m.shown()
		b = append(b, self)
	}
	for _, p := range m.peers {
		b = append(b, p.member)
	}
	return b
}

// Preferred reports whether an assigner chose the members that claim the shard first. If so, only
// the assigner decides which member owns the shard.
func (m *Machine) Preferred(name driver.ShardID) bool {
	i, ok := m.index[name]
	return ok && !driver.IsLock(name) && m.shards[i].heirs != Heirs{}
}

// Owner returns the newest known record of a shard if the session in it is alive, and otherwise the
// zero Owner.
func (m *Machine) Owner(name driver.ShardID) driver.Owner {
	i, ok := m.index[name]
	if !ok || m.free(&m.shards[i]) {
		return driver.Owner{}
	}
	return m.shards[i].owner
}

// AppendShards appends the newest known record of every shard that this member has seen or wants.
func (m *Machine) AppendShards(b []driver.ShardState) []driver.ShardState {
	for i := range m.shards {
		if s := &m.shards[i]; s.name != "" {
			b = append(b, driver.ShardState{Shard: s.name, Owner: s.owner})
		}
	}
	return b
}

// fatal handles errors that end more than one call, and reports whether err is such an error.
func (m *Machine) fatal(err error) bool {
	switch {
	case err == nil:
		return false
	case errors.Is(err, driver.ErrStoreChanged):
		m.halt(err)
	case errors.Is(err, driver.ErrSessionLost):
		m.lost(err)
	default:
		return false
	}
	return true
}

// ended counts consecutive unanswered calls of one kind. A call is unanswered if its outcome is
// unknown or it timed out. If a call times out while the backend is still connecting, the backend
// reports the call as not applied.
func (c *call) ended(err error, now Instant) {
	if err == nil || !driver.Unknown(err) && now < c.until {
		c.failed = 0
		return
	}
	c.failed = min(c.failed+1, 8)
}

// callTimeout returns the time-out of a call with n items that begins now. On a store that answers,
// the time-out is shorter than the TTL, so that a hanging server does not delay a takeover. After
// failed calls of this kind, the time-out is up to CallTimeout.
func (m *Machine) callTimeout(k callKind, n int) time.Duration {
	c := &m.calls[k]
	d := m.cfg.Member.TTL/2 + time.Duration(n)*itemTime
	d = min(d<<c.failed, m.cfg.CallTimeout)
	c.until = m.now.Add(d)
	return d
}

func (m *Machine) event(e Event, err error) {
	m.emit(Effect{Kind: EffEvent, Event: e, Session: m.sess, Err: err})
}

func (m *Machine) emit(e Effect) { m.out = append(m.out, e) }

func (m *Machine) newCall() CallID {
	m.last++
	return m.last
}
