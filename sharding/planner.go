package sharding

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/internal/keyspace"
	"github.com/tenure-go/tenure/sharding/assign"
)

// planner compares the table with the view, and returns the changes to make. It does no I/O, reads
// no clock, and is not safe for concurrent use.
//
// Once a plan assigns a shard, the shard counts as owned by its assigned owner while that member is
// alive. The planner therefore does not repeat a hand-over that is in progress or stuck. If the
// assigned owner is gone and the shares allow it, the member that took the shard keeps it. If no
// member has taken the shard, the shard's heir counts as its owner, because the heir is claiming
// the shard now. If another member takes a shard from its assigned owner, the assigned owner's
// handler has probably given up. The assigned owner then gets no shards for a while, and waits
// twice as long after each further loss.
type planner struct {
	Assigner assign.Assigner
	Specs    []string // the value of Options.Shards
	Keys     Keyspace // without a name, there is no keyspace
	// Takes reports whether a member may own shards. If Takes is nil, all members may own shards.
	Takes func(core.Member) bool
	// Zone is the key of Member.Meta that contains a member's zone.
	Zone string
	// During the Cooldown after a move, the planner does not move the shard again to balance the
	// members. The cooldown begins when this process learns of the move.
	Cooldown time.Duration
	// Penalty is the time during which a member gets no shards after it first gave up a shard. The
	// time doubles with each repetition, up to 64 times Penalty.
	Penalty time.Duration
	// Operators set Rules and Frozen.
	Rules  assign.Rules
	Frozen bool
	bounds map[uint64]bool // hashes at which a range must begin (true), or must not
	// release lists the shards that operators release from quarantine.
	release map[string]bool
	wall    time.Time // the time by this process's clock
	// estimates contains the loads of shards whose ranges changed, until their owners report loads.
	estimates     map[string]estimate
	ledger        []spent // the load that plans moved in the last minute
	PrepareBudget time.Duration
	// The defaults of Quarantine have been filled in.
	Quarantine Quarantine

	inFlight map[string]flight // shards that are moving to their assigned owner
	strikes  map[core.SessionID]strike
	barred   map[core.SessionID]bool // members that were not eligible when last seen
	repeat   map[int32]bool          // shards whose moves will be written again
	// unprepared lists the shards that stay because their next owners could not prepare them.
	unprepared map[int32]bool
	calm       func() *core.View  // returns the last view in which every member of the table was alive; may be nil
	lost       map[int32][]string // the shards that each departed member leased, by the member's slot
	before     []record           // the records at the last plan
	// undecided lists the shards that get no owner until the planner knows whether a process joins
	// again.
	undecided []int32
	untaken   []untaken            // shards that do not take their ranges
	rests     map[string]time.Time // until this time, the planner does not change the shard's range
	times     []planTime
}

// After a failed change, a shard's range rests. Without a pause, the change would be tried again
// immediately, and shards would refuse keys during each attempt.
const restsFor = 10 * time.Minute

type untaken struct{ shard, why string }

// flight contains a shard's token when its move was planned, and the plan's time.
type flight struct {
	token core.Token
	since time.Duration
}

// An owner that first sees its lease after the plan ignores the move. After this number of
// penalties, the planner therefore repeats a move that was not carried out.
const lost = 4

type strike struct {
	n     int
	until time.Duration
}

type planTime struct {
	number int64
	at     time.Duration
}

// Outcome is a plan that was written, with the Cluster on which it is based.
type Outcome struct {
	Number  int64
	Cluster *assign.Cluster
	Plan    *assign.Plan
	// Moves lists the moves that were written, in the order of shards: the Plan's moves, and the
	// moves of shards that were taken over without a plan.
	Moves []assign.Move

	change *planChange // nil if nothing changes
	// Work that a budget, a cooldown or a penalty postpones may become possible while the view
	// stays the same.
	again bool
}

// next makes a plan. The time now is counted from an arbitrary fixed point, and settled lists the
// givers in complete splits and merges. The caller writes the change and then applies it to the
// table.
func (p *planner) next(now time.Duration, t *assignments, v *core.View, loads measured, settled []string) (*Outcome, error) {
	if p.inFlight == nil {
		p.inFlight, p.strikes, p.barred = map[string]flight{}, map[core.SessionID]strike{}, map[core.SessionID]bool{}
		p.rests = map[string]time.Time{}
	}
	fresh := t.names == nil || !slices.Equal(t.specs, p.Specs) || !t.keys.same(p.Keys)
	if fresh { // the set of shards has changed, so start again with the current owners
		var err error
		if t, err = p.begin(t); err != nil {
			return nil, err
		}
		clear(p.inFlight)
		settled = nil
	}
	p.remember(now, t.number)
	p.repeat, p.unprepared = map[int32]bool{}, map[int32]bool{}

	c := &assign.Cluster{Members: p.members(now, v), Rules: p.Rules, Frozen: p.Frozen, Begun: t.keys.Shards}
	c.Moved, c.Urgent = p.spent(now)
	p.bar(now, v, c)
	index := make(map[core.SessionID]int32, len(c.Members))
	for i := range c.Members {
		index[c.Members[i].ID] = int32(i)
	}
	assigned := make([]int32, len(t.members)) // maps slots to members
	for slot, m := range t.members {
		assigned[slot] = assign.None
		if i, ok := index[m.ID]; ok && m.ID != "" {
			assigned[slot] = i
		}
	}
	out := &Outcome{Cluster: c}
	records := p.shards(now, t, v, c, assigned, index, loads, out)
	out.Plan = p.Assigner.Plan(c)
	if _, ours := p.Assigner.(assign.Balance); !ours {
		if err := out.Plan.Validate(c); err != nil {
			return nil, fmt.Errorf("%w: correct the Assigner (%T)", err, p.Assigner)
		}
	}
	out.again = out.again || out.Plan.Unfinished
	out.change = p.change(now, t, out, assigned, records, fresh)
	p.ranges(t, v, out, settled, fresh)
	p.spend(now, t, out, loads.told)
	return out, nil
}

// ranges adds changes to ranges and to suspected shards to the plan.
func (p *planner) ranges(t *assignments, v *core.View, out *Outcome, settled []string, fresh bool) {
	ch := out.change
	held := map[int32]bool{}
	if !fresh { // a base contains neither kind of change; the next plan contains them
		var again bool
		p.undecided, again = p.isolate(p.wall, t, v, ch)
		out.again = out.again || again
		for _, s := range p.undecided {
			held[s] = true
		}
		p.divide(t, out, ch, settled)
	}
	for name, s := range t.suspects {
		if i, ok := indexOf(t, name); ok && s.held() {
			held[int32(i)] = true
		}
	}
	for _, s := range ch.Isolation.Free {
		delete(held, s)
	}
	for _, s := range ch.Isolation.Hold {
		held[s] = true
	}
	if len(held) > 0 {
		ch.Moves = slices.DeleteFunc(ch.Moves, func(m slotMove) bool { return held[m.Shard] })
		out.Moves = slices.DeleteFunc(out.Moves, func(m assign.Move) bool { return held[m.Shard] })
	}
	if out.change = ch; ch.nothing() {
		out.change = nil
	}
}

// begin returns the table for a changed set of shards, without owners. A keyspace's ranges stay the
// same.
func (p *planner) begin(t *assignments) (*assignments, error) {
	c := &planChange{Number: t.number, Base: true, Specs: p.Specs, Keys: p.Keys, Next: p.Keys.Shards}
	switch {
	case t.keys.Name == "":
		for i := range p.Keys.Shards {
			c.Ranges = append(c.Ranges, numbered{i, equal(i, p.Keys.Shards)})
		}
	case !t.keys.same(p.Keys):
		return nil, fmt.Errorf("tenure: %w: the plans of this namespace divide keyspace %q by hash %s, and this process has %q and hash %q: "+
			"configure all members with the former, or use another namespace",
			core.ErrInvalid, t.keys.Name, cmp.Or(t.keys.Hash, keyspace.HashMixed), p.Keys.Name, p.Keys.Hash)
	default:
		old := t.base(t.number)
		c.Keys, c.Next, c.Ranges, c.Changes = old.Keys, old.Next, old.Ranges, old.Changes
	}
	c.Suspects = t.suspects
	next, err := unassigned(c)
	if err != nil {
		return nil, err
	}
	next.number = t.number
	return next, nil
}

// divide adds the plan's possible splits and merges to the change, and lists earlier ones that are
// complete. At the next plan, the Assigner sees the ranges again, and may then decide differently.
func (p *planner) divide(t *assignments, out *Outcome, ch *planChange, settled []string) {
	p.bound(t, out.Plan)
	for _, shard := range settled {
		if i, ok := slices.BinarySearch(t.names, shard); ok {
			ch.Settled = append(ch.Settled, int32(i))
		}
	}
	for _, x := range p.untaken {
		if i, ok := slices.BinarySearch(t.names, x.shard); ok {
			ch.Refused = append(ch.Refused, refusal{int32(i), x.why})
			p.rests[x.shard], p.rests[t.change(x.shard).From] = p.wall.Add(restsFor), p.wall.Add(restsFor)
		}
	}
	out.again = out.again || len(t.changes) > 0
	if p.Frozen {
		return
	}
	used, left := map[int32]bool{}, keyspace.MaxShards-len(t.names)
	maps.DeleteFunc(p.rests, func(_ string, until time.Time) bool { return !p.wall.Before(until) })
	for shard := range p.rests {
		if i, ok := slices.BinarySearch(t.names, shard); ok {
			used[int32(i)] = true
		}
	}
	for _, s := range out.Plan.Splits {
		if t.splits(s) && !used[s.Shard] && len(s.At) <= left {
			used[s.Shard] = true
			left -= len(s.At)
			ch.Splits = append(ch.Splits, s)
		}
	}
	for _, m := range out.Plan.Merges {
		if t.merges(m) && !used[m.From] && !used[m.To] {
			used[m.From], used[m.To] = true, true
			ch.Merges = append(ch.Merges, m)
		}
	}
	out.again = out.again || len(ch.Splits)+len(ch.Merges) > 0
}

type measured struct {
	said map[string]float64
	told map[string]*shardReport
}

func (p *planner) measure(s *assign.Shard, loads measured) {
	r := loads.told[s.Name]
	if e, ok := p.estimates[s.Name]; ok && e.told == r {
		s.Load, s.Parts = e.Rate, e.Parts
	} else if delete(p.estimates, s.Name); r != nil {
		s.Load, s.Parts = r.Rate, r.Parts
	}
	if x, said := loads.said[s.Name]; said {
		s.Load = x
	}
}

// An estimate is a shard's expected load after a split or merge. It is used until a report arrives
// that is newer than the last report before the split or merge.
type estimate struct {
	shardReport
	told *shardReport
}

type spent struct {
	at     time.Duration
	load   float64
	urgent bool
}

// spent returns the load that the last minute's plans moved, and whether any plan was urgent.
func (p *planner) spent(now time.Duration) (load float64, urgent bool) {
	p.ledger = slices.DeleteFunc(p.ledger, func(x spent) bool { return x.at < now-time.Minute })
	for _, x := range p.ledger {
		load += x.load
		urgent = urgent || x.urgent
	}
	return load, urgent
}

// spend records the load that a plan moves, and estimates the loads of the shards whose ranges
// change.
func (p *planner) spend(now time.Duration, t *assignments, out *Outcome, told map[string]*shardReport) {
	if out.change == nil {
		return
	}
	if out.Plan.Moved > 0 || out.Plan.Urgent {
		p.ledger = append(p.ledger, spent{now, out.Plan.Moved, out.Plan.Urgent})
	}
	maps.DeleteFunc(p.estimates, func(shard string, _ estimate) bool { return !t.has(shard) })
	next, shards := t.next, out.Cluster.Shards
	for _, s := range out.change.Splits {
		x := &shards[s.Shard]
		p.estimate(x.Name, told[x.Name], x, assign.Range{From: x.Range.From, To: s.At[0]})
		for i, h := range s.At {
			r := assign.Range{From: h, To: x.Range.To}
			if i+1 < len(s.At) {
				r.To = s.At[i+1]
			}
			p.estimate(t.keys.shard(next), nil, x, r)
			next++
		}
	}
	for _, m := range out.change.Merges {
		a, b := &shards[m.From], &shards[m.To]
		if b.Range.From < a.Range.From {
			a, b = b, a
		}
		both := assign.Shard{Range: join(a.Range, b.Range), Load: a.Load + b.Load, Parts: slices.Concat(a.Parts, b.Parts)}
		if a.Parts == nil || b.Parts == nil {
			both.Parts = nil
		}
		to := shards[m.To].Name
		p.estimate(to, told[to], &both, both.Range)
	}
}

func (p *planner) estimate(shard string, told *shardReport, of *assign.Shard, r assign.Range) {
	if of.Load <= 0 && of.Parts == nil { // the load is unknown
		return
	}
	if p.estimates == nil {
		p.estimates = map[string]estimate{}
	}
	p.estimates[shard] = estimate{shardReport{Rate: of.Within(r), Parts: partsIn(of.Parts, r)}, told}
}

// partsIn returns the parts that are in a range, cut off at the range's ends.
func partsIn(parts []assign.Part, r assign.Range) (out []assign.Part) {
	for _, p := range parts {
		from, last := max(p.Range.From, r.From), min(p.Range.To-1, r.To-1)
		if from > last {
			continue
		}
		share := (float64(last-from) + 1) / (float64(p.Range.To-1-p.Range.From) + 1)
		out = append(out, assign.Part{Range: assign.Range{From: from, To: last + 1}, Load: p.Load * share})
	}
	return out
}

// The candidates are sorted by session.
func (p *planner) members(now time.Duration, v *core.View) []assign.Member {
	var out []assign.Member
	for i := range v.Members {
		m := &v.Members[i]
		if p.Takes != nil && !p.Takes(*m) {
			continue
		}
		out = append(out, assign.Member{ID: m.Session, Node: m.Node, Zone: m.Meta[p.Zone], Weight: m.Weight,
			Drain: m.Draining, Full: now < p.strikes[m.Session].until, Capacity: capacityOf(m)})
	}
	slices.SortFunc(out, func(a, b assign.Member) int { return cmp.Compare(a.ID, b.ID) })
	for id := range p.strikes {
		if _, lives := v.Member(id); !lives {
			delete(p.strikes, id)
		}
	}
	return out
}

// bar drains the members that are not eligible (C15). A member that becomes eligible again is
// penalized like a member that gave up shards, because shards would otherwise move whenever its
// eligibility changed. While no member is eligible, all members keep their shards.
func (p *planner) bar(now time.Duration, v *core.View, c *assign.Cluster) {
	var barred []*assign.Member
	some := false
	for i := range c.Members {
		m := &c.Members[i]
		member, _ := v.Member(m.ID)
		is := member.Ineligible() != ""
		if is && !p.barred[m.ID] {
			p.strike(now, m.ID)
		}
		if p.barred[m.ID] = is; is {
			barred = append(barred, m)
		}
		some = some || !is && !m.Drain && !slices.Contains(p.Rules.Drain, m.Node)
	}
	for _, m := range barred {
		if member, _ := v.Member(m.ID); some && !m.Drain && !slices.Contains(p.Rules.Drain, m.Node) {
			m.Ineligible = member.Ineligible()
		}
		m.Drain = m.Drain || some
	}
	c.Frozen = c.Frozen || len(barred) > 0 && !some
	for id := range p.barred {
		if _, lives := v.Member(id); !lives {
			delete(p.barred, id)
		}
	}
}

// shards fills in each shard's effective owner, and returns the shards' records.
func (p *planner) shards(now time.Duration, t *assignments, v *core.View, c *assign.Cluster, assigned []int32, index map[core.SessionID]int32,
	loads measured, out *Outcome) []record {
	records, owners := recordsOf(t, v, index)
	lost := p.orphan(t, records, assigned)
	c.Shards = make([]assign.Shard, len(t.names))
	struck, busy := map[core.SessionID]bool{}, t.busy()
	fixedFrom := p.cooling(now)
	top := t.top()
	var next []int32 // slots of the heirs, by shard; computed when first needed
	var near []*assign.Shard
	for i, name := range t.names {
		s := &c.Shards[i]
		*s = assign.Shard{Name: name, Owner: assign.None, Moved: t.moved[i], Fixed: t.moved[i] >= fixedFrom, Range: t.ranges[i], Busy: busy[name]}
		p.measure(s, loads)
		to, has := int32(assign.None), owners[i]
		if o := t.owner[i]; o != assign.None {
			to = assigned[o]
		}
		died := lost[name] || t.widowed(i, to)
		if p.near(t.suspects[name], died, top) {
			near = append(near, s)
		}
		switch {
		case to == assign.None && has == assign.None && t.owner[i] != assign.None:
			if next == nil {
				next = assign.Heirs(t.members, t.owner)
			}
			if h := next[i]; h != assign.None && assigned[h] != assign.None && !c.Members[assigned[h]].Full {
				s.Owner = assigned[h]
			}
		case to == has, has == assign.None:
			s.Owner = to
			delete(p.inFlight, name)
		case to == assign.None:
			s.Owner, s.Moved = has, t.number+1
		default:
			out.again = true
			member, _ := v.Member(c.Members[to].ID)
			if s.Owner = to; p.refused(now, name, int32(i), &records[i], &member, t.moved[i]) {
				s.Owner, s.Moved = has, t.number+1
				p.strikeOnce(now, &c.Members[to], struck)
			}
		}
		out.again = out.again || s.Fixed
	}
	if len(near) <= max(few(len(t.names)), len(t.names)/2) { // with more shards, the shards do not cause the deaths
		for _, s := range near {
			s.Fixed, out.again = true, true
		}
	}
	for i := range c.Members {
		out.again = out.again || c.Members[i].Full || c.Members[i].Drain
	}
	return records
}

type record struct {
	shard string
	token core.Token
	from  core.SessionID
}

func recordsOf(t *assignments, v *core.View, index map[core.SessionID]int32) (records []record, owners []int32) {
	records, owners = make([]record, len(t.names)), make([]int32, len(t.names))
	at := 0
	for i, name := range t.names {
		owners[i], records[i].shard = assign.None, name
		for at < len(v.Shards) && v.Shards[at].Shard < name {
			at++
		}
		if at == len(v.Shards) || v.Shards[at].Shard != name {
			continue
		}
		records[i].token, records[i].from = v.Shards[at].Token, v.Shards[at].Session
		if m, ok := index[v.Shards[at].Session]; ok {
			owners[i] = m
		}
	}
	return records, owners
}

// Orphans are shards whose owners left without a drain, according to the current records, the
// records at the last plan, and this process's views.
func (p *planner) orphan(t *assignments, records []record, assigned []int32) map[string]bool {
	slots, lost := map[core.SessionID]int32{}, map[string]bool{}
	p.lost = map[int32][]string{}
	for slot, m := range assigned {
		x := &t.members[slot]
		if m != assign.None || x.ID == "" || x.Drain {
			continue
		}
		slots[x.ID] = int32(slot)
	}
	if len(slots) > 0 && p.calm != nil {
		if v := p.calm(); v != nil {
			for i := range v.Shards {
				p.before = append(p.before, record{shard: v.Shards[i].Shard, from: v.Shards[i].Session})
			}
		}
	}
	for _, list := range [][]record{p.before, records} {
		for i := range list {
			if slot, ok := slots[list[i].from]; ok {
				p.lost[slot] = append(p.lost[slot], list[i].shard)
			}
		}
	}
	p.before = records
	for slot, names := range p.lost {
		slices.Sort(names)
		p.lost[slot] = slices.Compact(names)
		for _, name := range p.lost[slot] {
			lost[name] = true
		}
	}
	return lost
}

// refused reports whether a shard's planned move has ended without making the assigned member the
// owner. The move has ended if the assigned member had or refused the shard, and another member
// took it. The move has also ended if the assigned member could not prepare the shard.
func (p *planner) refused(now time.Duration, name string, shard int32, record *record, to *core.Member, plan int64) bool {
	f, moving := p.inFlight[name]
	if !moving {
		f = flight{record.token, now}
		p.inFlight[name] = f
	}
	ready, prepares := readinessOf(to)
	prepares = prepares && ready.number < plan
	limit := lost * p.Penalty
	if prepares {
		limit += p.PrepareBudget // the owner waits this long for the preparation
	}
	late := now-f.since > limit
	switch {
	case f.token != record.token:
	case ready.lacks(name, plan), late && prepares && ready.required:
		p.unprepared[shard] = true
	default:
		if late {
			p.inFlight[name], p.repeat[shard] = flight{f.token, now}, true
		}
		return false
	}
	delete(p.inFlight, name)
	return true
}

// strikeOnce gives a member one strike, even if the member refused several shards.
func (p *planner) strikeOnce(now time.Duration, m *assign.Member, struck map[core.SessionID]bool) {
	if !struck[m.ID] && !m.Drain {
		struck[m.ID], m.Full = true, true
		p.strike(now, m.ID)
	}
}

func (p *planner) strike(now time.Duration, id core.SessionID) {
	s := p.strikes[id]
	if now > s.until+64*p.Penalty {
		s.n = 0
	}
	s.until = now + p.Penalty<<min(s.n, 6)
	s.n++
	p.strikes[id] = s
}

// remember records when this process first learned of a plan.
func (p *planner) remember(now time.Duration, number int64) {
	if p.Cooldown <= 0 {
		return
	}
	if n := len(p.times); n == 0 || p.times[n-1].number < number {
		p.times = append(p.times, planTime{number, now})
	}
	for len(p.times) > 1 && p.times[1].at+p.Cooldown <= now {
		p.times = p.times[1:]
	}
}

// cooling returns the number of the oldest plan whose moves are still protected.
func (p *planner) cooling(now time.Duration) int64 {
	for i, x := range p.times {
		// The first plan that this process saw may be arbitrarily old.
		if x.at+p.Cooldown > now && i > 0 {
			return x.number
		}
	}
	return maxNumber
}

// seat gives every member a slot in the table, and returns each member's slot. The slice assigned
// contains each slot's current member.
func (ch *planChange) seat(t *assignments, members []assign.Member, assigned []int32) []int32 {
	slots := make([]int32, len(members))
	for i := range slots {
		slots[i] = assign.None
	}
	var free []int32
	for slot, m := range assigned {
		if m == assign.None {
			free = append(free, int32(slot))
			if t.members[slot].ID != "" {
				ch.Gone = append(ch.Gone, int32(slot))
			}
			continue
		}
		slots[m] = int32(slot)
	}
	next := int32(len(t.members))
	for i, m := range members {
		m.Full, m.Ineligible, m.Capacity = false, "", 0
		switch {
		case slots[i] != assign.None:
			if t.members[slots[i]] == m {
				continue
			}
		case len(free) > 0:
			slots[i], free = free[0], free[1:]
		default:
			slots[i] = next
			next++
		}
		ch.Seats = append(ch.Seats, memberSlot{slots[i], m})
	}
	return slots
}

func (p *planner) change(
	now time.Duration, t *assignments, out *Outcome, assigned []int32, records []record, fresh bool,
) *planChange {
	c, plan := out.Cluster, out.Plan
	out.Number = t.number + 1
	ch := &planChange{Number: out.Number}
	if fresh {
		ch = t.base(out.Number) // has no members and owners yet
	}
	slots := ch.seat(t, c.Members, assigned)
	why := map[int32]assign.Reason{}
	for _, m := range plan.Moves {
		why[m.Shard] = m.Why
	}
	for i, o := range plan.Owner {
		was, to := int32(assign.None), int32(assign.None)
		if t.owner[i] != assign.None {
			was = assigned[t.owner[i]]
		}
		if o != assign.None {
			to = slots[o]
		}
		if was == o && (o != assign.None || t.owner[i] == assign.None) && !p.repeat[int32(i)] {
			continue
		}
		reason := why[int32(i)]
		switch {
		case reason == 0 && was == o:
			reason = t.why[i]
		case reason == 0 && p.unprepared[int32(i)]:
			reason = assign.Unprepared
		case reason == 0:
			reason = assign.TakenOver
		}
		ch.Moves = append(ch.Moves, slotMove{Shard: int32(i), To: to, Plan: ch.Number, Why: reason})
		out.Moves = append(out.Moves, assign.Move{Shard: int32(i), From: was, To: o, Why: reason})
		if c.Shards[i].Owner != assign.None && o != c.Shards[i].Owner {
			p.inFlight[t.names[i]] = flight{records[i].token, now}
			out.again = true // no view reports that a move does not happen
		}
	}
	return ch
}
