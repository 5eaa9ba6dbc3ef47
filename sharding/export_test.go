package sharding

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/sharding/assign"
)

// The simulation uses these parts of the protocol for splits and merges.
type (
	Note        = note
	RangeChange = rangeChange
	Gift        = gift
)

// Has exports has.
func (n *note) Has() assign.Range { return n.has() }

// GaveTo exports gave.
func (n *note) GaveTo(c *RangeChange, g Gift) (bool, error) { return n.gave(c, g) }

// Given exports given.
func (c *rangeChange) Given() Note { return c.given() }

// Gift exports gift.
func (c *rangeChange) Gift(shard string) *Gift { return c.gift(shard) }

// Join exports join.
func Join(a, b assign.Range) assign.Range { return join(a, b) }

// MetaKey exports metaKey.
const MetaKey = metaKey

// Step returns the step that the Manager of a member takes for a shard.
func Step(contended, holds, leave, alone bool, successor core.SessionID) (contends, withdraws, hands bool) {
	s := situation{contended: contended, leave: leave, alone: alone, successor: successor}
	if holds {
		s.state = core.LeaseHeld
	}
	x := s.step()
	return x == contend, x == withdraw, x == handOver
}

// NewSimulated returns a planner for a keyspace without a log.
func NewSimulated(a assign.Assigner, keys Keyspace, interval time.Duration, q Quarantine) (*Simulated, error) {
	q, err := q.resolve()
	if err == nil {
		err = keys.Validate()
	}
	if err != nil {
		return nil, err
	}
	s := &Simulated{table: &assignments{}, quarantine: q, interval: interval}
	s.new = func() *planner { return &planner{Assigner: a, Keys: keys, Penalty: 2 * interval, Quarantine: q} }
	return s, s.Restart()
}

// Simulated plans like an assigner, and keeps the assignments of its plans.
type Simulated struct {
	new        func() *planner
	planner    *planner
	table      *assignments
	heirs      []int32 // slots, by shard
	cautious   bool
	quarantine Quarantine
	interval   time.Duration
	undecided  map[string]bool // according to the plan in force
	next       map[string]bool // according to the last plan
	reader     loadReader
	read       map[core.SessionID]time.Duration
	parts      assembly
	entry      core.Seq
}

// Published is the result of a plan, by the names of shards.
type Published struct {
	Moved, Added, Gone []string
	Suspects           []string // shards that entered or left quarantine, or came close to it
	Freed              []string // shards that left quarantine
}

// Restart creates a new assigner from a base in the log. The new assigner knows only the
// assignments. If the base differs from the table, Restart returns an error.
func (s *Simulated) Restart() error {
	last := s.planner
	if s.planner = s.new(); last != nil {
		s.planner.before = last.before // a member that is elected has seen the views
	}
	s.reader = loadReader{reports: map[core.SessionID]*report{}}
	s.read = map[core.SessionID]time.Duration{}
	if s.table.names == nil {
		return nil
	}
	base := s.logged(s.table.base(s.table.number))
	next, err := s.table.apply(base)
	if err != nil {
		panic(err)
	}
	was := s.table
	s.table = next
	for _, x := range []struct {
		what          string
		before, after any
	}{
		{"shards", was.names, next.names}, {"ranges", was.ranges, next.ranges}, {"owners", was.owner, next.owner},
		{"next shard", was.next, next.next}, {"splits and merges", was.changes, next.changes}, {"suspects", values(was.suspects), values(next.suspects)},
	} {
		if a, b := fmt.Sprintf("%+v", x.before), fmt.Sprintf("%+v", x.after); a != b {
			return fmt.Errorf("a base has other %s: %.200s became %.200s", x.what, a, b)
		}
	}
	return nil
}

func values(of map[string]*suspicion) map[string]suspicion {
	out := map[string]suspicion{}
	for name, s := range of {
		out[name] = *s
	}
	return out
}

// logged returns a change after it was encoded for the log and decoded again.
func (s *Simulated) logged(c *planChange) *planChange {
	for _, part := range c.encode(partBytes) {
		s.entry++
		read, err := s.parts.add(core.Entry{Seq: s.entry, Payload: part})
		if err != nil {
			panic(err) // this process wrote it
		}
		if read != nil {
			return read
		}
	}
	panic("the parts of a plan are no plan")
}

// Due returns the members with load whose reports the assigner reads now.
func (s *Simulated) Due(now time.Duration, v *core.View) (out []core.SessionID) {
	budget := max(1, int(readAtOnce*s.interval/time.Second))
	for i := range v.Members {
		m := &v.Members[i]
		last, before := s.read[m.Session]
		if _, has := m.Meta[metaKey]; has && len(out) < budget && (!before || now-last >= reportEvery(len(v.Members), s.interval)) {
			s.read[m.Session] = now
			out = append(out, m.Session)
		}
	}
	return out
}

// Hear makes the assigner read a report.
func (s *Simulated) Hear(b []byte) error {
	r, err := decodeReport(b)
	if err == nil {
		s.reader.reports[r.Session] = r
	}
	return err
}

// Next makes a plan from a view at a given time, and Write puts the plan into force. Next also
// reports whether there may be more work even if the view does not change.
func (s *Simulated) Next(now time.Duration, wall time.Time, v *core.View, settled []string) (out *Outcome, again bool) {
	ruled := s.planner.obey(v, wall)
	s.reader.read, s.reader.seen = map[core.SessionID]time.Time{}, nil
	s.reader.merge(v)
	out, err := s.planner.next(now, s.table, v, measured{told: s.reader.now}, settled)
	if err != nil {
		panic(err) // the keyspace is valid
	}
	s.next = map[string]bool{}
	for _, i := range s.planner.undecided {
		s.next[s.table.names[i]] = true
	}
	return out, ruled || out.again || len(s.reader.reports) > 0
}

// Write puts a plan into force, and returns its changes, or nil if the plan has none.
func (s *Simulated) Write(out *Outcome) *Published {
	if out.change == nil {
		return nil
	}
	was := s.table
	next, err := was.apply(s.logged(out.change))
	if err != nil {
		panic(err) // made for this table
	}
	s.table, s.heirs = next, assign.Heirs(next.members, next.owner)
	p := &Published{}
	for _, m := range out.Moves {
		p.Moved = append(p.Moved, out.Cluster.Shards[m.Shard].Name)
	}
	if !slices.Equal(was.names, next.names) {
		p.Added, p.Gone = without(next.names, was), without(was.names, next)
	}
	before := s.cautious
	near := 0
	for _, x := range next.suspects {
		if s.quarantine.close(x, next.top()) {
			near++
		}
	}
	s.cautious = 2*near <= len(next.names)
	all := map[string]bool{}
	for _, t := range []*assignments{was, next} {
		for name := range t.suspects {
			all[name] = true
		}
	}
	state := func(t *assignments, name string, cautious bool) [2]bool {
		x, undecided := t.suspects[name], s.undecided
		if t == next {
			undecided = s.next
		}
		return [2]bool{x.held() || undecided[name], x != nil && cautious && s.quarantine.close(x, t.top())}
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		a, b := state(was, name, before), state(next, name, s.cautious)
		if a != b || b[1] {
			p.Suspects = append(p.Suspects, name)
		}
		if a[0] && !b[0] {
			p.Freed = append(p.Freed, name)
		}
	}
	s.undecided = s.next
	return p
}

func without(names []string, t *assignments) (out []string) {
	for _, name := range names {
		if !t.has(name) {
			out = append(out, name)
		}
	}
	return out
}

// Owner returns the session to which a shard is assigned, or "" if there is no such session.
func (s *Simulated) Owner(shard string) core.SessionID {
	if i, ok := indexOf(s.table, shard); ok {
		return s.table.session(i)
	}
	return ""
}

// Heir returns the session that takes a shard over when its owner dies, or "" if there is no such
// session.
func (s *Simulated) Heir(shard string) core.SessionID {
	if i, ok := indexOf(s.table, shard); ok && s.heirs[i] != assign.None {
		return s.table.members[s.heirs[i]].ID
	}
	return ""
}

// Shards returns the table's shards.
func (s *Simulated) Shards() []string { return s.table.names }

// Held reports whether a shard is in quarantine, or will be in quarantine unless a process joins
// again.
func (s *Simulated) Held(shard string) bool { return s.table.suspects[shard].held() || s.next[shard] }

// Tied reports whether another shard was present at each death of a shard's owners.
func (s *Simulated) Tied(shard string) bool {
	own := s.table.suspects[shard]
	for name, x := range s.table.suspects {
		if own != nil && name != shard && !slices.ContainsFunc(own.Of, func(d uint64) bool { return !slices.Contains(x.Of, d) }) {
			return true
		}
	}
	return false
}

// Waits returns the result of Manager.waits for a member and a shard.
func (s *Simulated) Waits(shard string, member core.SessionID) bool {
	x := s.table.suspects[shard]
	if x == nil || s.quarantine.Deaths < 0 {
		return false
	}
	return x.held() || s.cautious && s.quarantine.close(x, s.table.top()) && s.Owner(shard) != member
}

// First returns the first range of a shard without a note. ok is false if the table lacks the
// shard.
func (s *Simulated) First(shard string) (r assign.Range, ok bool, err error) {
	i, ok := indexOf(s.table, shard)
	if ok {
		r, err = s.table.first(shard, i)
	}
	return r, ok, err
}

// Change returns a shard's split or merge, or nil.
func (s *Simulated) Change(shard string) *RangeChange { return s.table.change(shard) }

// Changes returns the incomplete splits and merges.
func (s *Simulated) Changes() []RangeChange { return s.table.changes }

// ShardOf returns the shard of a hash.
func (s *Simulated) ShardOf(hash uint64) string { return s.table.ranged().ShardOf(hash) }
