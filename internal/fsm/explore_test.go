package fsm

import (
	"flag"
	"fmt"
	"hash/maphash"
	"strings"
	"testing"
	"time"

	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/proof/share"
)

var (
	exploreDepth  = flag.Int("explore-depth", 0, "how many steps deep the exploration goes; 0: as far as -explore-states allows")
	exploreStates = flag.Int("explore-states", 20_000, "how many states one exploration visits at most")
)

// A cosmos is one state of a small configuration: the machines, the store, the messages in flight,
// and the number of faults that are left. All clocks agree.
type cosmos struct {
	store   *modelStore
	procs   []*explored
	flight  []flying
	now     Instant
	budget  faultBudget
	history *step                        // the steps that led to this state
	log     func(p *member, text string) // nil: none
}

// A faultBudget limits the faults in an exploration, in addition to its length. A delay lets time
// pass to the next wake or time-out of some process although a message has not arrived. Without
// delays, the network is quick, and delivers in any order.
type faultBudget struct{ losses, delays, pauses, crashes, toggles, judgements int }

type explored struct {
	*member
	dead, paused bool
	late         bool   // it was paused, and has handled nothing since
	deaf, stuck  bool   // in scripts: it gets no replies; its handler does not return
	told         []bool // handlers that may return
	cursor       int64
	asked        Instant // when the Observe call in progress began
	view         *parcel // the answer on its way
}

// flying is a request to the store, or its reply.
type flying struct {
	pkt *packet
	rep *parcel
}

// A step is one choice, with the choices before it.
type step struct {
	before *step
	text   string
}

func (s *step) String() string {
	var lines []string
	for ; s != nil; s = s.before {
		lines = append(lines, s.text)
	}
	var b strings.Builder
	for i := len(lines) - 1; i >= 0; i-- {
		fmt.Fprintf(&b, "%3d %s\n", len(lines)-i, lines[i])
	}
	return b.String()
}

func newCosmos(members int, name driver.ShardID) *cosmos {
	c := &cosmos{store: newModelStore([]driver.ShardID{name})}
	for i := range members {
		cfg := Config{
			Member:   driver.Member{Node: fmt.Sprintf("n%d", i), TTL: 900 * time.Millisecond, MemberState: driver.MemberState{Priority: int32(members - i)}},
			Interval: 300 * time.Millisecond, Margin: 100 * time.Millisecond,
			DrainBudget: 300 * time.Millisecond, Resync: 2 * time.Second, CallTimeout: 900 * time.Millisecond,
			RankDelay: 20 * time.Millisecond, BackoffMin: 50 * time.Millisecond, BackoffMax: 400 * time.Millisecond,
			WatchAll: 16, WatchFew: 3, Seed: uint64(i + 1),
		}
		c.procs = append(c.procs, &explored{member: newMember(i, 1, cfg, c, c.store, newIgnored()), told: make([]bool, 1)})
	}
	return c
}

func (c *cosmos) lock() bool { return driver.IsLock(c.name()) }

func (c *cosmos) name() driver.ShardID { return c.store.shards[0].name }

func (c *cosmos) clone() *cosmos {
	n := *c
	n.store = c.store.clone()
	n.flight = append([]flying(nil), c.flight...)
	n.procs = make([]*explored, len(c.procs))
	for i, p := range c.procs {
		q := *p
		q.member = p.member.clone(&n, n.store)
		q.told = append([]bool(nil), p.told...)
		n.procs[i] = &q
	}
	return &n
}

// These methods implement outside for the members of an exploration.

func (c *cosmos) ask(p *member, e *Effect) {
	c.note(p, showEffect(e))
	pkt := &packet{proc: p.idx, kind: e.Kind, eff: *e}
	if e.Kind == EffJoin {
		pkt.label = c.store.label(e.Member.Node).rev
	}
	c.flight = append(c.flight, flying{pkt: pkt})
}

func (c *cosmos) resync(p *member) {
	q := c.procs[p.idx]
	q.cursor, q.view, q.asked = 0, nil, c.now
}

func (c *cosmos) granted(p *member, sh int) {
	c.note(p, fmt.Sprintf("grant %s until %s", showFence(p.runs[sh].fence), showInstant(p.until)))
	c.procs[p.idx].told[sh] = !p.want[sh]
}

func (c *cosmos) revoked(p *member, sh int, cause Cause) {
	c.note(p, fmt.Sprintf("revoke %s: %v", showFence(p.runs[sh].fence), cause))
	c.procs[p.idx].told[sh] = true
}

func (c *cosmos) yields(p *member, sh int) {
	c.note(p, "yield "+showFence(p.runs[sh].fence))
	c.procs[p.idx].told[sh] = true
}

func (c *cosmos) stepped(*member, *Config, *Input, []Effect) {}

func (c *cosmos) extended(p *member) { c.note(p, "extend until "+showInstant(p.until)) }

func (c *cosmos) event(p *member, e *Effect) { c.note(p, showEffect(e)) }

func (c *cosmos) note(p *member, text string) {
	if c.log != nil {
		c.log(p, text)
	}
}

func (c *cosmos) trusting(p *member, sh int) *driver.Fence {
	for _, q := range c.procs {
		if q.member != p && !q.dead && q.trusts(sh, c.now) {
			return &q.runs[sh].fence
		}
	}
	return nil
}

// next returns the earliest instant at which some process has something to do: a time-out or a
// wake.
func (c *cosmos) next() Instant {
	at := Never
	for _, p := range c.procs {
		if !p.dead && !p.paused {
			at = min(at, p.due())
		}
	}
	return at
}

func (p *explored) due() Instant {
	at := p.m.WakeAt()
	for i := range p.calls {
		at = min(at, p.calls[i].sentAt.Add(p.calls[i].timeout))
	}
	return at
}

func (c *cosmos) serve(pkt *packet) *parcel {
	w := world{store: c.store, rules: c.procs[0].rules, quiet: true}
	c.store.now, w.now = int64(c.now), int64(c.now)
	return w.exec(pkt)
}

// An action is one possible step of a state.
type action struct {
	name string
	who  int
	do   func(c *cosmos)
}

// actions lists the possible next steps, in a fixed order. Fair steps, which are not faults, come
// first. Due steps of a running process happen immediately.
func (c *cosmos) actions(faults bool) []action {
	var out []action
	add := func(who int, name string, do func(c *cosmos)) {
		out = append(out, action{name, who, do})
	}
	for i, p := range c.procs {
		if !p.dead && !p.paused && p.due() <= c.now {
			add(i, "wake", func(c *cosmos) { c.wake(i) })
			if !p.late { // otherwise, messages that arrived during the pause may be handled first
				return out
			}
		}
	}
	busy := false
	for i, f := range c.flight {
		switch p := c.procs[f.pkt.proc]; {
		case f.rep == nil:
			busy = true
			add(-1, "serve", func(c *cosmos) {
				f := c.take(i)
				if rep := c.serve(f.pkt); rep != nil && !c.procs[f.pkt.proc].dead {
					c.flight = append(c.flight, flying{f.pkt, rep})
				}
			})
		case !p.paused && !p.dead:
			busy = true
			add(p.idx, "reply", func(c *cosmos) {
				f := c.take(i)
				c.procs[f.pkt.proc].step(c.now, f.rep.in)
			})
		}
	}
	for i, p := range c.procs {
		if p.dead {
			continue
		}
		if p.view == nil && !p.deaf && c.store.observe(p.cursor, p.m.AppendWatch(nil)) != nil {
			busy = busy || !p.paused
			add(-1, "answer", func(c *cosmos) {
				p := c.procs[i]
				v := c.store.observe(p.cursor, p.m.AppendWatch(nil))
				p.view = &parcel{in: Input{Kind: InObserved, View: v, SentAt: p.asked}, cursor: c.store.rev}
			})
		}
		if p.paused {
			if faults {
				add(i, "resume", func(c *cosmos) { c.procs[i].paused, c.procs[i].late = false, true })
			}
			continue
		}
		if p.view != nil {
			busy = true
			add(i, "observe", func(c *cosmos) {
				p := c.procs[i]
				v := p.view
				p.view, p.cursor, p.asked = nil, v.cursor, c.now
				p.step(c.now, v.in)
			})
		}
		if p.told[0] && p.runs[0].active && !p.stuck {
			add(i, "drain", func(c *cosmos) {
				p := c.procs[i]
				p.told[0] = false
				p.step(c.now, Input{Kind: InDrained, Shard: c.name(), Token: p.runs[0].fence.Token})
			})
		}
	}
	if at := c.next(); at != Never && at > c.now && (!busy || faults && c.budget.delays > 0) {
		add(-1, "time", func(c *cosmos) {
			c.now = c.next()
			if busy {
				c.budget.delays--
			}
		})
	}
	if faults {
		c.faults(add)
	}
	return out
}

// wake handles what is due in one process: the oldest time-out or, if there is none, a wake.
func (c *cosmos) wake(i int) {
	p := c.procs[i]
	for k := range p.calls {
		if a := &p.calls[k]; a.sentAt.Add(a.timeout) <= c.now {
			p.step(c.now, Input{Kind: replyKind(a.kind), Call: a.id, Err: errTimeout})
			return
		}
	}
	p.step(c.now, Input{Kind: InWake})
}

// faults adds the steps that consume the budget.
func (c *cosmos) faults(add func(who int, name string, do func(c *cosmos))) {
	if c.budget.losses > 0 {
		for i := range c.flight {
			add(-1, "lose", func(c *cosmos) { c.budget.losses--; c.take(i) })
		}
	}
	for i, p := range c.procs {
		if p.dead || p.paused {
			continue
		}
		if c.budget.pauses > 0 {
			add(i, "pause", func(c *cosmos) { c.budget.pauses--; c.procs[i].paused = true })
		}
		if c.budget.crashes > 0 {
			add(i, "crash", func(c *cosmos) {
				c.budget.crashes--
				c.procs[i].dead, c.procs[i].view = true, nil
				keep := c.flight[:0]
				for _, f := range c.flight {
					if f.pkt.proc != i || f.rep == nil {
						keep = append(keep, f)
					}
				}
				c.flight = keep
			})
		}
		if c.budget.toggles > 0 {
			add(i, "toggle", func(c *cosmos) { c.budget.toggles--; c.toggle(i) })
		}
		if c.budget.judgements > 0 {
			add(i, "judge", func(c *cosmos) { c.budget.judgements--; c.judge(i) })
		}
	}
}

func (c *cosmos) toggle(i int) {
	p := c.procs[i]
	if !p.want[0] {
		p.step(c.now, Input{Kind: InWant, Shard: c.name()})
		return
	}
	p.told[0] = p.runs[0].active
	p.step(c.now, Input{Kind: InUnwant, Shard: c.name()})
}

func (c *cosmos) judge(i int) {
	p, why := c.procs[i], ""
	if p.barred == "" {
		why = "ill"
	}
	p.step(c.now, Input{Kind: InEligible, Reason: why})
}

func (c *cosmos) take(i int) flying {
	f := c.flight[i]
	c.flight = append(c.flight[:i], c.flight[i+1:]...)
	return f
}

func (c *cosmos) apply(a action) {
	c.history = &step{c.history, fmt.Sprintf("%v %s %d", time.Duration(c.now), a.name, a.who)}
	a.do(c)
	for i, p := range c.procs {
		p.late = p.late && (i != a.who || a.name == "resume")
		p.m.rng = 1 // the number of draws does not distinguish two states
	}
}

// settle lets every step that is not a fault happen, oldest first, for a while. It then checks that
// the shard has an owner if any member wants it (W1).
func (c *cosmos) settle(d time.Duration) {
	for _, p := range c.procs {
		p.paused = false
	}
	end := c.now.Add(d)
	for {
		all := c.actions(false)
		if len(all) == 0 || all[0].name == "time" && c.next() > end {
			break
		}
		all[0].do(c)
	}
	rules, record := c.procs[0].rules, c.store.shards[0].owner
	wanted, owned := false, false
	for _, p := range c.procs {
		if p.dead {
			continue
		}
		wanted = wanted || p.want[0] && p.barred == ""
		mine := record.Session != "" && record.Session == p.m.Session()
		owned = owned || mine
		switch {
		case mine && !p.want[0]:
			rules.fail("C2", "the record is %s, and m%d does not want it", showOwner(record), p.idx)
		case mine != (p.trusts(0, c.now) && p.runs[0].fence.Token == record.Token):
			rules.fail("C2", "the record is %s, and m%d holds token %d: %v", showOwner(record), p.idx, p.runs[0].fence.Token, p.runs[0].held)
		}
	}
	if c.lock() && record.Session != "" && !owned {
		rules.fail("C17", "the lock's record is %s, of a session that has ended", showOwner(record))
	}
	for _, p := range c.procs {
		if n := len(p.m.index); c.lock() && !p.dead && n > 0 && record == (driver.Owner{}) {
			rules.fail("C17", "m%d remembers a lock that nobody holds or wants", p.idx)
		}
	}
	if wanted && !owned {
		rules.fail("W1", "the shard is wanted and nobody owns it: its record is %s", showOwner(record))
	}
	c.judged(rules, record)
}

// judged checks, at a calm end, that no member keeps a shard that another member should have (C15,
// C16). A member may keep a shard that the other member was given and did not take.
func (c *cosmos) judged(rules ignored, record driver.Owner) {
	for _, p := range c.procs {
		if p.dead || record.Session == "" || record.Session != p.m.Session() || p.shunned(0) {
			continue
		}
		for _, q := range c.procs {
			if q.dead || !q.want[0] || q.barred != "" || q.m.Session() == "" {
				continue
			}
			if p.barred != "" || p.cfg.Failback > 0 && q.says.Priority > p.says.Priority {
				rules.fail("C15", "the record is %s, and m%d is to have it: m%d is %q", showOwner(record), q.idx, p.idx, p.barred)
			}
		}
	}
}

// explore visits the reachable states, breadth first, up to a number of states. It returns the
// number of states, and the depth to which all states were visited. At regular intervals, explore
// follows a state to a calm end.
func explore(from *cosmos, depth, most, settleEvery int) (states, complete int, settled int, v *violation, at *cosmos) {
	seed := maphash.MakeSeed()
	var d digest
	seen := map[uint64]struct{}{from.hash(&d, seed): {}}
	level := []*cosmos{from}
	defer func() {
		if r := recover(); r != nil {
			var ok bool
			if v, ok = r.(*violation); !ok {
				panic(fmt.Sprintf("%v, after\n%v", r, at.history))
			}
		}
	}()
	for complete = 0; len(level) > 0 && (depth == 0 || complete < depth); complete++ {
		var below []*cosmos
		for _, c := range level {
			for _, a := range c.actions(true) {
				n := c.clone()
				at = n
				n.apply(a)
				h := n.hash(&d, seed)
				if _, dup := seen[h]; dup {
					continue
				}
				if len(seen) >= most {
					return len(seen), complete, settled, nil, nil
				}
				seen[h] = struct{}{}
				if len(seen)%settleEvery == 0 {
					s := n.clone()
					at = s
					s.settle(12 * time.Second)
					settled++
				}
				below = append(below, n)
			}
		}
		level = below
	}
	return len(seen), complete, settled, nil, nil
}

// calm runs a configuration, without faults or choices, until a condition is true.
func (c *cosmos) calm(t *testing.T, until func() bool) {
	t.Helper()
	for range 10_000 {
		if until() {
			return
		}
		all := c.actions(false)
		if len(all) == 0 {
			break
		}
		c.apply(all[0])
	}
	t.Fatalf("the start of the exploration was not reached:\n%v", c.history)
}

// wanted returns a state in which every member wants the shard and none has joined.
func (c *cosmos) wanted(*testing.T) {
	for _, p := range c.procs {
		p.step(c.now, Input{Kind: InWant, Shard: c.name()})
	}
}

// held returns a state in which the first member holds the shard, the others are live, and nothing
// is in flight.
func (c *cosmos) held(t *testing.T) {
	c.wanted(t)
	c.calm(t, func() bool {
		ready := c.procs[0].holds() && len(c.flight) == 0
		for _, p := range c.procs {
			ready = ready && p.m.Session() != ""
		}
		return ready
	})
}

// beatReply continues until the reply to a heartbeat of the holder is on its way.
func (c *cosmos) beatReply(t *testing.T) int {
	found := -1
	c.calm(t, func() bool {
		for i, f := range c.flight {
			if f.pkt.proc == 0 && f.pkt.kind == EffBeat && f.rep != nil {
				found = i
			}
		}
		return found >= 0
	})
	return found
}

// ill returns a state in which the holder has just found out that it is not eligible.
func (c *cosmos) ill(t *testing.T) {
	c.held(t)
	c.judge(0)
}

// returned returns a state in which the member with the higher priority has just joined, while the
// other member holds the shard.
func (c *cosmos) returned(t *testing.T) {
	for _, p := range c.procs {
		p.cfg.Failback, p.m.cfg.Failback = 400*time.Millisecond, 400*time.Millisecond
	}
	p := c.procs[1]
	p.step(c.now, Input{Kind: InWant, Shard: c.name()})
	c.calm(t, func() bool { return p.holds() && len(c.flight) == 0 })
	c.procs[0].step(c.now, Input{Kind: InWant, Shard: c.name()})
	c.calm(t, func() bool { return c.procs[0].m.Session() != "" && len(c.flight) == 0 })
}

// stalled returns a state in which the holder was stopped while the reply to its heartbeat was in
// transit.
func (c *cosmos) stalled(t *testing.T) {
	c.held(t)
	c.beatReply(t)
	c.procs[0].paused = true
}

// stopped returns a state in which the holder has been stopped almost long enough to be evicted,
// after a slow reply to its last heartbeat. It may run again at any step.
func (c *cosmos) stopped(t *testing.T) {
	c.held(t)
	f := c.take(c.beatReply(t))
	c.calm(t, func() bool { return len(c.actions(false)) == 1 }) // only time can pass
	since := c.now
	c.now = since.Add(250 * time.Millisecond)
	c.procs[0].step(c.now, f.rep.in)
	c.procs[0].paused = true
	c.calm(t, func() bool { return c.now >= since.Add(850*time.Millisecond) })
}

// TestExplore visits every interleaving, advance of time, lost request and lost reply of small
// configurations, as deep as the limits allow. It prints the number of states at each depth, which
// determines how deep a limited run gets.
//
//	go test ./internal/fsm -run TestExplore -v -args -explore-states 500000
func TestExplore(t *testing.T) {
	t.Parallel()
	most := share.Of(t, "explore-states", *exploreStates, *exploreStates/10)
	for _, x := range []struct {
		name    string
		members int
		budget  faultBudget
		start   func(c *cosmos, t *testing.T)
		lock    bool
	}{
		{"join and claim", 2, faultBudget{losses: 2, delays: 1}, (*cosmos).wanted, false},
		{"holder and standby", 2, faultBudget{losses: 2, delays: 1, pauses: 1}, (*cosmos).held, false},
		{"holder dies", 2, faultBudget{losses: 1, crashes: 1}, (*cosmos).held, false},
		{"wanted and unwanted", 2, faultBudget{losses: 1, delays: 1, toggles: 3}, (*cosmos).held, false},
		{"holder stalls before a reply", 2, faultBudget{losses: 1}, (*cosmos).stalled, false},
		{"takeover from a stopped holder", 2, faultBudget{losses: 1, delays: 2}, (*cosmos).stopped, false},
		{"holder is not eligible", 2, faultBudget{losses: 1, judgements: 2}, (*cosmos).ill, false},
		{"eligibility and wishes", 2, faultBudget{delays: 1, toggles: 1, judgements: 3}, (*cosmos).held, false},
		{"failback", 2, faultBudget{losses: 1, crashes: 1, judgements: 1}, (*cosmos).returned, false},
		{"three, holder is not eligible", 3, faultBudget{crashes: 1, judgements: 2}, (*cosmos).ill, false},
		{"three join and claim", 3, faultBudget{losses: 1}, (*cosmos).wanted, false},
		{"three, holder dies", 3, faultBudget{losses: 1, crashes: 1}, (*cosmos).held, false},
		{"three, takeover from a stopped holder", 3, faultBudget{losses: 1, delays: 1}, (*cosmos).stopped, false},
		{"lock, join and claim", 2, faultBudget{losses: 2, delays: 1}, (*cosmos).wanted, true},
		{"lock and unlock", 2, faultBudget{losses: 1, delays: 1, toggles: 4}, (*cosmos).held, true},
		{"lock, holder dies", 2, faultBudget{losses: 1, crashes: 1, toggles: 2}, (*cosmos).held, true},
		{"lock, takeover from a stopped holder", 2, faultBudget{losses: 1, delays: 2, toggles: 1}, (*cosmos).stopped, true},
		{"three, lock and unlock", 3, faultBudget{losses: 1, toggles: 3}, (*cosmos).held, true},
	} {
		t.Run(x.name, func(t *testing.T) {
			t.Parallel()
			name := driver.ShardID("s")
			if x.lock {
				name = driver.LockPrefix + name
			}
			c := newCosmos(x.members, name)
			x.start(c, t)
			c.history, c.budget = nil, x.budget
			states, depth, settled, v, at := explore(c, *exploreDepth, most, 200)
			if v != nil {
				t.Fatalf("%v, after\n%v", v, at.history)
			}
			t.Logf("%d members: %d states, every one within %d steps, %d followed to a calm end", x.members, states, depth, settled)
			if depth < 4 {
				t.Errorf("complete to depth %d only, want at least 4", depth)
			}
		})
	}
}
