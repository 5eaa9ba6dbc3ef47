package sharding

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tenure-go/tenure/core"
)

// Quarantine says when a shard counts as one that kills the processes that own it, such as by a
// request that crashes each of them. For handlers that return there is Options.Penalty.
//
// A shard is suspected when its owner dies: when its session ends without a drain. After Deaths
// such deaths within Within it is in quarantine: nobody claims it, and everything else goes on.
// Views, the board, metrics and the command tenure show it. It ends after For, by an operator's
// rule (control.Release), or when a member comes whose metadata have another version;
// then one more death is enough. Suspicion is in the assigner's log, and survives the assigner.
// A shard for which one death more is enough is claimed by no heir: it waits for a plan, unless
// that is so for most of all shards.
//
// Where more shards than a twentieth of all, and than three, have so many deaths, it is not the
// shards: none of them is put into quarantine, unless few have twice as many deaths as the others.
type Quarantine struct {
	Deaths     int           // default 3; below 0: no quarantine
	Within     time.Duration // default 5 min, at least 1 s
	For        time.Duration // default 10 min, at least 1 s
	VersionKey string        // of core.Options.Meta; default "version"
}

// resolve returns a copy with the defaults filled in.
func (q Quarantine) resolve() (Quarantine, error) {
	if q.Deaths == 0 {
		q.Deaths = 3
	}
	if q.Within == 0 {
		q.Within = 5 * time.Minute
	}
	if q.For == 0 {
		q.For = 10 * time.Minute
	}
	if q.VersionKey == "" {
		q.VersionKey = "version"
	}
	switch {
	case q.Deaths > maxDeaths:
		return q, optErr("Quarantine.Deaths %d is above %d: lower it", q.Deaths, maxDeaths)
	case q.Within < time.Second || q.For < time.Second:
		return q, optErr("Quarantine.Within %v or For %v is below 1s: raise it", q.Within, q.For)
	}
	return q, nil
}

// next reports whether one death more is enough.
func (q Quarantine) next(s *suspicion) bool { return len(s.Deaths) >= q.Deaths-1 }

const (
	maxDeaths   = 16 // that are kept of a shard
	maxVersions = 16 // that are kept of a quarantine
	maxVersion  = 64 // bytes of one
)

// suspicion is of a shard whose owners died. Times are seconds since 1970, by the assigners'
// clocks.
type suspicion struct {
	Deaths   []int64  // the newest ones, oldest first
	Until    int64    // end of the quarantine; 0: it is in none
	Versions []string // of the members when it began
}

// held reports whether the shard is in quarantine.
func (s *suspicion) held() bool { return s != nil && s.Until > 0 }

// without reports whether no member had a version when the quarantine began.
func (s *suspicion) without(version string) bool { return !slices.Contains(s.Versions, version) }

// isolation is a plan's part about quarantine.
type isolation struct {
	Time     int64   // when it was made; 0 if nothing follows from that
	Within   int64   // deaths before that are forgotten
	Late     []int32 // shards whose owner died before it handed them over to the assigned one
	Hold     []int32
	Until    int64
	Versions []string
	Free     []int32
	Left     int // deaths that count of a shard which comes free, at most
}

// die notes the deaths of the members in slots that are set free, unless they drained.
func (t *assignments) die(c *planChange) {
	if c.Isolation.Time == 0 {
		return
	}
	dead := map[int32]bool{}
	for _, slot := range c.Gone {
		if slot >= 0 && int(slot) < len(t.members) && t.members[slot].ID != "" && !t.members[slot].Drain {
			dead[slot] = true
		}
	}
	next := make(map[string]*suspicion, len(t.suspects))
	for name, s := range t.suspects {
		old := *s
		if old.Deaths = slices.Clone(s.Deaths); !old.held() {
			old.Deaths = slices.DeleteFunc(old.Deaths, func(at int64) bool { return at < c.Isolation.Time-c.Isolation.Within })
		}
		if len(old.Deaths) > 0 {
			next[name] = &old
		}
	}
	late := map[int32]bool{}
	for _, i := range c.Isolation.Late {
		late[i] = true
	}
	for i, o := range t.owner {
		if (o == None || !dead[o]) && !late[int32(i)] {
			continue
		}
		s := next[t.names[i]]
		if s == nil {
			s = &suspicion{}
			next[t.names[i]] = s
		}
		s.Deaths = append(s.Deaths, c.Isolation.Time)
		s.Deaths = s.Deaths[max(0, len(s.Deaths)-maxDeaths):]
	}
	t.suspects = next
}

// suspect counts the deaths of a shard's owners for one that gets a range of it as well, if that has
// fewer: the key that kills may be there.
func (t *assignments) suspect(from, to string) {
	s := t.suspects[from]
	if s == nil || s.held() || t.suspects[to].held() {
		return
	}
	if old := t.suspects[to]; old == nil || len(old.Deaths) < len(s.Deaths) {
		t.suspects[to] = &suspicion{Deaths: s.Deaths}
	}
}

// isolate begins and ends quarantines. A shard that comes free is on probation: its next owner's
// death is enough.
func (t *assignments) isolate(c *planChange) error {
	if t.suspects == nil && len(c.Isolation.Hold) > 0 {
		t.suspects = map[string]*suspicion{}
	}
	for _, s := range c.Isolation.Hold {
		if s < 0 || int(s) >= len(t.names) {
			return fmt.Errorf("sharding: plan %d puts shard %d into quarantine", c.Number, s)
		}
		x := &suspicion{Until: c.Isolation.Until, Versions: c.Isolation.Versions}
		if old := t.suspects[t.names[s]]; old != nil {
			x.Deaths = old.Deaths
		}
		t.suspects[t.names[s]] = x
		t.owner[s] = None
	}
	for _, s := range c.Isolation.Free {
		if s < 0 || int(s) >= len(t.names) || !t.suspects[t.names[s]].held() {
			return fmt.Errorf("sharding: plan %d ends a quarantine of shard %d", c.Number, s)
		}
		n := len(t.suspects[t.names[s]].Deaths)
		x := &suspicion{}
		for range max(min(n-1, c.Isolation.Left), 0) {
			x.Deaths = append(x.Deaths, c.Isolation.Time)
		}
		t.suspects[t.names[s]] = x
	}
	return nil
}

// isolate adds to a plan which shards it puts into quarantine, and which it frees. It reports
// whether there is suspicion left, all of which ends by time.
func (p *planner) isolate(wall time.Time, t *assignments, v *core.View, ch *planChange) (again bool) {
	q := p.Quarantine
	if q.Deaths <= 0 {
		return false
	}
	versions := p.versions(v)
	is := &ch.Isolation
	is.Time, is.Within = wall.Unix(), int64(q.Within/time.Second)
	for _, d := range p.late {
		if slices.ContainsFunc(ch.Gone, func(slot int32) bool { return t.members[slot].ID == d.of && !t.members[slot].Drain }) {
			is.Late = append(is.Late, d.shard)
		}
	}
	after := assignments{names: t.names, owner: t.owner, members: t.members, suspects: t.suspects}
	after.die(ch)
	counts := map[int][]int32{} // shards by deaths
	most, due := 0, 0
	for name, s := range after.suspects {
		i, ok := indexOf(t, name)
		if !ok {
			continue
		}
		switch {
		case s.held() && (s.Until <= is.Time || p.release[name] || slices.ContainsFunc(versions, s.without)):
			is.Free = append(is.Free, int32(i))
		case s.held():
		case len(s.Deaths) >= q.Deaths && !p.release[name]:
			counts[len(s.Deaths)] = append(counts[len(s.Deaths)], int32(i))
			most = max(most, len(s.Deaths))
			due++
		}
	}
	switch {
	case due == 0:
	case due <= few(len(t.names)):
		for _, list := range counts {
			is.Hold = append(is.Hold, list...)
		}
	case len(counts[most]) <= few(len(t.names)):
		next := 0
		for n := range counts {
			if n < most {
				next = max(next, n)
			}
		}
		if most >= 2*next { // in a crash loop of all members counts differ by one or two
			is.Hold = counts[most]
		}
	}
	slices.Sort(is.Hold)
	slices.Sort(is.Free)
	is.Left = q.Deaths - 1
	if len(is.Hold) > 0 {
		is.Until, is.Versions = wall.Add(q.For).Unix(), versions
	}
	died := slices.ContainsFunc(ch.Gone, func(slot int32) bool { return !t.members[slot].Drain })
	if len(is.Hold)+len(is.Free) == 0 && !died && len(after.suspects) == len(t.suspects) {
		*is = isolation{}
	}
	return len(t.suspects)+len(after.suspects) > 0
}

// widowed reports whether the i-th shard's owner died, if to is the member that it is now: None if it is
// gone.
func (t *assignments) widowed(i int, to int32) bool {
	o := t.owner[i]
	return o != None && to == None && !t.members[o].Drain
}

// few is up to how many shards of all are suspected for themselves. Where more are, their members die.
func few(shards int) int { return max(3, shards/20) }

// near reports whether one death more of a shard's owners is enough, with the one that this plan
// counts. Then it is not moved for balance's sake: the assigned member would claim it before the plan
// that counts the next death.
func (p *planner) near(s *suspicion, died bool) bool {
	if p.Quarantine.Deaths <= 0 || s == nil && !died {
		return false
	}
	now := suspicion{}
	if s != nil {
		oldest := p.wall.Unix() - int64(p.Quarantine.Within/time.Second)
		now.Deaths = slices.DeleteFunc(slices.Clone(s.Deaths), func(at int64) bool { return at < oldest })
	}
	if died {
		now.Deaths = append(now.Deaths, p.wall.Unix())
	}
	return p.Quarantine.next(&now)
}

// versions are those that members have in their metadata, without doubles.
func (p *planner) versions(v *core.View) (out []string) {
	for i := range v.Members {
		x := v.Members[i].Meta[p.Quarantine.VersionKey]
		x = strings.ToValidUTF8(x[:min(len(x), maxVersion)], "")
		if x != "" && len(out) < maxVersions && !slices.Contains(out, x) {
			out = append(out, x)
		}
	}
	slices.Sort(out)
	return out
}

// asideOf says why a shard is not meant to have an owner: it is in quarantine, or was of the
// keyspace and has ended.
func (t *assignments) asideOf(shard string) core.Aside {
	if s := t.suspects[shard]; s.held() {
		return s.aside()
	}
	if t.keys.Name == "" {
		return core.Aside{}
	}
	if i, err := t.keys.index(shard); err != nil || i >= t.next {
		return core.Aside{}
	}
	if _, ok := indexOf(t, shard); ok {
		return core.Aside{}
	}
	return merged
}

var merged = core.Aside{Why: "its range was merged with another one"}

func (s *suspicion) aside() core.Aside {
	until := time.Unix(s.Until, 0).UTC()
	why := fmt.Sprintf("in quarantine until %s: %d of its owners died", until.Format(time.RFC3339), len(s.Deaths))
	return core.Aside{Why: why, Until: until}
}
