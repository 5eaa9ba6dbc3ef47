package fsm

import (
	"math/rand/v2"
	"time"

	"github.com/tenure-go/tenure/core/driver"
)

// A plan describes the faults of one run: the probability per packet of each fault, and how often
// each kind of fault begins.
type plan struct {
	loseRequest, loseReply, duplicate float64
	late                              float64 // packets that take up to 3.5 s
	middling                          float64 // replies that take about a third of the TTL
	slowJoin                          float64 // joins whose reply takes about a quarter of the TTL
	loseJoin                          float64 // joins whose reply is lost
	retry                             float64 // calls refused immediately, certainly not applied
	reset                             float64 // calls whose connection breaks immediately, applied or not
	onGrant                           float64 // grants after which the holder is immediately cut off or stopped
	blur                              float64 // items of a batch whose outcome is not reported
	zombie                            float64 // handlers that write after a revocation, unchecked
	stuck                             float64 // handlers that far outlive the drain budget
	writeEvery                        time.Duration
	faultEvery                        time.Duration
	faults                            []fault
	total                             int
}

type fault struct {
	weight int
	begin  func(w *world)
}

func newPlan(rng *rand.Rand) plan {
	pick := func(xs ...float64) float64 { return xs[rng.IntN(len(xs))] }
	p := plan{
		loseRequest: pick(0, 0.02, 0.08, 0.08, 0.08), loseReply: pick(0, 0.02, 0.08, 0.08, 0.08),
		duplicate: pick(0, 0.05, 0.05), late: pick(0, 0.01, 0.05, 0.1), middling: pick(0, 0.1, 0.3, 0.5),
		slowJoin: pick(0, 0.5, 0.5), loseJoin: pick(0, 0.4),
		retry: pick(0, 0, 0.03), reset: pick(0, 0, 0.05), onGrant: pick(0, 0.15, 0.5), blur: pick(0, 0.05), zombie: pick(0.1, 0.5), stuck: pick(0.02, 0.1),
		writeEvery: time.Duration(pick(0.1, 0.4) * float64(time.Second)),
		faultEvery: time.Duration(pick(0.25, 0.4, 0.8, 2) * float64(time.Second)),
	}
	for _, f := range []fault{
		{12, (*world).pauseOne},
		{8, (*world).crashOne},
		{12, (*world).cutOne},
		{10, (*world).slowThenGone},
		{4, (*world).outage},
		{20, (*world).toggle},
		{3, (*world).preempt},
		{1, (*world).evictByOperator},
		{4, (*world).handlerReturns},
		{2, (*world).handlerStalls},
		{2, (*world).leaveAndReturn},
	} {
		f.weight *= rng.IntN(3) // each kind absent in a third of the runs
		p.faults = append(p.faults, f)
		p.total += f.weight
	}
	return p
}

// chaos begins one fault and plans the next.
func (w *world) chaos() {
	if w.quiet {
		return
	}
	w.after(w.between(w.plan.faultEvery/4, 7*w.plan.faultEvery/4), w.chaos)
	if w.plan.total == 0 {
		return
	}
	x := w.rng.IntN(w.plan.total)
	for _, f := range w.plan.faults {
		if x < f.weight {
			f.begin(w)
			return
		}
		x -= f.weight
	}
}

func (w *world) anyone() *process { return w.procs[w.rng.IntN(len(w.procs))] }

func (w *world) anyShard() int { return w.rng.IntN(len(w.store.shards)) }

// pauseOne stops a process, as SIGSTOP or a suspended machine does.
func (w *world) pauseOne() { w.pause(w.anyone(), w.between(30*time.Millisecond, 3*time.Second)) }

func (w *world) pause(q *process, d time.Duration) {
	if !q.up || q.paused {
		return
	}
	w.tracef("m%d paused for %v", q.idx, d)
	w.stats.pauses++
	q.paused = true
	w.after(d, func() { w.resume(q) })
}

// resume lets a process handle, in any order, the messages that arrived while it was stopped.
func (w *world) resume(q *process) {
	if !q.up || !q.paused {
		return
	}
	w.tracef("m%d resumed", q.idx)
	q.paused = false
	inbox := q.inbox
	q.inbox = nil
	w.rng.Shuffle(len(inbox), func(i, j int) { inbox[i], inbox[j] = inbox[j], inbox[i] })
	for i := range inbox {
		w.deliver(q, &inbox[i])
	}
}

// afterGrant injects a fault into a process at the worst moment.
func (w *world) afterGrant(q *process) {
	idx := q.idx
	w.after(w.between(0, 20*time.Millisecond), func() {
		q := w.procs[idx]
		d := w.between(q.cfg.Member.TTL, 4*q.cfg.Member.TTL)
		switch {
		case w.quiet:
		case w.chance(0.7):
			w.cut(q, 0, d)
		default:
			w.pause(q, d)
		}
	})
}

func (w *world) crashOne() {
	q := w.anyone()
	if !q.up {
		return
	}
	w.tracef("m%d crashed", q.idx)
	w.stats.crashes++
	w.restart(q, w.between(time.Millisecond, 3*time.Second), w.chance(0.3))
}

// restart ends a process and starts a new one after a while. The new process represents another
// machine under the same node label, which may supersede the former session.
func (w *world) restart(q *process, after time.Duration, supersede bool) {
	q.up, q.paused, q.inbox = false, false, nil
	next := *q
	w.after(after, func() {
		if w.procs[q.idx] == q {
			w.start(&next, supersede)
		}
	})
}

// start replaces q with its successor.
func (w *world) start(q *process, supersede bool) {
	cfg := q.cfg
	cfg.Member.Supersede = supersede && w.alone(q)
	cfg.Seed = w.rng.Uint64()
	n := &process{member: newMember(q.idx, q.inc+1, cfg, w, w.store, w.rules), node: q.node,
		start: w.now, ppm: q.ppm, up: true, reqCut: q.reqCut, repCut: q.repCut, deafFrom: w.now, slow: q.slow, wakeSet: Never}
	w.procs[q.idx] = n
	w.tracef("m%d starts", q.idx)
	w.observe(n)
	for sh, want := range q.want {
		if want {
			w.step(n, Input{Kind: InWant, Shard: w.store.shards[sh].name})
		}
	}
}

// alone reports whether no other process has the node label of q. Only then may the process
// supersede.
func (w *world) alone(q *process) bool {
	for _, o := range w.procs {
		if o.idx != q.idx && o.node == q.node {
			return false
		}
	}
	return true
}

func (w *world) cutOne() {
	w.cut(w.anyone(), w.rng.IntN(4), w.between(200*time.Millisecond, 5*time.Second))
}

func (w *world) cut(q *process, which int, d time.Duration) {
	if q.reqCut || q.repCut {
		return
	}
	w.stats.cuts++
	q.reqCut = which != 1
	q.repCut = which != 0
	q.deafFrom = w.now
	w.tracef("m%d cut: requests %v, replies %v, for %v", q.idx, q.reqCut, q.repCut, d)
	idx := q.idx
	w.after(d, func() {
		q := w.procs[idx]
		q.reqCut, q.repCut = false, false
		w.tracef("m%d not cut any more", idx)
	})
}

// slowThenGone makes replies arrive slowly, and then lets nothing arrive. This case is why trust is
// measured from when a heartbeat was sent.
func (w *world) slowThenGone() {
	q := w.anyone()
	if q.slow {
		return
	}
	q.slow = true
	idx := q.idx
	w.after(w.between(500*time.Millisecond, 3*time.Second), func() {
		q := w.procs[idx]
		q.slow = false
		switch {
		case w.quiet:
		case w.chance(0.7):
			w.cut(q, 0, w.between(q.cfg.Member.TTL, 4*q.cfg.Member.TTL))
		default:
			w.pause(q, w.between(q.cfg.Member.TTL, 3*q.cfg.Member.TTL))
		}
	})
}

// outage makes the store unreachable for all processes, immediately or after a period of slow
// answers. Some slow answers arrive after the store has become unreachable.
func (w *world) outage() {
	if w.sluggish {
		return
	}
	w.sluggish = true
	warning := w.between(100*time.Millisecond, time.Second)
	longest := 10 * time.Second
	switch {
	case w.chance(0.4):
		warning = 0
	case w.chance(0.7):
		longest = time.Second
	}
	w.after(warning, func() { w.goDown(w.between(100*time.Millisecond, longest)) })
}

func (w *world) goDown(d time.Duration) {
	w.sluggish = false
	if w.down || w.quiet {
		return
	}
	w.tracef("outage for %v", d)
	w.down = true
	w.outages = append(w.outages, outage{w.now, w.now + int64(d)})
	if w.chance(0.5) {
		w.blocked = w.blocked[:0]
	}
	w.after(d, w.restore)
}

func (w *world) restore() {
	if w.down {
		w.tracef("outage over")
		w.down = false
		w.outages[len(w.outages)-1].to = w.now
	}
}

// input gives a running process an input from its application.
func (w *world) input(q *process, d time.Duration, fn func()) {
	w.at(d, event{kind: evInput, proc: q.idx, inc: q.inc, fn: fn})
}

// toggle makes a process want a shard, or no longer want it. The process may change its mind
// immediately.
func (w *world) toggle() {
	q, sh := w.anyone(), w.anyShard()
	n := 1 + w.rng.IntN(3)
	d := time.Duration(0)
	for range n {
		w.input(q, d, func() { w.flip(q, sh) })
		d += w.between(time.Millisecond, 400*time.Millisecond)
	}
}

func (w *world) flip(q *process, sh int) {
	name := w.store.shards[sh].name
	if q.isLeft {
		return
	}
	if !q.want[sh] {
		w.step(q, Input{Kind: InWant, Shard: name})
		return
	}
	w.unwant(q, sh)
}

func (w *world) unwant(q *process, sh int) {
	in := Input{Kind: InUnwant, Shard: w.store.shards[sh].name}
	if w.chance(0.4) && len(w.store.ids) > 0 {
		in.To = w.store.ids[w.rng.IntN(len(w.store.ids))]
		if n := len(w.store.members); n > 0 && w.chance(0.8) {
			in.To = w.store.members[w.rng.IntN(n)].Session
		}
	}
	w.step(q, in)
	w.tell(q, sh)
}

// preempt acts as an operator who moves a shard to a live session.
func (w *world) preempt() {
	if len(w.store.members) == 0 || w.down {
		return
	}
	to := w.store.members[w.rng.IntN(len(w.store.members))].Session
	sh := &w.store.shards[w.anyShard()]
	if sh.owner.Session == to {
		return
	}
	w.tracef("operator gives %s to %s", sh.name, to)
	if _, err := w.store.acquire(to, []driver.Claim{{Shard: sh.name, Seen: sh.owner, Preempt: true}}); err != nil {
		panic(err)
	}
	w.wakeObservers()
}

// evictByOperator ends a live session. As with a superseded session, the exclusion of its leases is
// no longer guaranteed.
func (w *world) evictByOperator() {
	if len(w.store.members) == 0 || w.down {
		return
	}
	id := w.store.members[w.rng.IntN(len(w.store.members))].Session
	w.tracef("operator evicts %s", id)
	w.store.exempt(id)
	w.store.remove(id)
	w.wakeObservers()
}

func (w *world) handlerReturns() {
	q, sh := w.anyone(), w.anyShard()
	if r := &q.runs[sh]; r.active && !r.told {
		r.told = true
		w.at(0, event{kind: evDrained, proc: q.idx, inc: q.inc, shard: sh, token: r.fence.Token})
	}
}

func (w *world) handlerStalls() {
	q, sh := w.anyone(), w.anyShard()
	fence := q.runs[sh].fence
	w.input(q, 0, func() {
		if r := &q.runs[sh]; r.active && r.fence == fence {
			w.step(q, Input{Kind: InStalled, Shard: fence.Shard, Token: fence.Token})
		}
	})
}

// leaveAndReturn stops a process in an orderly way and starts it again.
func (w *world) leaveAndReturn() {
	q := w.anyone()
	w.input(q, 0, func() {
		w.step(q, Input{Kind: InLeave})
		w.restart(q, w.between(time.Millisecond, time.Second), w.chance(0.3))
	})
}

// calm ends all faults. Stopped processes continue, and dead processes may be restarted.
func (w *world) calm() {
	w.quiet = true
	w.tracef("faults end")
	w.restore()
	for _, q := range w.procs {
		q.reqCut, q.repCut, q.slow = false, false, false
	}
	for i := range w.procs {
		w.resume(w.procs[i])
	}
	for i, q := range w.procs {
		if !q.up {
			if i > 0 && w.chance(0.3) {
				q.want = make([]bool, len(q.want)) // stays dead
				w.procs[i] = &process{member: q.member, node: q.node}
				continue
			}
			w.start(q, false)
		}
	}
}
