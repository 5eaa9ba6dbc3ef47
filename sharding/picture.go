package sharding

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/core/control"
)

// Picture is what a Manager knows of ranges and loads, for people. See Manager.Picture.
type Picture struct {
	// Ranges yields the shards of the keyspace with their ranges, in the order of hashes, as
	// Map.All does.
	Ranges iter.Seq2[string, Range]
	// Loads are the loads of shards by name, in the unit of Slice.Add a second, as members
	// reported them last. The load of a missing shard is not known. It is not to be modified.
	Loads map[string]float64
	// Capacity is the capacity of the members that report load and have one (Options.Capacity).
	Capacity map[core.SessionID]float64
	// Elsewhere are the shards, at most 256, whose owner is not in the zone that Rules.Prefer of a
	// Balance names for them, and that zone.
	Elsewhere map[string]string
}

// maxElsewhere bounds Picture.Elsewhere.
const maxElsewhere = 256

// pictureFor is how long loads are shown that are not read again.
const pictureFor = 10 * time.Second

// Picture returns what this member knows of ranges and loads, without waiting. While it is called,
// Run reads the members' reports as an assigner does: once in an Interval at most, and at most 20
// reports a second. While no member has load it reads none. So the first answer after a pause of
// some 10 s has no loads, and the next ones do. The loads of Options.Loads are not among them.
func (m *Manager) Picture() Picture {
	signal(m.watched)
	p := Picture{Ranges: m.Map().All(), Capacity: map[core.SessionID]float64{}}
	v := m.e.View()
	for i := range v.Members {
		if c := capacityOf(&v.Members[i]); c > 0 {
			p.Capacity[v.Members[i].Session] = c
		}
	}
	if a, ok := m.o.Assigner.(Balance); ok {
		p.Elsewhere = elsewhere(v, a.Rules.Prefer, m.o.ZoneKey)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if time.Since(m.loadsAt) < pictureFor+2*m.o.Interval {
		p.Loads = m.loads
	}
	return p
}

// elsewhere are the shards of a view that are not in the zone they prefer, and that zone.
func elsewhere(v *core.View, prefer map[string]string, key string) map[string]string {
	if len(prefer) == 0 {
		return nil
	}
	zones, out := map[core.SessionID]string{}, map[string]string{}
	for i := range v.Members {
		zones[v.Members[i].Session] = v.Members[i].Meta[key]
	}
	for i := range v.Shards {
		o := &v.Shards[i]
		z, ok := lookUp(prefer, o.Shard)
		if at, lives := zones[o.Session]; ok && lives && at != z && len(out) < maxElsewhere {
			out[o.Shard] = z
		}
	}
	return out
}

// publish makes loads known to Picture.
func (m *Manager) publish(reports map[string]*shardReport) {
	loads := make(map[string]float64, len(reports))
	for shard, r := range reports {
		loads[shard] = r.Rate
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.loads, m.loadsAt = loads, time.Now()
}

// watchLoad reads the members' reports while Picture is called, unless this member's assigner
// reads them.
func (m *Manager) watchLoad(ctx context.Context) {
	var r *loadReader
	var looked time.Time
	for {
		select {
		case <-m.watched:
		case <-ctx.Done():
			return
		}
		if !m.reads.Load() {
			if r == nil || time.Since(looked) > pictureFor+2*m.o.Interval {
				r = &loadReader{m: m} // what it read before is old
			}
			looked = time.Now()
			r.look(ctx, m.e.View())
			m.publish(r.now)
		}
		pause(ctx, m.o.Interval)
	}
}

// RangeEvent says that a split or a merge has begun or ended. It began when a plan said so, and
// ended when another one said that every shard serves what it got.
type RangeEvent struct {
	Plan  int64    // that it began with
	From  string   // the shard that gives ranges; after a merge it has none
	To    []string // the shards that get them; From, where it has again what nobody could take
	Merge bool
	Ended bool
	// Rule, at the beginning, is the operators' rule that asked for it, as far as this member has
	// read the rules. Nil: the assigner decided.
	Rule *control.Rule
}

// String says what happened, and who decided, without the shards.
func (e RangeEvent) String() string {
	what := "split"
	if e.Merge {
		what = "merge"
	}
	if slices.Contains(e.To, e.From) {
		what = "return of a range that could not be taken"
	}
	switch {
	case e.Ended:
		return what + " ended"
	case e.Rule == nil:
		return what + " begun by the assigner"
	}
	return fmt.Sprintf("%s begun by a rule of %s, %q", what, e.Rule.Author, e.Rule.Reason)
}

// tellRanges tells Options.OnRange what a plan began and ended.
func (m *Manager) tellRanges(before, after *assignments) {
	if before.names == nil {
		return
	}
	missing := func(t *assignments, c rangeChange) bool {
		return !slices.ContainsFunc(t.changes, func(x rangeChange) bool { return x.From == c.From && x.Number == c.Number })
	}
	var events []RangeEvent
	add := func(c rangeChange, ended bool, rule *control.Rule) {
		if len(c.Gifts) == 0 {
			c.Gifts = []gift{{Shard: c.From}}
		}
		events = append(events, RangeEvent{Plan: c.Number, From: c.From, To: named(c.Gifts), Merge: c.Rest.Empty(), Ended: ended, Rule: rule})
	}
	for _, c := range before.changes {
		if missing(after, c) {
			add(c, true, nil)
		}
	}
	for _, c := range after.changes {
		if missing(before, c) {
			add(c, false, ruleOf(after, c, m.e.View().Rules))
		}
	}
	if len(events) > 0 {
		m.o.OnRange(events)
	}
}

// ruleOf is the rule in force that asks for a change; nil if there is none.
func ruleOf(t *assignments, c rangeChange, rules []control.Rule) *control.Rule {
	kind, at := control.Split, map[uint64]bool{}
	for _, g := range c.Gifts {
		at[g.Range.From] = true
	}
	if c.Rest.Empty() && len(c.Gifts) == 1 {
		kind = control.Merge
		g := c.Gifts[0]
		if i, ok := indexOf(t, g.Shard); ok && t.ranges[i].From == g.Range.From { // the lower range was given
			at = map[uint64]bool{g.Range.To: true}
		}
	}
	now := time.Now()
	for _, r := range rules {
		if h, err := ParseHash(r.Hash); err == nil && r.Kind == kind && at[h] && r.Active(now) {
			return &r
		}
	}
	return nil
}
