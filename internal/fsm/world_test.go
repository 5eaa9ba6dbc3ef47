package fsm

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/tenure-go/tenure/core/driver"
)

// A world has several members on one model store, in virtual time, with the network, the clocks and
// the handlers. Everything in a world follows from its seed.
type world struct {
	rng        *rand.Rand
	rules      ignored
	store      *modelStore
	now        int64 // real time, nanoseconds
	seq        uint64
	events     eventHeap
	procs      []*process
	blocked    []*packet // Observe calls that wait for a change
	plan       plan
	outages    []outage
	down       bool
	deadSilent bool // while the store is down, no call fails, and none is answered
	sluggish   bool // the store answers slowly
	quiet      bool
	trip       time.Duration // added to each call, half of it each way
	spikes     float64       // heartbeats whose replies take spike longer
	spike      time.Duration
	trace      *strings.Builder
	recorder   Recorder // or nil
	stats      worldStats
}

type outage struct{ from, to int64 }

type worldStats struct {
	grants, lapses, regained, stuck, pauses, crashes, cuts, prefs, dead, judgements, yields int

	calls [EffClose + 1]int // made by the machines, by kind
}

// A process is a member with a clock, a link to the store and handlers that run.
type process struct {
	*member
	node     string
	start    int64 // real time at which its clock began
	ppm      int64 // rate error of its clock, in parts per million
	up       bool
	paused   bool
	inbox    []event // while paused
	reqCut   bool
	repCut   bool
	deafFrom int64 // the start of the time without replies, if repCut
	slow     bool  // replies are slow
	observe  uint32
	cursor   int64
	full     bool // the call in progress is a full read, which is not interrupted
	again    bool // another full read must follow it
	wakeGen  uint32
	wakeSet  Instant
	spins    int
	spinAt   Instant
}

// local returns the time of the process's own clock.
func (q *process) local(now int64) Instant {
	d := now - q.start
	return Instant(d + d/1000*q.ppm/1000)
}

// real returns the earliest real time at which the process's clock shows t or later.
func (q *process) real(t Instant) int64 {
	d := int64(t)
	at := q.start + d - d/1000*q.ppm/1000
	for q.local(at) >= t {
		at -= 2000
	}
	for q.local(at) < t {
		at += 500
	}
	return at
}

// A packet is a request on its way to the store.
type packet struct {
	proc, inc int
	kind      EffectKind // or one of the kinds below
	eff       Effect
	label     int64 // join: revision of the label's record when the call began
	since     int64 // observe
	watch     []driver.Beat
	streams   bool // observe: continues after an answer
	gen       uint32
	sentAt    Instant
	shard     int // head, commit
	token     driver.Token
	write     *handlerWrite
}

// Requests of the runner that the machine does not make.
const (
	pktObserve EffectKind = 100 + iota
	pktHead
	pktCommit
)

// A parcel is the reply to a packet.
type parcel struct {
	in     Input
	cursor int64
	head   driver.Head
	commit driver.CommitResult
}

type eventKind uint8

const (
	evWake eventKind = iota
	evArrive
	evReply
	evTimeout // of a call of the machine
	evObserveAgain
	evObserveTimeout
	evWrite // a handler writes
	evWriteTimeout
	evDrained
	evResume
	evRestart
	evFault
	evHeal
	evInput // an input from the application
)

type event struct {
	at        int64
	seq       uint64
	kind      eventKind
	proc, inc int
	gen       uint32
	shard     int
	token     driver.Token
	call      CallID
	pkt       *packet
	rep       *parcel
	fn        func()
}

var (
	errTimeout = context.DeadlineExceeded
	errNetwork = errors.New("connection reset")
)

// eventHeap is a binary heap, ordered by instant and then by creation.
type eventHeap []event

func (h eventHeap) less(i, j int) bool {
	return h[i].at < h[j].at || h[i].at == h[j].at && h[i].seq < h[j].seq
}

func (h *eventHeap) push(e event) {
	*h = append(*h, e)
	q := *h
	for i := len(q) - 1; i > 0; {
		up := (i - 1) / 2
		if !q.less(i, up) {
			break
		}
		q[i], q[up] = q[up], q[i]
		i = up
	}
}

func (h *eventHeap) pop() event {
	q := *h
	top := q[0]
	n := len(q) - 1
	q[0] = q[n]
	q[n] = event{}
	q = q[:n]
	for i := 0; ; {
		c := 2*i + 1
		if c >= n {
			break
		}
		if c+1 < n && q.less(c+1, c) {
			c++
		}
		if !q.less(c, i) {
			break
		}
		q[i], q[c] = q[c], q[i]
		i = c
	}
	*h = q
	return top
}

func (w *world) tracef(format string, args ...any) {
	if w.trace != nil {
		fmt.Fprintf(w.trace, "%10.4f ", float64(w.now)/1e9)
		fmt.Fprintf(w.trace, format, args...)
		w.trace.WriteByte('\n')
	}
}

func (w *world) at(d time.Duration, e event) {
	e.at = w.now + int64(d)
	w.pushAt(e)
}

func (w *world) pushAt(e event) {
	w.seq++
	e.seq = w.seq
	w.events.push(e)
}

func (w *world) after(d time.Duration, fn func()) { w.at(d, event{kind: evFault, proc: -1, fn: fn}) }

func (w *world) chance(p float64) bool { return w.rng.Float64() < p }

func (w *world) between(a, b time.Duration) time.Duration {
	return a + time.Duration(w.rng.Int64N(int64(b-a)+1))
}

// run handles events until the given instant.
func (w *world) run(until int64) {
	for len(w.events) > 0 && w.events[0].at <= until {
		e := w.events.pop()
		w.now = e.at
		w.store.now = w.now
		w.handle(&e)
	}
	w.now = until
	w.store.now = until
}

func (w *world) handle(e *event) {
	if e.kind == evArrive {
		w.arrive(e.pkt)
		return
	}
	if e.proc < 0 {
		e.fn()
		return
	}
	q := w.procs[e.proc]
	if q.inc != e.inc || !q.up {
		return
	}
	if q.paused {
		q.inbox = append(q.inbox, *e)
		return
	}
	w.deliver(q, e)
}

func (w *world) deliver(q *process, e *event) {
	switch e.kind {
	case evWake:
		if e.gen == q.wakeGen {
			q.wakeSet = Never
			w.step(q, Input{Kind: InWake})
		}
	case evReply:
		w.reply(q, e)
	case evTimeout:
		if c := q.call(e.call); c != nil {
			w.step(q, Input{Kind: replyKind(c.kind), Call: e.call, Err: errTimeout})
		}
	case evObserveAgain:
		if e.gen == q.observe {
			w.observe(q)
		}
	case evObserveTimeout:
		if e.gen == q.observe {
			q.observe++
			q.full = false
			w.at(q.cfg.Member.TTL/12, event{kind: evObserveAgain, proc: q.idx, inc: q.inc, gen: q.observe})
		}
	case evWrite:
		if driver.IsLock(q.runs[e.shard].fence.Shard) && e.token%64 != 0 {
			return // nothing is committed under most locks
		}
		w.write(q, e.shard, e.token, false)
	case evWriteTimeout:
		w.writeAgain(q, e.shard, e.token, e.gen)
	case evDrained:
		if r := &q.runs[e.shard]; r.active && r.fence.Token == e.token {
			w.step(q, Input{Kind: InDrained, Shard: r.fence.Shard, Token: e.token})
		}
	case evInput:
		e.fn()
	}
}

func replyKind(k EffectKind) InputKind { return InJoined + InputKind(k-EffJoin) }

// step feeds the machine and schedules its next wake.
func (w *world) step(q *process, in Input) {
	now := q.local(w.now)
	if w.trace != nil {
		w.tracef("m%d %v <- %s", q.idx, time.Duration(now).Round(100*time.Microsecond), showInput(&in))
	}
	q.step(now, in)
	at := q.m.WakeAt()
	if at <= now {
		if q.spinAt != now {
			q.spins, q.spinAt = 0, now
		}
		if q.spins++; q.spins > 200 {
			w.rules.fail(ruleLivelock, "m%d wants to be woken at %v again and again", q.idx, showInstant(at))
		}
		at = now
	}
	if at == q.wakeSet {
		return
	}
	q.wakeSet = at
	q.wakeGen++
	if at != Never {
		w.pushAt(event{at: max(w.now, q.real(at)), kind: evWake, proc: q.idx, inc: q.inc, gen: q.wakeGen})
	}
}

// ask sends a call of the machine to the store.
func (w *world) ask(p *member, e *Effect) {
	q := w.procs[p.idx]
	if w.trace != nil {
		w.tracef("m%d   -> %s", p.idx, showEffect(e))
	}
	w.stats.calls[e.Kind]++
	pkt := &packet{proc: p.idx, inc: p.inc, kind: e.Kind, eff: *e}
	if e.Kind == EffJoin {
		pkt.label = w.store.label(e.Member.Node).rev
	}
	if e.Kind == EffBeat && !w.quiet && q.repCut && p.now >= q.local(q.deafFrom).Add(p.cfg.Member.TTL) {
		w.rules.fail("C6", "m%d sends heartbeats although it has heard nothing since %v", p.idx, showInstant(q.local(q.deafFrom)))
	}
	for _, x := range e.Suspects {
		w.judgeSuspicion(x)
	}
	if e.Kind != EffClose {
		at := q.real(p.now.Add(e.Timeout))
		w.pushAt(event{at: at, kind: evTimeout, proc: p.idx, inc: p.inc, call: e.Call})
		if !w.quiet && w.chance(w.plan.retry) {
			w.at(w.between(0, 2*time.Millisecond), event{kind: evReply, proc: p.idx, inc: p.inc, pkt: pkt,
				rep: &parcel{in: Input{Kind: replyKind(e.Kind), Call: e.Call, Err: driver.ErrRetry}}})
			return
		}
		if !w.quiet && w.chance(w.plan.reset) {
			w.at(w.between(0, 20*time.Millisecond), event{kind: evReply, proc: p.idx, inc: p.inc, pkt: pkt, rep: w.failure(pkt)})
		}
	}
	w.send(q, pkt)
}

// send puts a packet on the network, which may lose, delay or duplicate it.
func (w *world) send(q *process, pkt *packet) {
	n := 1
	if !w.quiet {
		if q.reqCut || w.chance(w.plan.loseRequest) {
			n = 0
		}
		if w.chance(w.plan.duplicate) {
			n++
		}
	}
	for range n {
		w.at(w.delay(false), event{kind: evArrive, pkt: pkt})
	}
}

func (w *world) arrive(pkt *packet) {
	q := w.procs[pkt.proc]
	if !w.quiet && q.inc == pkt.inc && q.reqCut {
		return
	}
	if w.down {
		if !w.deadSilent && w.chance(0.3) {
			w.sendBack(pkt, w.failure(pkt))
		}
		return
	}
	if pkt.kind == pktObserve {
		if q.inc != pkt.inc || q.observe != pkt.gen {
			return
		}
		if !w.answer(pkt) {
			w.blocked = append(w.blocked, pkt)
		}
		return
	}
	before := w.store.rev
	rep := w.exec(pkt)
	w.sendBack(pkt, rep)
	if w.store.rev != before {
		w.wakeObservers()
	}
}

// failure returns the reply for an unreachable store.
func (w *world) failure(pkt *packet) *parcel {
	switch pkt.kind {
	case pktObserve, pktHead:
		return nil
	case pktCommit:
		return &parcel{commit: driver.CommitResult{Err: errNetwork}}
	}
	return &parcel{in: Input{Kind: replyKind(pkt.kind), Call: pkt.eff.Call, Err: errNetwork}}
}

func (w *world) answer(pkt *packet) bool {
	v := w.store.observe(pkt.since, pkt.watch)
	if v == nil {
		return false
	}
	w.sendBack(pkt, &parcel{in: Input{Kind: InObserved, View: v, SentAt: pkt.sentAt}, cursor: w.store.rev})
	if pkt.streams {
		w.stream(pkt, v)
	}
	return true
}

// stream makes the store continue to report changes, without further requests, until the process
// makes another request.
func (w *world) stream(pkt *packet, v *driver.View) {
	next := *pkt
	next.since = w.store.rev
	next.watch = slices.Clone(pkt.watch)
	for i := range next.watch {
		for _, b := range v.Beats {
			if b.Session == next.watch[i].Session {
				next.watch[i].Version = b.Version
			}
		}
	}
	w.blocked = append(w.blocked, &next)
}

func (w *world) wakeObservers() {
	waiting := w.blocked
	w.blocked = nil
	for _, pkt := range waiting {
		if q := w.procs[pkt.proc]; q.inc == pkt.inc && q.observe == pkt.gen && !w.answer(pkt) {
			w.blocked = append(w.blocked, pkt)
		}
	}
}

func (w *world) exec(pkt *packet) *parcel {
	s, e := w.store, &pkt.eff
	in := Input{Kind: replyKind(pkt.kind), Call: e.Call}
	switch pkt.kind {
	case EffJoin:
		in.Err = s.join(e.Member, pkt.label)
	case EffBeat:
		in.Err = s.beat(e.Session)
	case EffAcquire:
		in.Results, in.Err = s.acquire(e.Session, e.Claims)
		w.blur(in.Results)
	case EffTransfer:
		in.Results, in.Err = s.transfer(e.Session, e.Transfers)
		w.blur(in.Results)
	case EffRelease:
		s.release(e.Fences)
	case EffEvict:
		for _, x := range e.Suspects {
			w.judgeEviction(x)
		}
		in.Evictions, in.Err = s.evict(e.Session, e.Suspects)
	case EffUpdate:
		in.Err = s.update(e.Session, e.State)
	case EffRead:
	case EffClose:
		s.remove(e.Session)
	case pktHead:
		return &parcel{head: s.shards[pkt.shard].head}
	case pktCommit:
		return &parcel{commit: s.commit(w.rules, pkt.write.write, pkt.write.id)}
	}
	return &parcel{in: in}
}

// blur makes the outcomes of some items of a batch unknown although the store decided them.
func (w *world) blur(results []driver.AcquireResult) {
	for i := range results {
		if !w.quiet && w.chance(w.plan.blur) {
			results[i] = driver.AcquireResult{Err: errNetwork}
		}
	}
}

// judgeEviction checks what really happened before an eviction: the record was silent for its
// member's TTL (M2), or the member's process has ended (C14).
func (w *world) judgeEviction(x driver.Suspect) {
	m := w.store.member(x.Session)
	if m == nil || m.version != x.Version {
		return
	}
	if m.Meta[HostLockKey] != "" && w.ended(x.Session) {
		return
	}
	slack := m.TTL / 250 // two clocks 1000 ppm apart, twice
	if silent := time.Duration(w.now - m.beatAt); silent < m.TTL-slack {
		w.rules.fail("M2", "session %s is evicted %v after its last heartbeat", x.Session, silent)
	}
}

// ended reports whether no process runs under the session.
func (w *world) ended(id driver.SessionID) bool {
	return !slices.ContainsFunc(w.procs, func(q *process) bool { return q.up && q.m.sess == id })
}

// judgeSuspicion checks a suspect when an eviction is sent. Since the last outage, the suspect must
// have had its entire TTL to send a heartbeat. The exception is a suspect that was silent for
// longer than half its TTL while the store was up before (C5).
func (w *world) judgeSuspicion(x driver.Suspect) {
	m := w.store.member(x.Session)
	if m == nil || m.version != x.Version {
		return // it will be refused
	}
	if m.Meta[HostLockKey] != "" && w.ended(x.Session) {
		return // C14
	}
	slack := m.TTL / 250
	for _, o := range w.outages {
		down, since := time.Duration(o.to-o.from), time.Duration(w.now-o.to)
		if down > m.TTL/2+slack && since < m.TTL-slack && m.beatAt > o.from-int64(m.TTL/2) {
			w.rules.fail(ruleOutage, "the eviction of session %s is sent %v after an outage of %v", x.Session, since, down)
		}
	}
}

func (w *world) sendBack(pkt *packet, rep *parcel) {
	if rep == nil {
		return
	}
	q := w.procs[pkt.proc]
	if q.inc != pkt.inc {
		return
	}
	if !w.quiet && (w.chance(w.plan.loseReply) || pkt.kind == EffJoin && w.chance(w.plan.loseJoin)) {
		return
	}
	w.at(w.delay(true)+w.lag(q, pkt.kind), event{kind: evReply, proc: pkt.proc, inc: pkt.inc, pkt: pkt, rep: rep})
}

// lag returns the delay that a slow link adds to a reply. It is about a third of the TTL and above
// the margin, so trust counted from the reply would last too long.
func (w *world) lag(q *process, kind EffectKind) time.Duration {
	ttl := q.cfg.Member.TTL
	switch {
	case w.quiet:
		if kind == EffBeat && w.chance(w.spikes) {
			return w.spike
		}
	case w.sluggish:
		return w.between(0, 1500*time.Millisecond)
	case q.slow:
		return w.between(ttl/5, ttl*9/20)
	case kind == EffJoin && w.chance(w.plan.slowJoin):
		return w.between(ttl/5, ttl*3/10)
	}
	return 0
}

func (w *world) delay(reply bool) time.Duration {
	if w.quiet {
		return w.trip/2 + w.between(200*time.Microsecond, 4*time.Millisecond)
	}
	x := w.rng.Float64()
	switch {
	case x < w.plan.late:
		return w.between(0, 3500*time.Millisecond)
	case reply && x < w.plan.late+w.plan.middling:
		return w.between(110*time.Millisecond, 420*time.Millisecond)
	}
	return w.between(200*time.Microsecond, 12*time.Millisecond)
}

func (w *world) reply(q *process, e *event) {
	if !w.quiet && q.repCut {
		return
	}
	pkt, rep := e.pkt, e.rep
	switch pkt.kind {
	case pktObserve:
		if pkt.gen != q.observe {
			return
		}
		if pkt.streams && !q.again {
			q.cursor, q.full = rep.cursor, false
			w.step(q, rep.in)
			if pkt.gen == q.observe && !sameSessions(pkt.watch, q.m.AppendWatch(nil)) {
				w.observe(q)
			}
			return
		}
		q.observe++
		q.cursor, q.full = rep.cursor, false
		if q.again {
			q.cursor, q.again = 0, false
		}
		w.step(q, rep.in)
		if pkt.gen+1 == q.observe {
			w.observe(q)
		}
	case pktHead:
		r := &q.runs[pkt.shard]
		if r.fence.Token == pkt.token && !r.known {
			r.number, r.known = rep.head.Number, true
		}
	case pktCommit:
		w.committed(q, pkt, rep.commit)
	default:
		w.step(q, rep.in)
		if pkt.kind == EffJoin && rep.in.Err == nil && !q.full {
			w.observe(q) // the call in progress requests no heartbeats
		}
	}
}

func (w *world) observe(q *process) {
	q.observe++
	q.full, q.again = q.cursor == 0, false
	pkt := &packet{proc: q.idx, inc: q.inc, kind: pktObserve, since: q.cursor, gen: q.observe, sentAt: q.local(w.now), streams: w.trip > 0}
	pkt.watch = q.m.AppendWatch(nil)
	if !pkt.streams && (q.cursor == 0 || w.chance(0.5)) { // a hanging stream may or may not be noticed
		w.at(q.cfg.CallTimeout, event{kind: evObserveTimeout, proc: q.idx, inc: q.inc, gen: q.observe})
	}
	w.send(q, pkt)
}

func (w *world) resync(p *member) {
	q := w.procs[p.idx]
	if q.full {
		q.again = true
		return
	}
	q.cursor = 0
	q.observe++
	// The call begins after the step, so it requests the heartbeats that are watched at that time.
	w.at(0, event{kind: evObserveAgain, proc: p.idx, inc: p.inc, gen: q.observe})
}

func (w *world) extended(*member) {}

func (w *world) event(p *member, e *Effect) {
	if w.trace != nil {
		w.tracef("m%d   -> %s", p.idx, showEffect(e))
	}
	switch e.Event {
	case EventLapsed:
		w.stats.lapses++
	case EventRegained:
		w.stats.regained++
	case EventPeerDead:
		w.stats.dead++
	}
}

func sameSessions(a, b []driver.Beat) bool {
	return slices.EqualFunc(a, b, func(x, y driver.Beat) bool { return x.Session == y.Session })
}

func (w *world) trusting(p *member, sh int) *driver.Fence {
	for _, q := range w.procs {
		if q.member != p && q.up && q.trusts(sh, q.local(w.now)) {
			return &q.runs[sh].fence
		}
	}
	return nil
}
