package sharding

import (
	"cmp"
	"slices"
	"time"

	"github.com/tenure-go/tenure/core"
)

// planner is the assigner's mind: it compares the table with what the view shows,
// and says what to change. It does no I/O and reads no clock. Not safe for
// concurrent use.
//
// A shard counts as its assigned owner's while that lives, from the plan on: a
// hand-over under way, or stuck, is not planned anew. Who took a shard whose
// assigned owner is gone keeps it, as far as the shares allow, and its heir counts
// as having taken it when nobody did yet: it is claiming it now. A member that loses
// to another what it was assigned gets nothing more for a while, which doubles,
// because its handler seems to give up.
type planner struct {
	Assigner Assigner
	Specs    []string // of the shard set
	// Takes says which members own shards at all. Nil: all.
	Takes func(core.Member) bool
	// Zone is the key of Member.Meta that holds a member's zone.
	Zone string
	// Cooldown is how long a shard that was moved is not moved again for balance's
	// sake, as far as this process knows.
	Cooldown time.Duration
	// Penalty is how long a member that gave up a shard gets nothing, at first; it
	// doubles up to 64 times that.
	Penalty time.Duration
	// Rules and Frozen are operators'.
	Rules  Rules
	Frozen bool

	inFlight map[int32]flight // shards on their way to their assigned owner
	strikes  map[core.SessionID]strike
	barred   map[core.SessionID]bool // not eligible when they were seen last
	repeat   map[int32]bool          // moves to be written again
	times    []planTime
}

// flight is the token of a shard's record when its move was planned, and when.
type flight struct {
	token core.Token
	since time.Duration
}

// lost is after how many penalties a move that did not happen is written again:
// its holder may have seen the lease only when the plan was there already.
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

// Outcome is a plan that was written, and the Cluster it was made for.
type Outcome struct {
	Number  int64
	Cluster *Cluster
	Plan    *Plan
	// Moves are those that were written, by shard: the Plan's, and those of shards that
	// were taken over without one.
	Moves []Move

	change *planChange // nil: nothing to change
	// again says that something may be left to do although the view does not
	// change: a budget, a cooldown or a penalty holds it back.
	again bool
}

// next plans from a table, a view, and the loads of shards, which may be nil. now
// is a duration since any fixed point. The change is to be applied to the table
// when it was written.
func (p *planner) next(now time.Duration, t *assignments, v *core.View, loads map[string]float64) (*Outcome, error) {
	if p.inFlight == nil {
		p.inFlight, p.strikes, p.barred = map[int32]flight{}, map[core.SessionID]strike{}, map[core.SessionID]bool{}
	}
	fresh := t.names == nil || !slices.Equal(t.specs, p.Specs)
	if fresh { // another set: start over, with what is owned
		names, err := Expand(p.Specs...)
		if err != nil {
			return nil, err
		}
		n := len(names)
		t = &assignments{
			number: t.number, specs: p.Specs, names: names,
			owner: make([]int32, n), moved: make([]int64, n), why: make([]Reason, n),
		}
		for i := range t.owner {
			t.owner[i] = None
		}
		clear(p.inFlight)
	}
	p.remember(now, t.number)
	p.repeat = map[int32]bool{}

	c := &Cluster{Members: p.members(now, v), Rules: p.Rules, Frozen: p.Frozen}
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
	tokens := p.shards(now, t, v, c, assigned, index, loads, out)
	out.Plan = p.Assigner.Plan(c)
	out.again = out.again || out.Plan.Unfinished
	out.change = p.change(now, t, out, assigned, tokens, fresh)
	return out, nil
}

// members are the candidates, in the order of their sessions.
func (p *planner) members(now time.Duration, v *core.View) []Member {
	var out []Member
	for i := range v.Members {
		m := &v.Members[i]
		if p.Takes != nil && !p.Takes(*m) {
			continue
		}
		out = append(out, Member{ID: m.Session, Node: m.Node, Zone: m.Meta[p.Zone], Weight: m.Weight,
			Drain: m.Draining, Full: now < p.strikes[m.Session].until})
	}
	slices.SortFunc(out, func(a, b Member) int { return cmp.Compare(a.ID, b.ID) })
	for id := range p.strikes {
		if _, lives := v.Member(id); !lives {
			delete(p.strikes, id)
		}
	}
	return out
}

// bar empties the members that are not eligible (C15), as those that drain. One that is
// eligible again counts as one that gave up shards, so that they do not follow it to and
// fro. While nobody is eligible everybody keeps what they have.
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

// shards fills in who is to be taken for the owner of each shard, and returns the
// tokens of their records.
func (p *planner) shards(now time.Duration, t *assignments, v *core.View, c *Cluster, assigned []int32, index map[core.SessionID]int32,
	loads map[string]float64, out *Outcome) []core.Token {
	tokens := make([]core.Token, len(t.names))
	c.Shards = make([]Shard, len(t.names))
	struck := map[core.SessionID]bool{}
	fixedFrom := p.cooling(now)
	var next []int32 // heirs by shard, as slots, once wanted
	at := 0
	for i, name := range t.names {
		s := &c.Shards[i]
		*s = Shard{Name: name, Owner: None, Moved: t.moved[i], Fixed: t.moved[i] >= fixedFrom}
		if loads != nil {
			s.Load = loads[name]
		}
		to, has := int32(None), int32(None)
		if o := t.owner[i]; o != None {
			to = assigned[o]
		}
		for at < len(v.Shards) && v.Shards[at].Shard < name {
			at++
		}
		if at < len(v.Shards) && v.Shards[at].Shard == name {
			tokens[i] = v.Shards[at].Token
			if m, ok := index[v.Shards[at].Session]; ok {
				has = m
			}
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
			delete(p.inFlight, int32(i))
		case to == None:
			s.Owner, s.Moved = has, t.number+1
		default:
			out.again = true
			if s.Owner = to; p.refused(now, int32(i), tokens[i]) {
				s.Owner, s.Moved = has, t.number+1
				p.strikeOnce(now, &c.Members[to], struck)
			}
		}
		out.again = out.again || s.Fixed
	}
	for i := range c.Members {
		out.again = out.again || c.Members[i].Full || c.Members[i].Drain
	}
	return tokens
}

// refused follows the move of a shard that another member than the assigned one has,
// whose record has the token. It reports whether the move has ended there: the shard
// was with the assigned member, or was refused, and another one took it.
func (p *planner) refused(now time.Duration, shard int32, token core.Token) bool {
	f, moving := p.inFlight[shard]
	if !moving {
		f = flight{token, now}
		p.inFlight[shard] = f
	}
	if now-f.since > lost*p.Penalty {
		p.inFlight[shard], p.repeat[shard] = flight{f.token, now}, true
	}
	if f.token == token {
		return false
	}
	delete(p.inFlight, shard)
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

// remember notes when a plan was first known here.
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

// cooling is the number of the first plan whose moves are not to be touched yet.
func (p *planner) cooling(now time.Duration) int64 {
	for i, x := range p.times {
		// The first plan that this process saw says nothing about when it was made.
		if x.at+p.Cooldown > now && i > 0 {
			return x.number
		}
	}
	return maxNumber
}

// seat gives every member a slot of the table, and returns them by member. assigned
// has the members that are there already, by slot.
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
		m.Full, m.Ineligible = false, ""
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

// change is what makes the table say what the plan does; nil if it does already.
func (p *planner) change(
	now time.Duration, t *assignments, out *Outcome, assigned []int32, tokens []core.Token, fresh bool,
) *planChange {
	c, plan := out.Cluster, out.Plan
	out.Number = t.number + 1
	ch := &planChange{Number: out.Number, Base: fresh}
	if fresh {
		ch.Specs = t.specs
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
		case reason == 0:
			reason = TakenOver
		}
		ch.Moves = append(ch.Moves, slotMove{Shard: int32(i), To: to, Plan: ch.Number, Why: reason})
		out.Moves = append(out.Moves, Move{Shard: int32(i), From: was, To: o, Why: reason})
		if c.Shards[i].Owner != None && o != c.Shards[i].Owner {
			p.inFlight[int32(i)] = flight{tokens[i], now}
		}
	}
	if !fresh && len(ch.Moves)+len(ch.Seats)+len(ch.Gone) == 0 {
		return nil
	}
	return ch
}
