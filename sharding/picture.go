package sharding

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/core/control"
	"github.com/tenure-go/tenure/internal/keyspace"
)

// Picture shows people what a Manager knows of ranges and loads: see Manager.Picture.
type Picture struct {
	// Ranges yields the shards of the keyspace with their ranges, in the order of hashes, as
	// Map.All does.
	Ranges iter.Seq2[string, Range]
	// Loads holds the loads of shards by name, as members last reported them, in the unit of
	// Slice.Add per second. The load of a missing shard is unknown. Do not modify the map.
	Loads map[string]float64
	// Capacity holds the capacities of the members that report load and have set
	// Options.Capacity.
	Capacity map[core.SessionID]float64
	// Elsewhere maps shards, at most 256, to the zone that Rules.Prefer of a Balance names for
	// them, if their owner is in another zone.
	Elsewhere map[string]string
}

// maxElsewhere is the largest size of Picture.Elsewhere.
const maxElsewhere = 256

// pictureFor is how long loads are shown after they were last read.
const pictureFor = 10 * time.Second

// Picture returns this member's knowledge of ranges and loads, without waiting. While Picture is
// being called, Run reads the members' reports as an assigner does. It reads at most once in an
// Interval, and at most 20 reports a second. While no member has load, it reads no report. After
// a pause of about 10 s, the first answer has no loads. The loads of Options.Loads are not
// included.
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

// elsewhere returns the shards of a view that are not in the zone that they prefer, with that
// zone.
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

// publish passes loads to Picture.
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
				r = &loadReader{m: m} // its earlier reports are old
			}
			looked = time.Now()
			r.look(ctx, m.e.View())
			m.publish(r.now)
		}
		pause(ctx, m.o.Interval)
	}
}

// RangeEvent is the beginning or the end of a split or a merge. The change begins with the plan
// that orders it. It ends with a later plan, once every shard serves its range.
type RangeEvent struct {
	Plan  int64    // the plan that began it
	From  string   // the shard that gives ranges; after a merge, it has no range
	To    []string // the shards that get them; only From if it takes back a range that was not taken
	Merge bool
	Ended bool
	// At the beginning of a change, Rule is the operators' rule that requested it, if this member
	// has read that rule. Nil means that the assigner decided.
	Rule *control.Rule
	Why  string // if a range returns: why it was not taken
}

// String returns what happened, and who decided, without the shards.
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
	case e.Why != "":
		return "return of a range begun: " + e.Why
	case e.Rule == nil:
		return what + " begun by the assigner"
	}
	return fmt.Sprintf("%s begun by a rule of %s, %q", what, e.Rule.Author, e.Rule.Reason)
}

// tellRanges passes the changes that a plan began and ended to Options.OnRange.
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
		events = append(events, RangeEvent{Plan: c.Number, From: c.From, To: named(c.Gifts), Merge: c.Rest.Empty(), Ended: ended, Rule: rule,
			Why: c.Why})
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

// ruleOf returns the active rule that requests a change, or nil.
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
		if h, err := keyspace.ParseHash(r.Hash); err == nil && r.Kind == kind && at[h] && r.Active(now) {
			return &r
		}
	}
	return nil
}
