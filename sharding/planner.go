package sharding

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/internal/keyspace"
)

// planner makes the plans of the assigner: it compares the table with the view, and returns what to
// change. It does no I/O and reads no clock. Not safe for concurrent use.
//
// While a shard's assigned owner lives, the shard counts as that owner's from the plan on. So a
// hand-over that is in progress or stuck is not planned again. If the assigned owner is gone, the
// member that took the shard keeps it, if the shares allow. If no member has taken the shard, its
// heir counts as its owner, because the heir is claiming it now. If a member loses an assigned
// shard to another member, its handler seems to give up. So it gets no shards for a while, and
// this time doubles with each loss.
type planner struct {
	Assigner Assigner
	Specs    []string // of the shard set
	Keys     Keyspace // without a name: no keyspace
	// Takes reports whether a member may own shards. If it is nil, all may.
	Takes func(core.Member) bool
	// Zone is the key of Member.Meta that holds a member's zone.
	Zone string
	// Cooldown is how long a shard that was moved is not moved again to balance the members, as far
	// as this process knows.
	Cooldown time.Duration
	// Penalty is the time for which a member that gave up a shard first gets none. It doubles up to
	// 64 times that.
	Penalty time.Duration
	// Rules and Frozen come from operators.
	Rules  Rules
	Frozen bool
	bounds map[uint64]bool // hashes at which a range must begin (true), or must not
	// release lists the shards that operators release from quarantine.
	release map[string]bool
	wall    time.Time // the time by this process's clock
	// estimates holds the loads of shards whose ranges changed, until their owners report them.
	estimates     map[string]estimate
	ledger        []spent // of the last minute
	PrepareBudget time.Duration
	// Quarantine is complete: its defaults are filled in.
	Quarantine Quarantine

	inFlight map[string]flight // shards on their way to their assigned owner
	strikes  map[core.SessionID]strike
	barred   map[core.SessionID]bool // not eligible when last seen
	repeat   map[int32]bool          // moves to be written again
	// unprepared lists the shards that stay because their next owners could not prepare them.
	unprepared map[int32]bool
	calm       func() *core.View  // returns the last view in which every member of the table lived; may be nil
	lost       map[int32][]string // by slot of a member that is gone: shards that it had a lease of
	before     []record           // at the last plan
	// undecided lists the shards that get no owner until it is known whether a process joins
	// again.
	undecided []int32
	untaken   []untaken            // shards that do not take their ranges
	rests     map[string]time.Time // until then the range of a shard that did not take or give is not changed
	times     []planTime
}

// restsFor is the duration of such a rest. A rest is needed because another attempt may fail
// too, and would refuse the keys again.
const restsFor = 10 * time.Minute

// untaken is a shard that does not take its range, and the reason.
type untaken struct{ shard, why string }

// flight is the token of a shard's record when its move was planned, and the time of the plan.
type flight struct {
	token core.Token
	since time.Duration
}

// lost is the number of penalties after which an unexecuted move is planned again. Its holder may
// have first seen its lease after the plan, and ignores such a plan.
const lost = 4

type strike struct {
	n     int
	until time.Duration
}

// planTime is when this process learned of a plan.
type planTime struct {
	number int64
	at     time.Duration
}

// Outcome is a plan that was written, and its Cluster.
type Outcome struct {
	Number  int64
	Cluster *Cluster
	Plan    *Plan
	// Moves are the moves that were written, in the order of shards. They are the Plan's moves,
	// and those of shards that were taken over without a plan.
	Moves []Move

	change *planChange // nil: no change
	// again reports that work may be left although the view does not change, because a budget, a
	// cooldown or a penalty prevents it now.
	again bool
}

// next makes a plan from a table, a view, and the loads of shards, if any are known. settled
// lists the givers of splits and merges that are complete. now is the duration since some fixed
// point. The caller applies the change to the table after writing it.
func (p *planner) next(now time.Duration, t *assignments, v *core.View, loads measured, settled []string) (*Outcome, error) {
	if p.inFlight == nil {
		p.inFlight, p.strikes, p.barred = map[string]flight{}, map[core.SessionID]strike{}, map[core.SessionID]bool{}
		p.rests = map[string]time.Time{}
	}
	fresh := t.names == nil || !slices.Equal(t.specs, p.Specs) || !t.keys.same(p.Keys)
	if fresh { // another set: start again, with the current owners
		var err error
		if t, err = p.begin(t); err != nil {
			return nil, err
		}
		clear(p.inFlight)
		settled = nil
	}
	p.remember(now, t.number)
	p.repeat, p.unprepared = map[int32]bool{}, map[int32]bool{}

	c := &Cluster{Members: p.members(now, v), Rules: p.Rules, Frozen: p.Frozen, Begun: t.keys.Shards}
	c.Moved, c.Urgent = p.spent(now)
	p.bar(now, v, c)
	index := make(map[core.SessionID]int32, len(c.Members))
	for i := range c.Members {
		index[c.Members[i].ID] = int32(i)
	}
	assigned := make([]int32, len(t.members)) // slot to member
	for slot, m := range t.members {
		assigned[slot] = None
		if i, ok := index[m.ID]; ok && m.ID != "" {
			assigned[slot] = i
		}
	}
	out := &Outcome{Cluster: c}
	records := p.shards(now, t, v, c, assigned, index, loads, out)
	out.Plan = p.Assigner.Plan(c)
	out.again = out.again || out.Plan.Unfinished
	out.change = p.change(now, t, out, assigned, records, fresh)
	p.ranges(t, v, out, settled, fresh)
	p.spend(now, t, out, loads.told)
	return out, nil
}

// ranges adds the changes of ranges and of suspected shards to the change.
func (p *planner) ranges(t *assignments, v *core.View, out *Outcome, settled []string, fresh bool) {
	ch := out.change
	held := map[int32]bool{}
	if !fresh { // a base has neither; the next plan has both
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
		out.Moves = slices.DeleteFunc(out.Moves, func(m Move) bool { return held[m.Shard] })
	}
	if out.change = ch; ch.nothing() {
		out.change = nil
	}
}

// begin returns the table of another set of shards, without owners. The ranges of a keyspace do not
// change.
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

// divide adds splits and merges, and those that are complete. It leaves out impossible ones. The
// assigner sees the ranges again, and its next plan may differ.
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

// measured holds the known loads, from Options.Loads and from the owners' reports.
type measured struct {
	said map[string]float64
	told map[string]*shardReport
}

// measure fills in a shard's load.
func (p *planner) measure(s *Shard, loads measured) {
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

// estimate is the expected load of a shard after a split or merge, until a newer report arrives
// than the last at that time.
type estimate struct {
	shardReport
	told *shardReport
}

// spent is the load that a plan moved, and when.
type spent struct {
	at     time.Duration
	load   float64
	urgent bool
}

// spent returns the load that the plans of the last minute moved, and whether one was urgent.
func (p *planner) spent(now time.Duration) (load float64, urgent bool) {
	p.ledger = slices.DeleteFunc(p.ledger, func(x spent) bool { return x.at < now-time.Minute })
	for _, x := range p.ledger {
		load += x.load
		urgent = urgent || x.urgent
	}
	return load, urgent
}

// spend records the load that a plan moves, and estimates the loads of shards whose ranges it
// changes.
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
		p.estimate(x.Name, told[x.Name], x, Range{x.Range.From, s.At[0]})
		for i, h := range s.At {
			r := Range{h, x.Range.To}
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
		both := Shard{Range: join(a.Range, b.Range), Load: a.Load + b.Load, Parts: slices.Concat(a.Parts, b.Parts)}
		if a.Parts == nil || b.Parts == nil {
			both.Parts = nil
		}
		to := shards[m.To].Name
		p.estimate(to, told[to], &both, both.Range)
	}
}

// estimate records the part of a shard's load in a range that another shard gets.
func (p *planner) estimate(shard string, told *shardReport, of *Shard, r Range) {
	if !of.told() {
		return
	}
	if p.estimates == nil {
		p.estimates = map[string]estimate{}
	}
	p.estimates[shard] = estimate{shardReport{Rate: of.within(r), Parts: partsIn(of.Parts, r)}, told}
}

// partsIn returns the parts that lie in a range, cut at its ends.
func partsIn(parts []Part, r Range) (out []Part) {
	for _, p := range parts {
		from, last := max(p.Range.From, r.From), min(p.Range.To-1, r.To-1)
		if from > last {
			continue
		}
		share := (float64(last-from) + 1) / (float64(p.Range.To-1-p.Range.From) + 1)
		out = append(out, Part{Range{from, last + 1}, p.Load * share})
	}
	return out
}

// members returns the candidates, in the order of their sessions.
func (p *planner) members(now time.Duration, v *core.View) []Member {
	var out []Member
	for i := range v.Members {
		m := &v.Members[i]
		if p.Takes != nil && !p.Takes(*m) {
			continue
		}
		out = append(out, Member{ID: m.Session, Node: m.Node, Zone: m.Meta[p.Zone], Weight: m.Weight,
			Drain: m.Draining, Full: now < p.strikes[m.Session].until, Capacity: capacityOf(m)})
	}
	slices.SortFunc(out, func(a, b Member) int { return cmp.Compare(a.ID, b.ID) })
	for id := range p.strikes {
		if _, lives := v.Member(id); !lives {
			delete(p.strikes, id)
		}
	}
	return out
}

// bar drains the members that are not eligible (C15). A member that becomes eligible again counts
// as one that gave up shards, so that shards do not move to and fro with it. While no member is
// eligible, all members keep their shards.
func (p *planner) bar(now time.Duration, v *core.View, c *Cluster) {
	var barred []*Member
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

// shards fills in the effective owner of each shard, and returns the token and session of each
// shard's record.
func (p *planner) shards(now time.Duration, t *assignments, v *core.View, c *Cluster, assigned []int32, index map[core.SessionID]int32,
	loads measured, out *Outcome) []record {
	records, owners := recordsOf(t, v, index)
	lost := p.orphan(t, records, assigned)
	c.Shards = make([]Shard, len(t.names))
	struck, busy := map[core.SessionID]bool{}, t.busy()
	fixedFrom := p.cooling(now)
	top := t.top()
	var next []int32 // heirs by shard, as slots, once needed
	var near []*Shard
	for i, name := range t.names {
		s := &c.Shards[i]
		*s = Shard{Name: name, Owner: None, Moved: t.moved[i], Fixed: t.moved[i] >= fixedFrom, Range: t.ranges[i], Busy: busy[name]}
		p.measure(s, loads)
		to, has := int32(None), owners[i]
		if o := t.owner[i]; o != None {
			to = assigned[o]
		}
		died := lost[name] || t.widowed(i, to)
		if p.near(t.suspects[name], died, top) {
			near = append(near, s)
		}
		switch {
		case to == None && has == None && t.owner[i] != None:
			if next == nil {
				next = heirs(t.members, t.owner)
			}
			if h := next[i]; h != None && assigned[h] != None && !c.Members[assigned[h]].Full {
				s.Owner = assigned[h]
			}
		case to == has, has == None:
			s.Owner = to
			delete(p.inFlight, name)
		case to == None:
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
	if len(near) <= max(few(len(t.names)), len(t.names)/2) { // otherwise the shards are not the cause
		for _, s := range near {
			s.Fixed, out.again = true, true
		}
	}
	for i := range c.Members {
		out.again = out.again || c.Members[i].Full || c.Members[i].Drain
	}
	return records
}

// record is the record of a shard.
type record struct {
	shard string
	token core.Token
	from  core.SessionID
}

// recordsOf returns the records of the table's shards, and the members that own them.
func recordsOf(t *assignments, v *core.View, index map[core.SessionID]int32) (records []record, owners []int32) {
	records, owners = make([]record, len(t.names)), make([]int32, len(t.names))
	at := 0
	for i, name := range t.names {
		owners[i], records[i].shard = None, name
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

// orphan finds the shards of which departed members had a lease. It uses the current records, the
// records at the last plan, and this process's views. It returns the shards whose owner did not
// drain.
func (p *planner) orphan(t *assignments, records []record, assigned []int32) map[string]bool {
	slots, lost := map[core.SessionID]int32{}, map[string]bool{}
	p.lost = map[int32][]string{}
	for slot, m := range assigned {
		x := &t.members[slot]
		if m != None || x.ID == "" || x.Drain {
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

// refused follows the move of a shard that has a record and belongs to a member other than the
// assigned one. It reports whether the move of a plan has ended there. Either the assigned
// member had or refused the shard and another member took it, or the assigned member could not
// prepare it.
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
		limit += p.PrepareBudget // for which its owner waits
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

// strikeOnce gives a member that refused shards one strike for all of them.
func (p *planner) strikeOnce(now time.Duration, m *Member, struck map[core.SessionID]bool) {
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

// remember records when a plan was first known here.
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

// cooling returns the number of the first plan whose moves are still protected.
func (p *planner) cooling(now time.Duration) int64 {
	for i, x := range p.times {
		// The first plan that this process saw may be of any age.
		if x.at+p.Cooldown > now && i > 0 {
			return x.number
		}
	}
	return maxNumber
}

// seat gives every member a slot of the table, and returns the slots by member. assigned lists
// the present members by slot.
func (ch *planChange) seat(t *assignments, members []Member, assigned []int32) []int32 {
	slots := make([]int32, len(members))
	for i := range slots {
		slots[i] = None
	}
	var free []int32
	for slot, m := range assigned {
		if m == None {
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
		case slots[i] != None:
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

// change returns the change that makes the table follow the plan.
func (p *planner) change(
	now time.Duration, t *assignments, out *Outcome, assigned []int32, records []record, fresh bool,
) *planChange {
	c, plan := out.Cluster, out.Plan
	out.Number = t.number + 1
	ch := &planChange{Number: out.Number}
	if fresh {
		ch = t.base(out.Number) // without members and owners yet
	}
	slots := ch.seat(t, c.Members, assigned)
	why := map[int32]Reason{}
	for _, m := range plan.Moves {
		why[m.Shard] = m.Why
	}
	for i, o := range plan.Owner {
		was, to := int32(None), int32(None)
		if t.owner[i] != None {
			was = assigned[t.owner[i]]
		}
		if o != None {
			to = slots[o]
		}
		if was == o && (o != None || t.owner[i] == None) && !p.repeat[int32(i)] {
			continue
		}
		reason := why[int32(i)]
		switch {
		case reason == 0 && was == o:
			reason = t.why[i]
		case reason == 0 && p.unprepared[int32(i)]:
			reason = Unprepared
		case reason == 0:
			reason = TakenOver
		}
		ch.Moves = append(ch.Moves, slotMove{Shard: int32(i), To: to, Plan: ch.Number, Why: reason})
		out.Moves = append(out.Moves, Move{Shard: int32(i), From: was, To: o, Why: reason})
		if c.Shards[i].Owner != None && o != c.Shards[i].Owner {
			p.inFlight[t.names[i]] = flight{records[i].token, now}
			out.again = true // no view shows a move that does not happen
		}
	}
	return ch
}
