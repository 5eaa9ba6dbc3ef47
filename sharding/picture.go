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
	"github.com/tenure-go/tenure/sharding/assign"
)

// Picture contains what a Manager knows about ranges and loads, for display. See Manager.Picture.
type Picture struct {
	// Ranges yields the keyspace's shards with their ranges, in the order of hashes, as Map.All
	// does.
	Ranges iter.Seq2[string, assign.Range]
	// Loads maps shards' names to the loads that members last reported, in units of Slice.Add per
	// second. If a shard is missing from Loads, its load is unknown. Do not modify the map.
	Loads map[string]float64
	// Capacity contains the capacities of members that report load and have set Options.Capacity.
	Capacity map[core.SessionID]float64
	// Elsewhere maps shards whose owner is outside their preferred zone to that zone, for up to 256
	// shards. The zones come from an assign.Balance's Rules.Prefer.
	Elsewhere map[string]string
}

const maxElsewhere = 256

// After loads were last read, Picture returns them for this time.
const pictureFor = 10 * time.Second

// Picture returns what this member knows about ranges and loads, without waiting. While the
// application calls Picture regularly, Run reads the members' reports at most once per Interval,
// and at most 20 reports a second. While no member has load, Run reads no reports. If Picture has
// not been called for about 10 s, the next Picture contains no loads. A Picture never includes the
// loads from Options.Loads.
func (m *Manager) Picture() Picture {
	signal(m.watched)
	p := Picture{Ranges: m.Map().All(), Capacity: map[core.SessionID]float64{}}
	v := m.e.View()
	for i := range v.Members {
		if c := capacityOf(&v.Members[i]); c > 0 {
			p.Capacity[v.Members[i].Session] = c
		}
	}
	if a, ok := m.o.Assigner.(assign.Balance); ok {
		p.Elsewhere = elsewhere(v, a.Rules.Prefer, m.o.ZoneKey)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if time.Since(m.loadsAt) < pictureFor+2*m.o.Interval {
		p.Loads = m.loads
	}
	return p
}

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
		z, ok := keyspace.LookUp(prefer, o.Shard)
		if at, lives := zones[o.Session]; ok && lives && at != z && len(out) < maxElsewhere {
			out[o.Shard] = z
		}
	}
	return out
}

func (m *Manager) publish(reports map[string]*shardReport) {
	loads := make(map[string]float64, len(reports))
	for shard, r := range reports {
		loads[shard] = r.Rate
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.loads, m.loadsAt = loads, time.Now()
}

// While Picture is called regularly, watchLoad reads the members' reports, unless this member's
// assigner already reads them.
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
				r = &loadReader{m: m} // the reports that the previous reader holds are old
			}
			looked = time.Now()
			r.look(ctx, m.e.View())
			m.publish(r.now)
		}
		pause(ctx, m.o.Interval)
	}
}

// RangeEvent is the beginning or the end of a split or merge. A split or merge begins with the plan
// that requests it. The change ends with a later plan, once every shard serves its new range.
type RangeEvent struct {
	Plan  int64    // the plan that began it
	From  string   // the shard that gives ranges; a merge leaves it without a range
	To    []string // the shards that get the ranges; only From if it takes back a range that was not taken
	Merge bool
	Ended bool
	// Rule is the operators' rule that requested the change, if this member has read that rule.
	// Rule is set only at the beginning of a change. If Rule is nil, the assigner decided.
	Rule *control.Rule
	Why  string // if From takes a range back: why the range was not taken
}

// String describes what happened and who decided it, but omits the shards' names.
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

func ruleOf(t *assignments, c rangeChange, rules []control.Rule) *control.Rule {
	kind, at := control.Split, map[uint64]bool{}
	for _, g := range c.Gifts {
		at[g.Range.From] = true
	}
	if c.Rest.Empty() && len(c.Gifts) == 1 {
		kind = control.Merge
		g := c.Gifts[0]
		if i, ok := indexOf(t, g.Shard); ok && t.ranges[i].From == g.Range.From { // the gift is the lower range
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
