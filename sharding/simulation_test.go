package sharding_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/fsm"
	"github.com/tenure-go/tenure/sharding"
)

// The simulation runs many members and shards over virtual time: the lease machines of
// internal/fsm, one per member, over a model store, with the assigner of this package, while
// members crash, leave and join. It measures what a plan costs over a day: shards moved
// against the least possible, time without an owner, calls to the store.
//
// The machines, the planner, the assigners and the heirs are the real ones. What the Manager
// does around them is done in its simplest form: a plan reaches every member one delay after
// it was written, and handlers take a fixed time to drain. The store answers every call;
// faults of the network are for the simulation of internal/fsm. Full reads of the namespace
// are rare (Config.Resync), because a hundred machines would spend the day on them.

// Config is what is simulated. Zero values have defaults.
type Config struct {
	Members, Shards int           // defaults 100 and 10,000
	Time            time.Duration // virtual; default 24 h
	Churn           float64       // share of the members that go per hour, half of them by crashing; default 0.05
	Seed            uint64        // default 1
	TTL             time.Duration // default 30 s
	Interval        time.Duration // between plans; default 1 s
	Drain           time.Duration // that a handler takes to return; default 50 ms
	Delay           time.Duration // of the network, one way; default 1 ms
	Resync          time.Duration // default 6 h
	Assigner        sharding.Assigner
}

// Gaps are times for which shards had no owner.
type Gaps struct {
	Count            int
	Median, P99, Max time.Duration
}

// Result is what came of it.
type Result struct {
	Config
	Crashes, Leaves, Joins int
	Plans                  int
	Moves, Bound           int  // changes of owner, and the least that the changes of members ask for
	Crash, Planned         Gaps // of takeovers after a crash, and of planned moves
	Calls                  map[string]int
	PerMemberMinute        float64 // store calls, all kinds
	Forgotten              []string
	Uneven                 int // largest share less smallest, at the end
	Took                   time.Duration
}

const none = -1

// member is one process.
type member struct {
	m       *fsm.Machine
	node    string
	id      core.SessionID // in the store
	up      bool
	leaving bool
	cursor  int  // in the store's changes
	full    bool // has had the full state
	looking bool // an observation is on its way
	wakeAt  fsm.Instant
	held    map[int32]core.Token
	watch   []driver.Beat

	watching []core.SessionID // whose heartbeats wake it
}

// change is an entry of the store's history: a shard, or a member that came or
// went.
type change struct {
	shard  int32
	member *driver.Member
	gone   core.SessionID
	free   []int32 // what it owned
}

type record struct {
	driver.Member
	version driver.Version
}

type kind uint8

const (
	wake kind = iota
	arrive
	reply
	look
	drained
	again // wants shards that it gave away
	plan
	carry
	churn
	start
	forget
)

type event struct {
	at     int64
	seq    uint64
	kind   kind
	m      *member
	eff    *fsm.Effect
	in     *fsm.Input
	shards []int32
	token  core.Token
}

type world struct {
	c       *Config
	rng     *rand.Rand
	now     int64
	seq     uint64
	events  []event
	members []*member
	byID    map[core.SessionID]*member
	names   []core.ShardID // the assigner's shard is the last
	index   map[core.ShardID]int32

	rev      int64
	owners   []driver.Owner
	records  map[core.SessionID]*record
	watchers map[core.SessionID][]*member
	changes  []change

	planner  *sharding.Simulated
	planned  int // changes seen by the last plan
	restless bool
	boss     *member
	sessions int
	nodes    int

	freeAt  []int64
	crashed []bool
	last    []core.SessionID // owner before
	gaps    [2][]time.Duration
	r       *Result
}

// complete fills in the defaults, and refuses what cannot be simulated.
func (c *Config) complete() error {
	for _, d := range []struct {
		v   *time.Duration
		def time.Duration
	}{{&c.Time, 24 * time.Hour}, {&c.TTL, 30 * time.Second}, {&c.Interval, time.Second}, {&c.Drain, 50 * time.Millisecond},
		{&c.Delay, time.Millisecond}, {&c.Resync, 6 * time.Hour}} {
		if *d.v == 0 {
			*d.v = d.def
		}
		if *d.v < 0 {
			return fmt.Errorf("tenure: %w: a time of the simulation is negative", core.ErrInvalid)
		}
	}
	if c.Members == 0 {
		c.Members = 100
	}
	if c.Shards == 0 {
		c.Shards = 10_000
	}
	if c.Churn == 0 {
		c.Churn = 0.05
	}
	if c.Seed == 0 {
		c.Seed = 1
	}
	if c.Assigner == nil {
		c.Assigner = sharding.Minimal{}
	}
	if c.Members < 2 || c.Members > 10_000 || c.Shards < 1 || c.Shards > 1<<20 || c.Churn < 0 {
		return fmt.Errorf("tenure: %w: simulate 2 to 10,000 members, 1 to 1,048,576 shards and no negative churn", core.ErrInvalid)
	}
	return nil
}

// Simulate runs one world to its end. The same Config gives the same Result, but
// for Took.
func Simulate(c Config) (*Result, error) {
	began := time.Now()
	if err := c.complete(); err != nil {
		return nil, err
	}
	specs := []string{fmt.Sprintf("shard-%07d..%d", 0, c.Shards-1)}
	names, err := sharding.Expand(specs...)
	if err != nil {
		return nil, err
	}
	w := &world{
		c: &c, rng: rand.New(rand.NewPCG(c.Seed, 8)), byID: map[core.SessionID]*member{}, index: map[core.ShardID]int32{},
		records: map[core.SessionID]*record{}, watchers: map[core.SessionID][]*member{},
		r: &Result{Config: c, Calls: map[string]int{}},
	}
	for i, n := range append(names, sharding.AssignerShard) {
		w.names = append(w.names, core.ShardID(n))
		w.index[core.ShardID(n)] = int32(i)
	}
	n := len(w.names)
	w.owners, w.freeAt, w.crashed, w.last = make([]driver.Owner, n), make([]int64, n), make([]bool, n), make([]core.SessionID, n)
	for i := range w.freeAt {
		w.freeAt[i] = none
	}
	if w.planner, err = sharding.NewSimulated(c.Assigner, specs, 2*c.Interval); err != nil {
		return nil, err
	}
	for i := range c.Members {
		w.after(time.Duration(i)*time.Millisecond, event{kind: start})
	}
	// The first hour is for settling; then churn, and an hour without at the end.
	settle := min(time.Hour, c.Time/10)
	w.after(settle, event{kind: churn})
	var calm map[string]int
	end := int64(c.Time)
	for len(w.events) > 0 && w.events[0].at <= end {
		e := w.pop()
		w.now = e.at
		if e.kind == churn {
			if calm == nil {
				calm = map[string]int{}
				for k, v := range w.r.Calls {
					calm[k] = v
				}
				w.r.Moves, w.gaps = 0, [2][]time.Duration{}
			}
			if w.now < end-int64(settle) {
				w.strike()
			}
			continue
		}
		w.do(&e)
	}
	return w.result(calm, settle, began), nil
}

func (w *world) do(e *event) {
	m := e.m
	if m != nil && !m.up && e.kind != arrive {
		return
	}
	switch e.kind {
	case start:
		w.start()
	case wake:
		if m.wakeAt == fsm.Instant(e.at) {
			m.wakeAt = fsm.Never
			w.step(m, fsm.Input{Kind: fsm.InWake})
		}
	case arrive:
		w.arrive(m, e.eff)
	case reply:
		w.step(m, *e.in)
	case look:
		m.looking = false
		w.look(m)
	case drained:
		for _, s := range e.shards {
			token, held := m.held[s]
			if e.token != 0 {
				token = e.token
			} else if !held {
				continue
			}
			if held && token == m.held[s] {
				delete(m.held, s)
				w.freeAt[s], w.crashed[s] = w.now, false
			}
			w.step(m, fsm.Input{Kind: fsm.InDrained, Shard: w.names[s], Token: token})
		}
		if m.leaving && len(m.held) == 0 {
			w.step(m, fsm.Input{Kind: fsm.InUnwant, Shard: sharding.AssignerShard})
			w.after(time.Second, event{kind: forget, m: m})
		}
	case forget: // a moment later, when what was in flight has arrived
		if len(m.held) > 0 {
			return
		}
		w.step(m, fsm.Input{Kind: fsm.InLeave})
		m.up = false
		w.drop(m)
	case again:
		if !m.leaving {
			var names []core.ShardID
			for _, s := range e.shards {
				names = append(names, w.names[s])
			}
			w.step(m, fsm.Input{Kind: fsm.InWant, Shards: names})
		}
	case plan:
		if w.boss != m {
			return
		}
		w.plan()
		w.after(w.c.Interval, event{kind: plan, m: m})
	case carry:
		w.carry(e.shards)
	case churn:
	}
}

// start begins a new process on a new machine.
func (w *world) start() {
	w.nodes++
	m := &member{node: fmt.Sprintf("node-%d", w.nodes), up: true, held: map[int32]core.Token{}, wakeAt: fsm.Never}
	ttl := w.c.TTL
	m.m = fsm.New(fsm.Config{
		Member: driver.Member{Node: m.node, TTL: ttl, MemberState: driver.MemberState{Weight: 1}},
		NewSession: func() driver.SessionID {
			w.sessions++
			m.id = core.SessionID(fmt.Sprintf("%016x", uint64(w.sessions)*0x9e3779b97f4a7c15))
			return m.id
		},
		Interval: ttl / 3, Jitter: 0.1, Margin: ttl / 10, DrainBudget: 10 * time.Second, Resync: w.c.Resync,
		CallTimeout: ttl, RankDelay: 10 * time.Millisecond, BackoffMin: ttl / 20, BackoffMax: 30 * time.Second,
		WatchAll: 16, WatchFew: 3, Seed: w.rng.Uint64(),
	})
	w.members = append(w.members, m)
	w.step(m, fsm.Input{Kind: fsm.InWant, Shards: w.names})
	w.glance(m)
}

// strike ends a member, by a crash or in order, and plans its replacement and the
// next strike.
func (w *world) strike() {
	var live []*member
	for _, m := range w.members {
		if m.up && !m.leaving && m.full {
			live = append(live, m)
		}
	}
	mean := float64(time.Hour) / (w.c.Churn * float64(w.c.Members))
	w.after(time.Duration(mean*w.rng.ExpFloat64()), event{kind: churn})
	if len(live) < 2 {
		return
	}
	m := live[w.rng.IntN(len(live))]
	w.r.Bound += len(m.held) - w.assigners(m)
	w.after(2*w.c.TTL+time.Duration(w.rng.Int64N(int64(w.c.TTL))), event{kind: start})
	w.r.Joins++
	w.r.Bound += w.c.Shards / len(live) // what the replacement gets
	if w.rng.IntN(2) == 0 {
		w.r.Crashes++
		m.up = false
		for s := range m.held {
			w.freeAt[s], w.crashed[s] = w.now, true
		}
		if w.boss == m {
			w.boss = nil
		}
		w.drop(m)
		return
	}
	w.r.Leaves++
	m.leaving = true
	var idle []core.ShardID
	for s, n := range w.names {
		if _, held := m.held[int32(s)]; !held {
			idle = append(idle, n)
		}
	}
	w.step(m, fsm.Input{Kind: fsm.InUnwant, Shards: idle})
	if s := w.index[sharding.AssignerShard]; w.assigners(m) > 0 {
		w.unwant(m, "", []int32{s})
	}
	w.step(m, fsm.Input{Kind: fsm.InUpdate, State: driver.MemberState{Weight: 1, Draining: true}})
}

// assigners is 1 if the member is the assigner.
func (w *world) assigners(m *member) int {
	if _, ok := m.held[w.index[sharding.AssignerShard]]; ok {
		return 1
	}
	return 0
}

func (w *world) drop(m *member) {
	w.members = slices.DeleteFunc(w.members, func(x *member) bool { return x == m })
	w.rewatch(m)
}

// step steps a machine and does what it says.
func (w *world) step(m *member, in fsm.Input) {
	for _, e := range m.m.Step(fsm.Instant(w.now), in) {
		switch e.Kind {
		case fsm.EffJoin, fsm.EffBeat, fsm.EffAcquire, fsm.EffTransfer, fsm.EffRelease, fsm.EffEvict, fsm.EffUpdate, fsm.EffRead, fsm.EffClose:
			w.after(w.c.Delay, event{kind: arrive, m: m, eff: &e})
		case fsm.EffResync:
			m.full = false
			w.glance(m)
		case fsm.EffGrant:
			w.granted(m, &e)
		case fsm.EffRevoke:
			s := w.index[e.Fence.Shard]
			if w.boss == m && e.Fence.Shard == sharding.AssignerShard {
				w.boss = nil
			}
			if e.Cause != fsm.CauseReleased && e.Cause != fsm.CauseReturned {
				w.after(w.c.Drain, event{kind: drained, m: m, shards: []int32{s}, token: e.Fence.Token})
			}
		case fsm.EffExtend, fsm.EffEvent:
		default: // this model settles no commits, and its members do not yield
		}
	}
	if at := m.m.WakeAt(); at < m.wakeAt && m.up {
		m.wakeAt = max(at, fsm.Instant(w.now))
		w.push(event{at: int64(m.wakeAt), kind: wake, m: m})
	}
}

func (w *world) granted(m *member, e *fsm.Effect) {
	s := w.index[e.Fence.Shard]
	m.held[s] = e.Fence.Token
	if e.Fence.Shard == sharding.AssignerShard {
		w.boss = m
		w.planner.Restart()
		w.after(0, event{kind: plan, m: m})
		return
	}
	if at := w.freeAt[s]; at >= 0 {
		kind := 1
		if w.crashed[s] {
			kind = 0
		}
		w.gaps[kind] = append(w.gaps[kind], time.Duration(w.now-at))
	}
	w.freeAt[s] = none
	if w.last[s] != m.id {
		w.r.Moves++
		w.last[s] = m.id
	}
}

// plan is what the assigner does once an interval.
func (w *world) plan() {
	if w.planned == len(w.changes) && !w.restless {
		return
	}
	w.planned = len(w.changes)
	v := &core.View{}
	nodes := map[core.SessionID]string{}
	for _, m := range w.members {
		if r := w.records[m.id]; r != nil && m.full {
			v.Members = append(v.Members, r.Member)
		}
	}
	for id, r := range w.records {
		nodes[id] = r.Node
		if w.byID[id] == nil || !w.byID[id].up { // dead, and not evicted yet
			v.Members = append(v.Members, r.Member)
		}
	}
	for s := range w.c.Shards {
		o := w.owners[s]
		v.Shards = append(v.Shards, core.Ownership{Shard: string(w.names[s]), Session: o.Session, Token: o.Token, Node: nodes[o.Session]})
	}
	moved, planned, again := w.planner.Next(time.Duration(w.now), v)
	w.restless = again
	if !planned {
		return
	}
	w.r.Plans++
	w.call("commit", 1)
	w.after(2*w.c.Delay, event{kind: carry, shards: moved})
}

// carry has the holders hand over what is assigned to others.
func (w *world) carry(shards []int32) {
	type to struct {
		from *member
		id   core.SessionID
	}
	groups := map[to][]int32{}
	var order []to
	for _, s := range shards {
		m, id := w.byID[w.owners[s].Session], w.planner.Owner(s)
		if m == nil || !m.up || id == "" || id == m.id {
			continue
		}
		if _, held := m.held[s]; held {
			k := to{m, id}
			if groups[k] == nil {
				order = append(order, k)
			}
			groups[k] = append(groups[k], s)
		}
	}
	for _, k := range order {
		w.unwant(k.from, k.id, groups[k])
	}
}

func (w *world) unwant(m *member, to core.SessionID, shards []int32) {
	names := make([]core.ShardID, len(shards))
	for i, s := range shards {
		names[i] = w.names[s]
	}
	w.step(m, fsm.Input{Kind: fsm.InUnwant, Shards: names, To: to})
	w.after(w.c.Drain, event{kind: drained, m: m, shards: shards})
}

func (w *world) result(calm map[string]int, settle time.Duration, began time.Time) *Result {
	r := w.r
	lo, hi := w.c.Shards, 0
	members := 0
	for _, m := range w.members {
		if m.up && !m.leaving && m.full {
			n := len(m.held) - w.assigners(m)
			lo, hi = min(lo, n), max(hi, n)
			members++
		}
	}
	r.Uneven = hi - lo
	for s := range w.c.Shards {
		if m := w.byID[w.owners[s].Session]; m == nil || !m.up || m.held[int32(s)] != w.owners[s].Token {
			r.Forgotten = append(r.Forgotten, string(w.names[s]))
		}
	}
	total := 0
	for k := range r.Calls {
		r.Calls[k] -= calm[k]
		total += r.Calls[k]
	}
	r.PerMemberMinute = float64(total) / (w.c.Time - settle).Minutes() / float64(max(members, 1))
	r.Crash, r.Planned = gapsOf(w.gaps[0]), gapsOf(w.gaps[1])
	r.Took = time.Since(began)
	return r
}

func gapsOf(all []time.Duration) Gaps {
	if len(all) == 0 {
		return Gaps{}
	}
	slices.Sort(all)
	return Gaps{Count: len(all), Median: all[len(all)/2], P99: all[len(all)*99/100], Max: all[len(all)-1]}
}

// String is the result for people.
func (r *Result) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d members, %d shards, %v of virtual time, %.0f%% of the members an hour go (seed %d)\n", r.Members, r.Shards, r.Time, 100*r.Churn, r.Seed)
	fmt.Fprintf(&b, "  %d crashes, %d leaves in order, %d joins, %d plans\n", r.Crashes, r.Leaves, r.Joins, r.Plans)
	fmt.Fprintf(&b, "  %d shards moved; the least possible is %d (%.3f times)\n", r.Moves, r.Bound, float64(r.Moves)/float64(max(r.Bound, 1)))
	fmt.Fprintf(&b, "  without an owner after a crash: median %v, p99 %v, at most %v (TTL %v)\n", short(r.Crash.Median), short(r.Crash.P99), short(r.Crash.Max), r.TTL)
	fmt.Fprintf(&b, "  without an owner in planned moves: median %v, p99 %v, at most %v\n", short(r.Planned.Median), short(r.Planned.P99), short(r.Planned.Max))
	fmt.Fprintf(&b, "  %.2f store calls per member and minute:", r.PerMemberMinute)
	var kinds []string
	for k := range r.Calls {
		kinds = append(kinds, k)
	}
	slices.Sort(kinds)
	for _, k := range kinds {
		fmt.Fprintf(&b, " %s %d", k, r.Calls[k])
	}
	fmt.Fprintf(&b, "\n  at the end: %d shards forgotten, shares differ by %d (took %v)\n", len(r.Forgotten), r.Uneven, r.Took.Round(10*time.Millisecond))
	return b.String()
}

func short(d time.Duration) time.Duration { return d.Round(time.Millisecond) }

// Err says what does not hold; nil if all does.
func (r *Result) Err() error {
	var errs []error
	if n := len(r.Forgotten); n > 0 {
		errs = append(errs, fmt.Errorf("%d shards are forgotten, %s the first of them", n, r.Forgotten[0]))
	}
	if r.Uneven > 1 {
		errs = append(errs, fmt.Errorf("shares differ by %d at the end", r.Uneven))
	}
	return errors.Join(errs...)
}
