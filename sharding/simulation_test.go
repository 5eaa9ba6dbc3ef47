package sharding_test

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/fsm"
	"github.com/tenure-go/tenure/sharding"
	"github.com/tenure-go/tenure/sharding/assign"
)

// The simulation runs many members and the shards of a keyspace in virtual time. Each member has a
// lease machine of internal/fsm. The machines use a model store and the assigner of this package.
// Members crash, leave and join. With Config.Keys, the keys have a load that drifts, ranges are
// split and merged according to the load, and processes are killed between the steps. With
// Config.Poison, some keys kill every member that serves them. The simulation always checks which
// member serves each hash. It measures the cost of plans: the shards and the load that move, the
// time without an owner, and the calls to the store.
//
// The simulation uses the real machines, planner, form of the log, assigners, heirs, tables,
// reports, notes and quarantine. Simple models replace the Manager and its slices: a plan reaches
// every member one delay after it was written, and handlers take a fixed time to drain. The store
// answers every call; network faults are part of the simulation of internal/fsm. Full reads of the
// namespace are rare (Config.Resync), because a hundred machines would otherwise spend most of the
// time on these reads.

// Config is the configuration of a simulation. Zero values have defaults.
type Config struct {
	Members, Shards int           // defaults 100 and 10,000
	Time            time.Duration // virtual; default 24 h
	Churn           float64       // part of the members that leave per hour, half of them by a crash; default 0.05
	Seed            uint64        // default 1
	TTL             time.Duration // default 30 s
	Interval        time.Duration // between plans; default 1 s
	Drain           time.Duration // how long a handler takes to return; default 50 ms
	Delay           time.Duration // of the network, one way; default 1 ms
	Resync          time.Duration // default 6 h
	Assigner        assign.Assigner

	Keys       int                 // number of keys with load; default 0: no range is split
	Zipf       float64             // default 1.1
	Swap       time.Duration       // after which a hot key turns cold, and a cold one hot; default 20 min
	Blow       float64             // part of the splits and merges during which a process is killed at some step, at most one within a minute
	Poison     time.Duration       // after which another key kills the members that serve it; default 0: no key does
	Quarantine sharding.Quarantine // default: as in sharding.Options with Keys, none without
}

// Gaps describes the times in which shards had no owner.
type Gaps struct {
	Count            int
	Median, P99, Max time.Duration
}

// Result is the result of a simulation.
type Result struct {
	Config
	Crashes, Leaves, Joins int
	Plans                  int
	Moves, Bound           int  // changes of owner, and the least number of these that the changes of members require
	Crash, Planned         Gaps // of takeovers after a crash, and of planned moves
	Calls                  map[string]int
	PerMemberMinute        float64 // store calls, all kinds
	Forgotten              []string
	Uneven                 int // largest share less smallest, at the end
	Took                   time.Duration

	Wrong  []string // the first promises that did not hold
	Faults int      // number of promises that did not hold

	// With load:
	Splits, Merges int
	Ranges         [2]int // fewest and most
	Divided        Gaps   // of hashes that were given to another shard
	Blows          map[string]int
	Swaps          int     // of a hot key and a cold one
	Relief         int     // moves that balance the members
	Minute, Urgent float64 // parts of all load: the most that moved in a minute, and in a minute with an urgent plan
	Moved          float64 // part of all load that was moved to balance the members
	Calm           int     // minutes
	Worst, Raw     float64 // highest load of a member in a calm minute, as a multiple of its goal and of its share
	Packed         int     // calm minutes of a member above its goal, none of whose shards fits elsewhere

	Poisoned, Killed, Held, Innocent int // numbers of poisoned keys, killed members, quarantines, and quarantines of shards without such a key
	Back                             Gaps
}

const none = -1

type member struct {
	m       *fsm.Machine
	node    string
	id      core.SessionID // in the store
	up      bool
	leaving bool
	cursor  int  // in the store's changes
	full    bool // has received the full state
	looking bool // an Observe call is in progress
	wakeAt  fsm.Instant
	held    map[int32]core.Token
	wants   []bool // by shard: whether the member contends for the shard
	slices  map[int32]*slice
	watch   []driver.Beat

	watching []core.SessionID // whose heartbeats wake the member
	capacity float64
	teller   sharding.Teller
}

func (m *member) contends(s int32) bool { return int(s) < len(m.wants) && m.wants[s] }

func (m *member) setWants(s int32, on bool) {
	for int(s) >= len(m.wants) {
		m.wants = append(m.wants, false)
	}
	m.wants[s] = on
}

// change is an entry of the store's history: a shard, or a member that joined or left.
type change struct {
	shard  int32
	member *driver.Member
	gone   core.SessionID
	free   []int32 // what the member owned
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
	then
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
	run    func()
}

type world struct {
	c       *Config
	rng     *rand.Rand
	now     int64
	seq     uint64
	events  []event
	members []*member
	byID    map[core.SessionID]*member
	names   []core.ShardID // of all shards that ever existed; the assigner's shard is the first
	index   map[core.ShardID]int32
	order   []int32 // the planned ones by name

	rev      int64
	owners   []driver.Owner
	notes    []sharding.Note
	reports  map[core.SessionID][]byte
	heard    map[core.SessionID]*byte // the first byte of what the assigner read last
	records  map[core.SessionID]*record
	watchers map[core.SessionID][]*member
	changes  []change

	planner  *sharding.Simulated
	planned  int // changes seen by the last plan
	restless bool
	boss     *member
	sessions int
	nodes    int

	counting bool // the time to settle is over
	serving  coverage
	last     []core.SessionID // owner before
	gaps     [causes][]time.Duration
	load     *load
	blows    blows
	poison   poison
	r        *Result
}

// bossShard is the index of the assigner's shard.
const bossShard = 0

func (c *Config) complete() error {
	for _, d := range []struct {
		v   *time.Duration
		def time.Duration
	}{{&c.Time, 24 * time.Hour}, {&c.TTL, 30 * time.Second}, {&c.Interval, time.Second}, {&c.Drain, 50 * time.Millisecond},
		{&c.Delay, time.Millisecond}, {&c.Resync, 6 * time.Hour}, {&c.Swap, 20 * time.Minute}, {&c.Poison, 0}} {
		if *d.v == 0 {
			*d.v = d.def
		}
		if *d.v < 0 {
			return fmt.Errorf("tenure: %w: a time of the simulation is negative", core.ErrInvalid)
		}
	}
	c.Members, c.Shards, c.Seed = cmp.Or(c.Members, 100), cmp.Or(c.Shards, 10_000), cmp.Or(c.Seed, 1)
	c.Churn, c.Zipf = cmp.Or(c.Churn, 0.05), cmp.Or(c.Zipf, 1.1)
	if c.Keys == 0 && c.Quarantine.Deaths == 0 {
		c.Quarantine.Deaths = -1 // while shards are suspected, a plan is made each interval, which takes a long time with 100,000 shards
	}
	if c.Assigner == nil {
		c.Assigner = assign.Balance{}
	}
	if c.Members < 2 || c.Members > 10_000 || c.Shards < 1 || c.Shards > 1<<20 || c.Churn < 0 {
		return fmt.Errorf("tenure: %w: simulate 2 to 10,000 members, 1 to 1,048,576 shards and no negative churn", core.ErrInvalid)
	}
	if c.Keys != 0 && c.Keys < 5000 {
		return fmt.Errorf("tenure: %w: simulate at least 5,000 keys, or none", core.ErrInvalid)
	}
	return nil
}

func newWorld(c *Config) (*world, error) {
	w := &world{
		c: c, rng: rand.New(rand.NewPCG(c.Seed, 8)), byID: map[core.SessionID]*member{}, index: map[core.ShardID]int32{},
		records: map[core.SessionID]*record{}, watchers: map[core.SessionID][]*member{}, reports: map[core.SessionID][]byte{},
		r: &Result{Config: *c, Calls: map[string]int{}, Blows: map[string]int{}},
	}
	w.serving.segments = []segment{{}}
	w.shard("_assigner")
	var err error
	w.planner, err = sharding.NewSimulated(c.Assigner, sharding.Keyspace{Name: "shard", Shards: c.Shards, Digits: 7}, c.Interval, c.Quarantine)
	return w, err
}

// shard returns the index of a shard, which may be new.
func (w *world) shard(name core.ShardID) int32 {
	s, ok := w.index[name]
	if !ok {
		s = int32(len(w.names))
		w.names, w.index[name] = append(w.names, name), s
		w.owners, w.notes, w.last = append(w.owners, driver.Owner{}), append(w.notes, sharding.Note{}), append(w.last, "")
	}
	return s
}

// Simulate runs one world to its end. The same Config leads to the same Result, except for Took.
func Simulate(c Config) (*Result, error) {
	began := time.Now()
	if err := c.complete(); err != nil {
		return nil, err
	}
	w, err := newWorld(&c)
	if err != nil {
		return nil, err
	}
	for i := range c.Members {
		w.after(time.Duration(i)*time.Millisecond, event{kind: start})
	}
	// The members settle in the first hour, and there is no churn in the last hour.
	settle := min(time.Hour, c.Time/10)
	w.after(settle, event{kind: churn})
	if c.Keys > 0 {
		w.beginLoad()
	}
	if c.Poison > 0 {
		w.then(settle+c.Poison/2, w.nextPoison)
	}
	var calm map[string]int
	end := int64(c.Time)
	for len(w.events) > 0 && w.events[0].at <= end {
		e := w.pop()
		w.now = e.at
		if e.kind == churn {
			if calm == nil {
				calm = maps.Clone(w.r.Calls)
				w.begin()
			}
			if w.now < end-int64(settle) {
				w.strike()
			}
			continue
		}
		w.do(&e)
	}
	w.endOfDay()
	return w.result(calm, settle, began), nil
}

// begin ends the time to settle, in which only faults are counted.
func (w *world) begin() {
	w.counting = true
	w.r.Moves, w.gaps = 0, [causes][]time.Duration{}
	w.r.Splits, w.r.Merges, w.r.Relief, w.r.Moved = 0, 0, 0, 0
}

// ending reports whether the day will end so soon that no more faults are caused.
func (w *world) ending() bool { return w.now >= int64(w.c.Time-min(time.Hour, w.c.Time/10)) }

func (w *world) wrong(format string, args ...any) {
	w.r.Faults++
	if len(w.r.Wrong) < 10 {
		w.r.Wrong = append(w.r.Wrong, fmt.Sprintf("at %v: ", time.Duration(w.now))+fmt.Sprintf(format, args...))
	}
}

func (w *world) then(d time.Duration, run func()) { w.after(d, event{kind: then, run: run}) }

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
				w.close(m, s, moving)
			}
			w.step(m, fsm.Input{Kind: fsm.InDrained, Shard: w.names[s], Token: token})
		}
		if m.leaving && len(m.held) == 0 {
			w.step(m, fsm.Input{Kind: fsm.InUnwant, Shard: "_assigner"})
			w.after(time.Second, event{kind: forget, m: m})
		}
	case forget: // a moment later, when everything in flight has arrived
		if len(m.held) > 0 {
			return
		}
		w.step(m, fsm.Input{Kind: fsm.InLeave})
		m.up = false
		w.drop(m)
	case again:
		w.reconcile(m, e.shards)
	case plan:
		if w.boss != m {
			return
		}
		w.plan()
		w.after(w.c.Interval, event{kind: plan, m: m})
	case then:
		e.run()
	case churn:
	}
}

func (w *world) start() {
	w.nodes++
	m := &member{node: fmt.Sprintf("node-%d", w.nodes), up: true, wakeAt: fsm.Never,
		held: map[int32]core.Token{}, slices: map[int32]*slice{}}
	if w.load != nil {
		if m.capacity = w.load.capacity; w.nodes%4 == 0 {
			m.capacity *= 3
		}
	}
	ttl := w.c.TTL
	state := w.state(m)
	m.m = fsm.New(fsm.Config{
		Member: driver.Member{Node: m.node, TTL: ttl, MemberState: state},
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
	w.step(m, fsm.Input{Kind: fsm.InWant, Shard: "_assigner"})
	w.reconcile(m, w.order)
	w.glance(m)
	if w.load != nil {
		w.then(w.c.Interval+time.Duration(w.rng.Int64N(int64(w.c.Interval))), func() { w.tell(m) })
	}
	w.disturb()
}

// state returns a member's first published state.
func (w *world) state(m *member) driver.MemberState {
	s := driver.MemberState{Weight: 1}
	if w.load != nil {
		s.Meta = map[string]string{sharding.MetaKey: strconv.FormatFloat(m.capacity, 'g', 6, 64)}
	}
	return s
}

// strike ends a member, by a crash or by a planned stop, and schedules its replacement and the next
// strike.
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
	if w.rng.IntN(2) == 0 {
		w.crash(m)
		return
	}
	w.replace(m)
	w.r.Leaves++
	m.leaving = true
	var idle []core.ShardID
	for _, s := range w.order {
		if _, held := m.held[s]; !held && m.contends(s) {
			idle = append(idle, w.names[s])
			m.setWants(s, false)
		}
	}
	w.step(m, fsm.Input{Kind: fsm.InUnwant, Shards: idle})
	if w.assigners(m) > 0 {
		w.unwant(m, "", []int32{bossShard})
	}
	state := w.state(m)
	state.Draining = true
	w.step(m, fsm.Input{Kind: fsm.InUpdate, State: state})
	w.after(w.c.Drain, event{kind: drained, m: m})
}

func (w *world) crash(m *member) {
	w.replace(m)
	w.r.Crashes++
	m.up = false
	w.concern(m)
	for _, s := range slices.Sorted(maps.Keys(m.slices)) {
		w.close(m, s, crashed)
	}
	if w.boss == m {
		w.boss = nil
	}
	w.drop(m)
}

// replace schedules the start of a new process, some time after another process ends.
func (w *world) replace(m *member) {
	live := 0
	for _, x := range w.members {
		if x.up && !x.leaving && x.full {
			live++
		}
	}
	if !m.leaving { // otherwise, this was counted before
		w.r.Bound += len(m.held) - w.assigners(m)
		w.after(2*w.c.TTL+time.Duration(w.rng.Int64N(int64(w.c.TTL))), event{kind: start})
		w.r.Joins++
		w.r.Bound += len(w.order) / max(live, 1) // the shards that the replacement gets
	}
	w.disturb()
}

// assigners returns 1 if the member is the assigner, and 0 otherwise.
func (w *world) assigners(m *member) int {
	if _, ok := m.held[bossShard]; ok {
		return 1
	}
	return 0
}

func (w *world) drop(m *member) {
	w.members = slices.DeleteFunc(w.members, func(x *member) bool { return x == m })
	w.rewatch(m)
}

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
			if w.boss == m && e.Fence.Shard == "_assigner" {
				w.boss = nil
			}
			w.close(m, s, moving)
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
	if s == bossShard {
		w.boss = m
		if err := w.planner.Restart(); err != nil {
			w.wrong("%v", err)
		}
		w.heard = map[core.SessionID]*byte{}
		w.load.forget()
		w.disturb()
		w.after(0, event{kind: plan, m: m})
		return
	}
	if w.last[s] != m.id {
		w.r.Moves++
		w.last[s] = m.id
	}
	w.open(m, s, e.Fence.Token)
}

// plan does the assigner's work, once an interval.
func (w *world) plan() {
	if w.planned == len(w.changes) && !w.restless {
		return
	}
	w.planned = len(w.changes)
	v := w.view()
	var settled []string
	for _, c := range w.planner.Changes() {
		w.call("get", len(c.Gifts)*batchItems)
		if w.taken(c.Number, c.Gifts) {
			settled = append(settled, c.From)
		}
	}
	for _, id := range w.planner.Due(time.Duration(w.now), v) {
		w.call("get", 1)
		if b := w.reports[id]; b != nil && (w.heard[id] == nil || &b[0] != w.heard[id]) {
			w.heard[id] = &b[0]
			if err := w.planner.Hear(b); err != nil {
				w.wrong("a report: %v", err)
			}
		}
	}
	out, again := w.planner.Next(time.Duration(w.now), epoch.Add(time.Duration(w.now)), v, settled)
	w.restless = again
	token := w.boss.held[bossShard]
	w.then(w.c.Delay, func() {
		if w.owners[bossShard].Token != token {
			return // the log is fenced
		}
		p := w.planner.Write(out)
		if p == nil {
			return
		}
		w.r.Plans++
		w.call("commit", 1)
		w.publish(out, p)
	})
}

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func (w *world) view() *core.View {
	v := &core.View{Rules: w.poison.rules}
	nodes := map[core.SessionID]string{}
	for _, id := range w.ids() {
		r := w.records[id]
		nodes[id] = r.Node
		if m := w.byID[id]; m == nil || !m.up || m.full { // dead but not evicted yet, or ready
			v.Members = append(v.Members, r.Member)
		}
	}
	v.Shards = make([]core.Ownership, 0, len(w.order))
	for _, s := range w.order {
		o := w.owners[s]
		v.Shards = append(v.Shards, core.Ownership{Shard: string(w.names[s]), Session: o.Session, Token: o.Token, Node: nodes[o.Session]})
	}
	return v
}

func (w *world) publish(out *sharding.Outcome, p *sharding.Published) {
	for _, name := range p.Added {
		s := w.shard(core.ShardID(name))
		at, _ := slices.BinarySearchFunc(w.order, name, func(s int32, name string) int { return cmp.Compare(string(w.names[s]), name) })
		w.order = slices.Insert(w.order, at, s)
	}
	var gone []int32
	for _, name := range p.Gone {
		gone = append(gone, w.index[core.ShardID(name)])
	}
	if len(gone) > 0 {
		w.order = slices.DeleteFunc(w.order, func(s int32) bool { return slices.Contains(gone, s) })
	}
	w.account(out)
	w.quarantines(p)
	var touched []int32
	for _, list := range [][]string{p.Added, p.Moved, p.Suspects} {
		for _, name := range list {
			if s, ok := w.index[core.ShardID(name)]; ok && !slices.Contains(gone, s) {
				touched = append(touched, s)
			}
		}
	}
	slices.Sort(touched)
	touched = slices.Compact(touched)
	w.then(w.c.Delay, func() {
		w.carry(touched, gone)
		for _, c := range w.planner.Changes() {
			w.blow(&c, planned)
			w.poke(&c)
		}
	})
}

// carry makes each member carry out a plan for the shards that the plan changes and for the shards
// that ended.
func (w *world) carry(touched, gone []int32) {
	in := fsm.Input{Kind: fsm.InPrefer}
	for _, s := range touched {
		if w.records[w.owners[s].Session] == nil {
			in.Shards = append(in.Shards, w.names[s])
			in.Heirs = append(in.Heirs, w.heirs(s))
		}
	}
	for _, m := range slices.Clone(w.members) {
		if !m.up {
			continue
		}
		if len(in.Shards) > 0 {
			w.step(m, in)
		}
		w.reconcile(m, touched)
		var ended []int32
		for _, s := range gone {
			if m.contends(s) {
				ended = append(ended, s)
			}
		}
		if len(ended) > 0 {
			w.unwant(m, "", ended)
		}
	}
}

func (w *world) heirs(s int32) fsm.Heirs {
	return fsm.Heirs{w.planner.Owner(string(w.names[s])), w.planner.Heir(string(w.names[s]))}
}

// reconcile acts as the member's Manager would for the given shards.
func (w *world) reconcile(m *member, shards []int32) {
	var want []core.ShardID
	var order []core.SessionID
	groups := map[core.SessionID][]int32{}
	for _, s := range shards {
		name := string(w.names[s])
		to := w.planner.Owner(name)
		if to == m.id || w.records[to] == nil {
			to = ""
		}
		_, holds := m.held[s]
		if holds && !m.contends(s) {
			continue // the hand-over is already in progress
		}
		waits, held := w.planner.Waits(name, m.id), w.planner.Held(name)
		contends, withdraws, hands := sharding.Step(m.contends(s), holds, waits || m.leaving, held, to)
		switch {
		case contends:
			want = append(want, w.names[s])
			m.setWants(s, true)
			continue
		case withdraws:
			to = ""
		case !hands:
			continue
		}
		if groups[to] == nil {
			order = append(order, to)
		}
		groups[to] = append(groups[to], s)
	}
	if len(want) > 0 {
		w.step(m, fsm.Input{Kind: fsm.InWant, Shards: want})
	}
	for _, to := range order {
		w.unwant(m, to, groups[to])
	}
}

func (w *world) unwant(m *member, to core.SessionID, shards []int32) {
	names := make([]core.ShardID, len(shards))
	for i, s := range shards {
		names[i] = w.names[s]
		m.setWants(s, false)
	}
	w.step(m, fsm.Input{Kind: fsm.InUnwant, Shards: names, To: to})
	w.after(w.c.Drain, event{kind: drained, m: m, shards: shards})
}

func (w *world) result(calm map[string]int, settle time.Duration, began time.Time) *Result {
	r := w.r
	lo, hi := len(w.order), 0
	members := 0
	for _, m := range w.members {
		if m.up && !m.leaving && m.full {
			n := len(m.held) - w.assigners(m)
			lo, hi = min(lo, n), max(hi, n)
			members++
		}
	}
	r.Uneven = hi - lo
	for _, s := range w.order {
		m := w.byID[w.owners[s].Session]
		if (m == nil || !m.up || m.held[s] != w.owners[s].Token) && !w.planner.Held(string(w.names[s])) {
			r.Forgotten = append(r.Forgotten, string(w.names[s]))
		}
	}
	total := 0
	for k := range r.Calls {
		r.Calls[k] -= calm[k]
		total += r.Calls[k]
	}
	r.PerMemberMinute = float64(total) / (w.c.Time - settle).Minutes() / float64(max(members, 1))
	r.Crash, r.Planned, r.Divided = gapsOf(w.gaps[crashed]), gapsOf(w.gaps[moving]), gapsOf(w.gaps[divided])
	r.Back = gapsOf(w.gaps[isolated])
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

// String returns the result in a readable form.
func (r *Result) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d members, %d shards, %v of virtual time, %.0f%% of the members an hour go (seed %d)\n",
		r.Members, r.Shards, r.Time, 100*r.Churn, r.Seed)
	fmt.Fprintf(&b, "  %d crashes, %d leaves in order, %d joins, %d plans\n", r.Crashes, r.Leaves, r.Joins, r.Plans)
	fmt.Fprintf(&b, "  %d shards moved; the least possible is %d (%.3f times)\n", r.Moves, r.Bound, float64(r.Moves)/float64(max(r.Bound, 1)))
	fmt.Fprintf(&b, "  without an owner after a crash: median %v, p99 %v, at most %v (TTL %v)\n",
		short(r.Crash.Median), short(r.Crash.P99), short(r.Crash.Max), r.TTL)
	fmt.Fprintf(&b, "  without an owner in planned moves: median %v, p99 %v, at most %v\n",
		short(r.Planned.Median), short(r.Planned.P99), short(r.Planned.Max))
	fmt.Fprintf(&b, "  %.2f store calls per member and minute:", r.PerMemberMinute)
	var kinds []string
	for k := range r.Calls {
		kinds = append(kinds, k)
	}
	slices.Sort(kinds)
	for _, k := range kinds {
		fmt.Fprintf(&b, " %s %d", k, r.Calls[k])
	}
	if r.Keys > 0 {
		r.loads(&b)
	}
	fmt.Fprintf(&b, "\n  at the end: %d shards forgotten, shares differ by %d (took %v)\n",
		len(r.Forgotten), r.Uneven, r.Took.Round(10*time.Millisecond))
	return b.String()
}

// bounds returns an error that lists the limits that the simulated day exceeded, or nil.
func (r *Result) bounds() error {
	var errs []error
	changes := float64(r.Crashes + r.Leaves + r.Joins + r.Swaps)
	if most := 2 * changes / float64(r.Members); r.Moved > most {
		errs = append(errs, fmt.Errorf("%.2f times all load moved for balance's sake, want at most two members' for each change, %.2f",
			r.Moved, most))
	}
	if most := r.Bound + r.Relief + r.Bound/10; r.Moves > most {
		errs = append(errs, fmt.Errorf("%d shards moved, want at most %d", r.Moves, most))
	}
	// A member sends six heartbeats a minute, and more while another member is silent.
	total := 0
	for _, n := range r.Calls {
		total += n
	}
	reads := r.PerMemberMinute * float64(r.Calls["get"]) / float64(max(total, 1))
	if writes := r.PerMemberMinute - reads; writes > 9 || reads > 66 {
		errs = append(errs, fmt.Errorf("%.1f reads and %.1f other calls per member and minute, want at most 66 and 9", reads, writes))
	}
	return errors.Join(errs...)
}

// loads writes the results about load, splits and poison.
func (r *Result) loads(b *strings.Builder) {
	fmt.Fprintf(b, "\n  %d keys of Zipf %.1f: %d splits, %d merges, %d to %d ranges\n", r.Keys, r.Zipf, r.Splits, r.Merges, r.Ranges[0], r.Ranges[1])
	fmt.Fprintf(b, "  a hash that goes to another shard is refused for %v at the median, p99 %v, at most %v\n",
		short(r.Divided.Median), short(r.Divided.P99), short(r.Divided.Max))
	fmt.Fprintf(b, "  killed in the midst of splits and merges:")
	for _, k := range slices.Sorted(maps.Keys(r.Blows)) {
		fmt.Fprintf(b, " %d (%s)", r.Blows[k], k)
	}
	fmt.Fprintf(b, "\n  in %d calm minutes a member has at most %.3f times its goal, %.3f times its share; in %d minutes of one no shard fits elsewhere\n",
		r.Calm, r.Worst, r.Raw, r.Packed)
	fmt.Fprintf(b, "  for balance's sake %d moves of %.2f times all load; in a minute at most %.2f %% of it, %.2f %% where it was urgent\n",
		r.Relief, r.Moved, 100*r.Minute, 100*r.Urgent)
	fmt.Fprintf(b, "  %d keys turned deadly and killed %d members; %d quarantines, %d of shards without such a key; served again after at most %v",
		r.Poisoned, r.Killed, r.Held, r.Innocent, short(r.Back.Max))
}

func short(d time.Duration) time.Duration { return d.Round(time.Millisecond) }

// Err returns an error with the promises that do not hold, or nil.
func (r *Result) Err() error {
	var errs []error
	if n := len(r.Forgotten); n > 0 {
		errs = append(errs, fmt.Errorf("%d shards are forgotten, %s the first of them", n, r.Forgotten[0]))
	}
	for _, text := range r.Wrong {
		errs = append(errs, errors.New(text))
	}
	if n := r.Faults - len(r.Wrong); n > 0 {
		errs = append(errs, fmt.Errorf("and %d more", n))
	}
	if r.Keys > 0 {
		errs = append(errs, r.bounds())
	}
	if r.Keys == 0 && r.Uneven > 1 {
		errs = append(errs, fmt.Errorf("shares differ by %d at the end", r.Uneven))
	}
	return errors.Join(errs...)
}
