package sharding

import (
	"cmp"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/internal/mark"
	"github.com/tenure-go/tenure/internal/seam"
)

// Quarantine says when a shard counts as killing the processes that own it, for example by a
// request that crashes each of them. For handlers that return, there is Options.Penalty.
//
// A shard is suspected when its owner dies, that is, when a process with a lease of it ends
// without a drain. A process that joins again, within a TTL or later, did not die. After Deaths
// such deaths within Within, the shard is in quarantine: no member claims it, and all other
// shards continue. Views, the board, metrics, the log and the command tenure show the quarantine.
//
// A quarantine ends after For, or by an operator's rule (control.Release). It also ends when the
// processes turn out to be alive, or a member joins with another version in its metadata. After a
// quarantine, one more death is enough. Suspicion is recorded in the assigner's log, and survives
// the assigner. If one more death is enough for a shard, no heir claims it. The shard waits for a
// plan, unless this applies to most shards.
//
// If there are few members, more deaths are needed, for example 7 with three members. A shard is
// not put into quarantine if another shard was present at each death, or if all deaths were on one
// machine. The shards are not the cause if more than half of them, or more than three and more than
// a twentieth, are held or due. All of them are then freed.
type Quarantine struct {
	// Deaths is the number of owners that must die within Within. Default 3; below 0: no quarantine.
	Deaths int `yaml:"deaths"`
	// Within is the time in which Deaths count. Default 5 min, at least 1 s.
	Within time.Duration `yaml:"within"`
	// For is how long a quarantine lasts. Default 10 min, at least 1 s.
	For time.Duration `yaml:"for"`
	// VersionKey is the key of core.Options.Meta that holds the version of the member's program.
	// Default "version".
	VersionKey string `yaml:"version_key"`
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

// next reports whether one more death is enough.
func (q Quarantine) next(s *suspicion) bool { return len(s.Deaths) >= q.Deaths-1 }

// close reports whether one more death may be enough. top is the most deaths of any shard, because
// a shard that kills has about the most.
func (q Quarantine) close(s *suspicion, top int) bool { return q.next(s) && 4*len(s.Deaths) >= 3*top }

// top returns the most deaths of any suspect.
func (t *assignments) top() (n int) {
	for _, s := range t.suspects {
		n = max(n, len(s.Deaths))
	}
	return n
}

const (
	maxDeaths   = 64 // kept of a shard, at most
	maxVersions = 16 // kept of a quarantine, at most
	maxVersion  = 64 // largest size of a version, in bytes
)

// suspicion is the record of a shard whose owners died. Times are seconds since 1970, by the
// assigners' clocks.
type suspicion struct {
	Deaths   []int64  // the newest ones, oldest first
	Of       []uint64 // of the last len(Of) deaths: identity of the member
	Until    int64    // end of the quarantine; 0: it is in none
	Versions []string // of the members when it began
}

// death is the death of a member's process, which has one identity and dies once.
type death struct {
	at int64
	of uint64 // identity; 0: unknown
}

// key returns a death that is equal for all shards that the member owned.
func (d death) key() death {
	if d.of != 0 {
		d.at = 0
	}
	return d
}

// identity returns hashes of a member's process, in the upper half, and of its label.
func identity(m *Member) uint64 {
	return fnv1a(string(mark.Process(m.ID)))<<32 | fnv1a(m.Node)&math.MaxUint32
}

func (s *suspicion) list() []death {
	out := make([]death, len(s.Deaths))
	for i, at := range s.Deaths {
		if out[i].at = at; i >= len(s.Deaths)-len(s.Of) {
			out[i].of = s.Of[i-len(s.Deaths)+len(s.Of)]
		}
	}
	return out
}

// with returns a copy with other deaths.
func (s *suspicion) with(list []death) *suspicion {
	x := &suspicion{Until: s.Until, Versions: s.Versions}
	for _, d := range list[max(0, len(list)-maxDeaths):] {
		x.Deaths, x.Of = append(x.Deaths, d.at), append(x.Of, d.of)
	}
	return x
}

// newest returns the time of the last death, or 0 without a death.
func (s *suspicion) newest() int64 {
	if len(s.Deaths) == 0 {
		return 0
	}
	return s.Deaths[len(s.Deaths)-1]
}

// held reports whether the shard is in quarantine.
func (s *suspicion) held() bool { return s != nil && s.Until > 0 }

// without reports whether no member had a version when the quarantine began.
func (s *suspicion) without(version string) bool { return !slices.Contains(s.Versions, version) }

// isolation is the part of a plan about quarantine.
type isolation struct {
	Time     int64   // when the plan was made; 0 if it changes no suspicion
	Within   int64   // deaths before that are forgotten
	Late     []int32 // shards whose owner died
	By       []int32 // its slot, for each of Late
	Hold     []int32
	Until    int64 // end of a quarantine that begins now
	Versions []string
	Free     []int32
	Left     int // largest number of deaths that count of a freed shard
}

// die records the deaths of shards' owners. A time after the plan's time comes from a wrong
// clock, and is moved back.
func (t *assignments) die(c *planChange) {
	if c.Isolation.Time == 0 {
		return
	}
	next := make(map[string]*suspicion, len(t.suspects))
	for name, s := range t.suspects {
		list, ahead := s.list(), max(0, s.newest()-c.Isolation.Time)
		for i := range list {
			list[i].at -= ahead
		}
		if !s.held() {
			list = slices.DeleteFunc(list, func(d death) bool { return d.at < c.Isolation.Time-c.Isolation.Within })
		}
		if len(list) == 0 && !s.held() {
			continue
		}
		next[name] = s.with(list)
		if s.held() && c.Isolation.Until > 0 {
			next[name].Until = min(s.Until, c.Isolation.Until)
		}
	}
	for k, i := range c.Isolation.Late {
		d := death{at: c.Isolation.Time}
		if k < len(c.Isolation.By) {
			if slot := c.Isolation.By[k]; slot >= 0 && int(slot) < len(t.members) {
				d.of = identity(&t.members[slot])
			}
		}
		if i < 0 || int(i) >= len(t.names) {
			continue
		}
		s := next[t.names[i]]
		if s == nil {
			s = &suspicion{}
		}
		list := slices.DeleteFunc(s.list(), func(x death) bool { return x.of>>32 == d.of>>32 && d.of != 0 })
		next[t.names[i]] = s.with(append(list, d))
	}
	t.suspects = next
}

// revive removes the deaths of processes that are members again.
func (t *assignments) revive() {
	living := map[uint64]bool{}
	for i := range t.members {
		if t.members[i].ID != "" {
			living[identity(&t.members[i])>>32] = true
		}
	}
	for name, s := range t.suspects {
		list := slices.DeleteFunc(s.list(), func(d death) bool { return d.of != 0 && living[d.of>>32] })
		switch {
		case len(list) == 0 && !s.held():
			delete(t.suspects, name)
		case len(list) < len(s.Deaths):
			t.suspects[name] = s.with(list)
		}
	}
}

// suspect copies the deaths of a shard's owners to a shard that gets a range of it, if the
// latter has fewer deaths. The key that kills may be in the range.
func (t *assignments) suspect(from, to string) {
	s := t.suspects[from]
	if s == nil || s.held() || t.suspects[to].held() {
		return
	}
	if old := t.suspects[to]; old == nil || len(old.Deaths) < len(s.Deaths) {
		t.suspects[to] = &suspicion{Deaths: s.Deaths, Of: s.Of}
	}
}

// isolate begins and ends quarantines. A freed shard is on probation: its next owner's death is
// enough.
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
			x.Deaths, x.Of = old.Deaths, old.Of
		}
		t.suspects[t.names[s]] = x
		t.owner[s] = None
	}
	for _, s := range c.Isolation.Free {
		if s < 0 || int(s) >= len(t.names) || !t.suspects[t.names[s]].held() {
			return fmt.Errorf("sharding: plan %d ends a quarantine of shard %d", c.Number, s)
		}
		list := t.suspects[t.names[s]].list()
		list = list[len(list)-max(min(len(list)-1, c.Isolation.Left), 0):]
		for i := range list {
			list[i].at = c.Isolation.Time
		}
		t.suspects[t.names[s]] = (&suspicion{}).with(list)
	}
	return nil
}

// isolate adds the shards that a plan puts into quarantine or frees. It returns the undecided
// shards, and whether any suspicion is left. Suspicion ends with time.
func (p *planner) isolate(wall time.Time, t *assignments, v *core.View, ch *planChange) (undecided []int32, again bool) {
	q := p.Quarantine
	if q.Deaths <= 0 {
		return nil, false
	}
	versions := p.versions(v)
	is := &ch.Isolation
	is.Time, is.Within, is.Until = wall.Unix(), int64(q.Within/time.Second), wall.Add(q.For).Unix()
	p.deaths(t, v, ch)
	after := assignments{names: t.names, owner: t.owner, members: t.members, suspects: t.suspects}
	after.die(ch)
	_ = after.seat(ch) // made for this table
	after.revive()
	members := 0
	for i := range after.members {
		if after.members[i].ID != "" {
			members++
		}
	}
	enough := func(n, all int) bool { return n >= q.Deaths+2*all/max(members, 3) }
	changed := len(is.Late) > 0 || len(after.suspects) != len(t.suspects)
	var held []int32
	for name, s := range after.suspects {
		i, ok := indexOf(t, name)
		was := t.suspects[name]
		if was != nil {
			changed = changed || was.newest() > is.Time || was.Until > is.Until
		}
		switch {
		case !ok || !s.held():
		case s.Until <= is.Time, p.release[name], slices.ContainsFunc(versions, s.without),
			len(s.Deaths) < len(was.Deaths) && !enough(len(s.Deaths), len(was.Deaths)):
			is.Free = append(is.Free, int32(i))
		default:
			held = append(held, int32(i))
		}
	}
	due := p.due(&after, enough)
	if len(held)+len(due) > min(few(len(t.names)), len(t.names)/2) { // the shards are not the cause
		is.Free, due = append(is.Free, held...), nil
	}
	ttl := time.Duration(0)
	for i := range v.Members {
		ttl = max(ttl, v.Members[i].TTL)
	}
	for _, i := range due {
		if ttl > 0 && is.Time-after.suspects[t.names[i]].newest() <= int64((ttl+time.Second-1)/time.Second) {
			undecided = append(undecided, i)
		} else {
			is.Hold = append(is.Hold, i)
		}
	}
	slices.Sort(is.Hold)
	slices.Sort(is.Free)
	is.Left = q.Deaths - 1
	if len(is.Hold) > 0 {
		is.Versions = versions
	}
	if len(is.Hold)+len(is.Free) == 0 && !changed {
		*is = isolation{}
	}
	return undecided, len(t.suspects)+len(after.suspects) > 0
}

// due returns the shards that seem to kill their owners. Such a shard has enough of all deaths, on
// more than one machine, and no other shard was present at each of them. Deaths that one shard
// explains do not count for the others.
func (p *planner) due(t *assignments, enough func(n, all int) bool) (out []int32) {
	lists, all, explained := map[string][]death{}, map[death]bool{}, map[death]bool{}
	var names []string
	for name, s := range t.suspects {
		list := s.list()
		for i, d := range list {
			list[i] = d.key()
			all[list[i]] = d.of != 0
			explained[list[i]] = explained[list[i]] || s.held()
		}
		lists[name] = list
		if _, ok := indexOf(t, name); ok && !s.held() && len(s.Deaths) >= p.Quarantine.Deaths && !p.release[name] {
			names = append(names, name)
		}
	}
	slices.SortFunc(names, func(a, b string) int {
		return cmp.Or(cmp.Compare(len(lists[b]), len(lists[a])), cmp.Compare(a, b))
	})
	for _, name := range names {
		known := 0
		for d, is := range all {
			if is && !explained[d] {
				known++
			}
		}
		own := slices.DeleteFunc(slices.Clone(lists[name]), func(d death) bool { return explained[d] })
		if len(own) < p.Quarantine.Deaths || !enough(len(own), known) || machines(own) < min(2, len(own)) {
			continue
		}
		alone := true
		for other, list := range lists {
			alone = alone && (other == name || slices.ContainsFunc(own, func(d death) bool { return !slices.Contains(list, d) }))
		}
		if i, _ := indexOf(t, name); alone {
			for _, d := range own {
				explained[d] = true
			}
			out = append(out, int32(i))
		}
	}
	return out
}

// machines returns the number of node labels in a list of deaths.
func machines(list []death) int {
	labels := map[uint64]bool{}
	for _, d := range list {
		labels[d.of&math.MaxUint32+uint64(d.at)] = true
	}
	return len(labels)
}

// deaths adds the deaths of the members whose slots a plan frees, for each shard that they had a
// lease of. If a member's process is a member again, it did not die.
func (p *planner) deaths(t *assignments, v *core.View, ch *planChange) {
	living := map[core.SessionID]bool{}
	for i := range v.Members {
		living[mark.Process(v.Members[i].Session)] = true
	}
	for _, slot := range ch.Gone {
		if living[mark.Process(t.members[slot].ID)] {
			continue
		}
		for _, name := range p.lost[slot] {
			if i, ok := indexOf(t, name); ok {
				ch.Isolation.Late, ch.Isolation.By = append(ch.Isolation.Late, int32(i)), append(ch.Isolation.By, slot)
			}
		}
	}
}

// calm reports whether every member of the table lives, by a view.
func (t *assignments) calm(v *core.View) bool {
	living := map[core.SessionID]bool{"": true}
	for i := range v.Members {
		living[v.Members[i].Session] = true
	}
	for _, id := range v.Silent { // the member that evicts a silent one sees its own claims first
		delete(living, id)
	}
	return !slices.ContainsFunc(t.members, func(m Member) bool { return !living[m.ID] })
}

// tellQuarantine logs the quarantines that a plan began and ended.
func tellQuarantine(log *slog.Logger, out *Outcome, t *assignments) {
	for _, i := range out.change.Isolation.Hold {
		shard := out.Cluster.Shards[i].Name
		log.Warn("tenure: sharding: shard in quarantine", slog.String("shard", shard), slog.String("why", t.asideOf(shard).Why))
	}
	for _, i := range out.change.Isolation.Free {
		shard := out.Cluster.Shards[i].Name
		log.Warn("tenure: sharding: shard out of quarantine", slog.String("shard", shard), slog.Int64("plan", out.Number))
	}
}

// widowed reports whether the i-th shard's owner died. to is the member that the owner is now, or
// None if it is gone.
func (t *assignments) widowed(i int, to int32) bool {
	o := t.owner[i]
	return o != None && to == None && !t.members[o].Drain
}

// few returns the largest number of suspected shards. Above it, the members are the cause.
func few(shards int) int { return max(3, shards/20) }

// near reports whether one more death of a shard's owners is enough, including the death that this
// plan counts. Such a shard is not moved to balance the members, because the assigned member would
// claim it before the plan that counts the next death.
func (p *planner) near(s *suspicion, died bool, top int) bool {
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
	return p.Quarantine.close(&now, top)
}

// versions returns the versions in members' metadata, without duplicates.
func (p *planner) versions(v *core.View) (out []string) {
	for i := range v.Members {
		if p.Takes != nil && !p.Takes(v.Members[i]) {
			continue
		}
		x := v.Members[i].Meta[p.Quarantine.VersionKey]
		x = strings.ToValidUTF8(x[:min(len(x), maxVersion)], "")
		if x != "" && len(out) < maxVersions && !slices.Contains(out, x) {
			out = append(out, x)
		}
	}
	slices.Sort(out)
	return out
}

// asideOf returns the reason why a shard should have no owner: it is in quarantine, or it was of
// the keyspace and has ended.
func (t *assignments) asideOf(shard string) seam.Aside {
	if s := t.suspects[shard]; s.held() {
		return s.aside()
	}
	if t.keys.Name == "" {
		return seam.Aside{}
	}
	if i, err := t.keys.index(shard); err != nil || i >= t.next {
		return seam.Aside{}
	}
	if _, ok := indexOf(t, shard); ok {
		return seam.Aside{}
	}
	return merged
}

var merged = seam.Aside{Why: "its range was merged with another one"}

func (s *suspicion) aside() seam.Aside {
	until := time.Unix(s.Until, 0).UTC()
	why := fmt.Sprintf("in quarantine until %s: %d of its owners died", until.Format(time.RFC3339), len(s.Deaths))
	return seam.Aside{Why: why, Until: until}
}
