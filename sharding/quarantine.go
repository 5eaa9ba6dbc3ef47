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
	"github.com/tenure-go/tenure/internal/keyspace"
	"github.com/tenure-go/tenure/internal/mark"
	"github.com/tenure-go/tenure/internal/seam"
	"github.com/tenure-go/tenure/sharding/assign"
)

// Quarantine configures when the assigner blames a shard for the deaths of the processes that own
// it. For example, requests to the shard may crash every process that owns the shard. For handlers
// that merely return, see Options.Penalty.
//
// A shard is suspected when its owner dies, that is, when a process that holds a lease on the shard
// ends without a drain. A process that joins again, whether within a TTL or later, did not die. If
// Deaths owners die within the period Within, the assigner puts the shard into quarantine. During a
// quarantine, no member claims the shard, and all other shards stay in service. Views, the board,
// metrics, the log and the tenure command show the quarantine.
//
// A quarantine ends after the duration For, or when an operator releases the shard
// (control.Release). A quarantine also ends when the processes turn out to be alive, or when a
// member joins with a new version in its metadata. After a quarantine, one more death is enough for
// the next quarantine. The assigner's log records suspicions, so the next assigner knows them. If
// one more death would put a shard into quarantine, no heir claims the shard, and the shard waits
// for a plan. If most shards are suspected in this way, heirs do claim them.
//
// If there are few members, more deaths are needed, for example 7 with three members. A shard is
// not put into quarantine if another shard was present at each death, or if all deaths were on one
// machine. If too many shards are in quarantine or due for it, the shards are not the cause, and
// the assigner frees all of them. "Too many" means more than half of all shards, or more than three
// shards that are also more than a twentieth of all shards.
type Quarantine struct {
	// Deaths is the number of owners that must die within the period Within. The default is 3. If
	// Deaths is negative, there are no quarantines.
	Deaths int `yaml:"deaths"`
	// Within is the period for counting deaths. The default is 5 min, and the minimum is 1 s.
	Within time.Duration `yaml:"within"`
	// For is how long a quarantine lasts. The default is 10 min, and the minimum is 1 s.
	For time.Duration `yaml:"for"`
	// VersionKey is the key of the program's version in core.Options.Meta. The default is
	// "version".
	VersionKey string `yaml:"version_key"`
}

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

func (q Quarantine) next(s *suspicion) bool { return len(s.Deaths) >= q.Deaths-1 }

// close reports whether one more death may be enough for a quarantine. A shard that kills its
// owners has about as many deaths as top, the highest number among all shards.
func (q Quarantine) close(s *suspicion, top int) bool { return q.next(s) && 4*len(s.Deaths) >= 3*top }

func (t *assignments) top() (n int) {
	for _, s := range t.suspects {
		n = max(n, len(s.Deaths))
	}
	return n
}

const (
	maxDeaths   = 64 // maximum number of deaths kept for a shard
	maxVersions = 16 // maximum number of versions kept for a quarantine
	maxVersion  = 64 // maximum size of a version, in bytes
)

// suspicion records the deaths of a shard's owners. Times are seconds since 1970, by the assigners'
// clocks.
type suspicion struct {
	Deaths   []int64  // times of the newest deaths, oldest first
	Of       []uint64 // identities of the members in the last len(Of) deaths
	Until    int64    // end of the quarantine; 0 if there is no quarantine
	Versions []string // the members' versions when the quarantine began
}

// A member's process has one identity and dies once.
type death struct {
	at int64
	of uint64 // identity; 0: unknown
}

// The key of a death is the same for every shard that the member owned.
func (d death) key() death {
	if d.of != 0 {
		d.at = 0
	}
	return d
}

// The upper half is a hash of the member's process, and the lower half is a hash of its label.
func identity(m *assign.Member) uint64 {
	return keyspace.FNV(string(mark.Process(m.ID)))<<32 | keyspace.FNV(m.Node)&math.MaxUint32
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

// The returned copy has the given deaths instead of its own.
func (s *suspicion) with(list []death) *suspicion {
	x := &suspicion{Until: s.Until, Versions: s.Versions}
	for _, d := range list[max(0, len(list)-maxDeaths):] {
		x.Deaths, x.Of = append(x.Deaths, d.at), append(x.Of, d.of)
	}
	return x
}

func (s *suspicion) newest() int64 {
	if len(s.Deaths) == 0 {
		return 0
	}
	return s.Deaths[len(s.Deaths)-1]
}

func (s *suspicion) held() bool { return s != nil && s.Until > 0 }

// If no member had this version when the quarantine began, the result is true.
func (s *suspicion) without(version string) bool { return !slices.Contains(s.Versions, version) }

// isolation is the part of a plan that concerns quarantine.
type isolation struct {
	Time     int64   // when the plan was made; 0 if it changes no suspicion
	Within   int64   // deaths before this time are forgotten
	Late     []int32 // shards whose owner died
	By       []int32 // slots of the owners of the shards in Late
	Hold     []int32
	Until    int64 // end of a quarantine that begins now
	Versions []string
	Free     []int32
	Left     int // how many of a freed shard's deaths still count
}

// If a recorded time is later than the plan's time, a clock was wrong, and the shard's times are
// moved back.
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

// A shard that gets part of a suspect's range inherits the suspect's deaths, unless it already has
// at least as many. The key that kills the owners may be in that part.
func (t *assignments) suspect(from, to string) {
	s := t.suspects[from]
	if s == nil || s.held() || t.suspects[to].held() {
		return
	}
	if old := t.suspects[to]; old == nil || len(old.Deaths) < len(s.Deaths) {
		t.suspects[to] = &suspicion{Deaths: s.Deaths, Of: s.Of}
	}
}

// A freed shard is on probation: its next owner's death is enough for another quarantine.
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
		t.owner[s] = assign.None
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

// isolate adds the shards that a plan puts into quarantine or frees, returns the undecided shards,
// and reports whether any suspicion may expire.
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
	_ = after.seat(ch) // ch was made for this table
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

// due returns the shards that seem to kill their owners. Such a shard was present at enough of the
// deaths, and these deaths occurred on more than one machine. No other shard was present at all of
// these deaths. A death that one shard explains does not count against other shards.
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

func machines(list []death) int {
	labels := map[uint64]bool{}
	for _, d := range list {
		labels[d.of&math.MaxUint32+uint64(d.at)] = true
	}
	return len(labels)
}

// When a plan frees a member's slot, its death is recorded for every shard that it leased. A
// process that has become a member again did not die.
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

func (t *assignments) calm(v *core.View) bool {
	living := map[core.SessionID]bool{"": true}
	for i := range v.Members {
		living[v.Members[i].Session] = true
	}
	for _, id := range v.Silent { // the member that evicts a silent member sees its own claims first
		delete(living, id)
	}
	return !slices.ContainsFunc(t.members, func(m assign.Member) bool { return !living[m.ID] })
}

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

// widowed reports whether the i-th shard's owner died. If the owner is no longer a member, to
// equals None.
func (t *assignments) widowed(i int, to int32) bool {
	o := t.owner[i]
	return o != assign.None && to == assign.None && !t.members[o].Drain
}

// If more shards than this are suspected, the members are the cause.
func few(shards int) int { return max(3, shards/20) }

// near reports whether one more death, besides any that this plan counts, would be enough for a
// quarantine. Such a shard is not moved to balance the members, because its new owner would claim
// it before the next plan counts another death.
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

// A shard should have no owner if it is in quarantine, or if it belonged to the keyspace and was
// merged into another shard.
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
