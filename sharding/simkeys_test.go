package sharding_test

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/sharding"
	"github.com/tenure-go/tenure/sharding/assign"
)

// cause is the reason why hashes have no owner.
type cause uint8

const (
	moving   cause = iota // from one member to another in order
	crashed               // their owner died
	divided               // they are given to another shard
	isolated              // their shard is in quarantine
	causes
)

// A segment contains the hashes from its first hash up to the next segment, and the member that
// serves them.
type segment struct {
	from  uint64
	by    *slice // nil: no member
	since int64  // since when no member serves the segment
	until int64  // when a member must serve the hashes
	why   cause
}

// coverage divides the whole keyspace into segments. The first begins with hash 0.
type coverage struct{ segments []segment }

// cut makes a hash the beginning of a segment, and returns its index.
func (k *coverage) cut(h uint64) int {
	i, found := slices.BinarySearchFunc(k.segments, h, func(s segment, h uint64) int {
		return cmp.Compare(s.from, h)
	})
	if !found {
		s := k.segments[i-1]
		s.from = h
		k.segments = slices.Insert(k.segments, i, s)
	}
	return i
}

func (k *coverage) span(r assign.Range) []segment {
	if r.Empty() {
		return nil
	}
	i := k.cut(r.From)
	j := len(k.segments)
	if r.To != 0 {
		j = k.cut(r.To)
	}
	return k.segments[i:j]
}

// join merges neighboring segments with the same owner, inside a range and next to the range.
func (k *coverage) join(r assign.Range) {
	i := max(k.cut(r.From), 1)
	for i < len(k.segments) && (r.To == 0 || k.segments[i].from <= r.To) {
		if a, b := &k.segments[i-1], &k.segments[i]; a.by != nil && a.by == b.by {
			k.segments = slices.Delete(k.segments, i, i+1)
			continue
		}
		i++
	}
}

func (k *coverage) at(h uint64) *segment {
	i, _ := slices.BinarySearchFunc(k.segments, h, func(s segment, h uint64) int {
		if s.from <= h {
			return -1
		}
		return 1
	})
	return &k.segments[i-1]
}

func (k *coverage) rangeOf(i int) assign.Range {
	r := assign.Range{From: k.segments[i].from}
	if i+1 < len(k.segments) {
		r.To = k.segments[i+1].from
	}
	return r
}

// takeover returns how long hashes may be without an owner. This time covers a member's silence,
// its eviction and, if necessary, a plan.
func (w *world) takeover() int64 { return int64(w.c.TTL + 2*w.c.Interval + time.Second) }

// noHashes is the range of a shard without hashes.
var noHashes = assign.Range{From: 1, To: 1}

// A slice is the part of a shard that a member serves under one lease. It is the simplest form of
// sharding.Slice.
type slice struct {
	m     *member
	shard int32
	token core.Token
	has   assign.Range
	note  sharding.Note
	ready bool
	busy  bool // a change is in progress
	wait  time.Duration
}

func (w *world) lives(sl *slice) bool { return sl.m.up && sl.m.slices[sl.shard] == sl }

func (w *world) open(m *member, s int32, token core.Token) {
	sl := &slice{m: m, shard: s, token: token, has: noHashes}
	m.slices[s] = sl
	if w.load == nil {
		w.opened(sl)
		return
	}
	w.then(w.c.Delay, func() {
		w.call("get", 1)
		note := w.notes[s]
		w.then(w.c.Delay, func() {
			sl.note = note
			w.opened(sl)
		})
	})
}

func (w *world) opened(sl *slice) {
	if !w.lives(sl) {
		return
	}
	r := sl.note.Has()
	if sl.note.Map == 0 {
		var ok bool
		var err error
		if r, ok, err = w.planner.First(string(w.names[sl.shard])); err != nil {
			w.wrong("%v", err)
			return
		} else if !ok {
			return // the shard was merged, and has no range
		}
	}
	sl.ready = true
	w.serve(sl, r)
	w.advance(sl)
}

func (w *world) serve(sl *slice, r assign.Range) {
	list := w.serving.span(r)
	for i := range list {
		s := &list[i]
		switch {
		case s.by == sl:
			continue
		case s.by != nil:
			w.wrong("from hash %x on %s has the keys on %s, and %s on %s", s.from, w.names[sl.shard], sl.m.node, w.names[s.by.shard], s.by.m.node)
		case w.counting:
			w.gaps[s.why] = append(w.gaps[s.why], time.Duration(w.now-s.since))
			w.overdue(s)
		}
		s.by = sl
	}
	if sl.has = r; !r.Empty() {
		w.serving.join(r)
	}
	w.feed(sl)
}

// overdue checks how long no member served a segment.
func (w *world) overdue(s *segment) {
	if w.counting && w.now > s.until {
		w.wrong("from hash %x on nobody had the keys of %s for %v, want at most %v",
			s.from, w.planner.ShardOf(s.from), time.Duration(w.now-s.since), time.Duration(w.takeover()))
		s.until = math.MaxInt64
	}
}

func (w *world) refuse(sl *slice, r assign.Range, why cause) {
	list := w.serving.span(r)
	for i := range list {
		if s := &list[i]; s.by == sl {
			s.by, s.since, s.until, s.why = nil, w.now, w.now+w.takeover(), why
			if w.withheld(w.planner.ShardOf(s.from)) {
				s.until, s.why = math.MaxInt64, isolated
			}
		}
	}
}

// withheld reports whether a shard is in quarantine, or waits for a range from a shard in
// quarantine.
func (w *world) withheld(shard string) bool {
	c := w.planner.Change(shard)
	return w.planner.Held(shard) || c != nil && w.planner.Held(c.From)
}

func (w *world) close(m *member, s int32, why cause) {
	if sl := m.slices[s]; sl != nil {
		w.refuse(sl, sl.has, why)
		delete(m.slices, s)
	}
}

// unserved yields the segments that no member serves, with their shard.
func (w *world) unserved(yield func(s *segment, shard string)) {
	for i := range w.serving.segments {
		if s := &w.serving.segments[i]; s.by == nil {
			yield(s, w.planner.ShardOf(s.from))
		}
	}
}

// concern grants hashes that wait for a dying member the time of another takeover without an owner.
func (w *world) concern(m *member) {
	w.unserved(func(s *segment, shard string) {
		waits := m == w.boss || w.planner.Owner(shard) == m.id || w.planner.Heir(shard) == m.id || w.has(m, shard)
		if c := w.planner.Change(shard); c != nil {
			waits = waits || w.has(m, c.From)
		}
		if waits && s.until != math.MaxInt64 {
			s.until, s.why = w.now+w.takeover(), crashed
		}
	})
}

// has reports whether a shard's record names a member.
func (w *world) has(m *member, shard string) bool {
	i, ok := w.index[core.ShardID(shard)]
	return ok && w.owners[i].Session == m.id
}

// blame records that a shard without an owner was assigned to a dead member.
func (w *world) blame(shard int32) {
	w.unserved(func(s *segment, of string) {
		if of == string(w.names[shard]) {
			s.why = crashed
		}
	})
}

// taken reports whether all takers of a plan's gifts have noted their gifts.
func (w *world) taken(number int64, gifts []sharding.Gift) bool {
	for _, g := range gifts {
		if w.notes[w.index[core.ShardID(g.Shard)]].Map < number {
			return false
		}
	}
	return true
}

// poke makes the shards of a change check the change.
func (w *world) poke(c *sharding.RangeChange) {
	for _, name := range append([]string{c.From}, giftsOf(c)...) {
		s := w.index[core.ShardID(name)]
		if m := w.byID[w.owners[s].Session]; m != nil && m.slices[s] != nil {
			w.advance(m.slices[s])
		}
	}
}

func giftsOf(c *sharding.RangeChange) (out []string) {
	for _, g := range c.Gifts {
		out = append(out, g.Shard)
	}
	return out
}

// advance carries out the change in which the slice's shard takes part.
func (w *world) advance(sl *slice) {
	if !w.lives(sl) || !sl.ready || sl.busy {
		return
	}
	name := string(w.names[sl.shard])
	c := w.planner.Change(name)
	if c == nil || c.Number <= sl.note.Map {
		return
	}
	later := func(d time.Duration) {
		sl.busy = true
		w.then(d, func() { sl.busy = false; w.advance(sl) })
	}
	change := *c
	if len(sl.note.Gave) > 0 && !w.taken(sl.note.Map, sl.note.Gave) {
		w.call("get", 1)
		later(62 * time.Millisecond)
		return
	}
	if c.From == name {
		for _, g := range c.Gifts {
			if w.records[w.owners[w.index[core.ShardID(g.Shard)]].Session] == nil {
				later(50 * time.Millisecond)
				return
			}
		}
		w.giveAway(sl, &change)
		return
	}
	g := *c.Gift(name)
	w.call("get", 1)
	gave, err := w.notes[w.index[core.ShardID(c.From)]].GaveTo(c, g)
	switch {
	case err != nil:
		w.wrong("%v", err)
	case !gave:
		sl.wait = min(max(2*sl.wait, 5*time.Millisecond), time.Second)
		later(sl.wait)
	default:
		w.take(sl, &change, g)
	}
}

// giveAway makes the giver refuse the keys of its gifts, and notes the gifts.
func (w *world) giveAway(sl *slice, c *sharding.RangeChange) {
	sl.busy = true
	for _, g := range c.Gifts {
		why := divided
		if m := w.byID[w.owners[w.index[core.ShardID(g.Shard)]].Session]; m == nil || !m.up {
			why = crashed
		}
		w.refuse(sl, g.Range, why)
	}
	sl.has = c.Rest
	w.blow(c, stopped)
	w.then(w.c.Drain, func() { // the time for calls of Commit and Do
		w.note(sl, c.Given(), func() {}, func() { w.blow(c, given) })
	})
}

// take copies the shard's gift, and notes that the shard has the gift.
func (w *world) take(sl *slice, c *sharding.RangeChange, g sharding.Gift) {
	sl.busy = true
	r := sharding.Join(sl.has, g.Range)
	w.blow(c, taking)
	w.then(time.Duration(w.rng.Int64N(int64(w.c.Drain))), func() {
		w.note(sl, sharding.Note{Map: c.Number, Range: &r}, func() { w.serve(sl, r) }, func() { w.blow(c, took) })
	})
}

func (w *world) note(sl *slice, n sharding.Note, noted, inStore func()) {
	if !w.lives(sl) {
		return
	}
	w.then(w.c.Delay, func() {
		w.call("commit", 1)
		if w.owners[sl.shard].Session != sl.m.id || w.owners[sl.shard].Token != sl.token {
			return // fenced
		}
		w.notes[sl.shard] = n
		inStore()
		w.then(w.c.Delay, func() {
			if w.lives(sl) {
				sl.note, sl.busy, sl.wait = n, false, 0
				noted()
				w.advance(sl)
			}
		})
	})
}

// A blowStep is the step of a split or merge at which a process is killed.
type blowStep int

const (
	planned blowStep = iota // nothing was done yet
	stopped                 // the giver refuses the range
	given                   // the giver has noted the gift
	taking                  // the taker takes the range
	took                    // the taker has noted the gift, and does not serve the range yet
	blowSteps
)

var (
	stepNames = [...]string{"planned", "stopped", "given", "taking", "took"}
	roleNames = [...]string{"giver", "taker", "assigner"}
)

// blows records which processes to kill between the steps of splits and merges.
type blows struct {
	chosen map[string]*blowAt // by giver
	last   int64
}

type blowAt struct {
	number int64
	step   blowStep // blowSteps: none
	role   int
}

// blow kills a process at a step of a change, if this step was chosen.
func (w *world) blow(c *sharding.RangeChange, step blowStep) {
	if w.c.Blow == 0 {
		return
	}
	b := w.blows.chosen[c.From]
	if b == nil || b.number != c.Number {
		b = &blowAt{number: c.Number, step: blowSteps, role: w.rng.IntN(len(roleNames))}
		if w.rng.Float64() < w.c.Blow && w.counting && !w.ending() {
			b.step = blowStep(w.rng.IntN(int(blowSteps)))
		}
		if w.blows.chosen == nil {
			w.blows.chosen = map[string]*blowAt{}
		}
		w.blows.chosen[c.From] = b
	}
	if step != b.step || w.now < w.blows.last+int64(time.Minute) {
		return
	}
	b.step = blowSteps
	var m *member
	switch b.role {
	case 0:
		m = w.byID[w.owners[w.index[core.ShardID(c.From)]].Session]
	case 1:
		m = w.byID[w.owners[w.index[core.ShardID(c.Gifts[w.rng.IntN(len(c.Gifts))].Shard)]].Session]
	default:
		m = w.boss
	}
	if m == nil || !m.up {
		return
	}
	w.blows.last = w.now
	w.r.Blows[stepNames[step]+", "+roleNames[b.role]]++
	w.then(time.Duration(w.rng.Int64N(int64(w.c.Delay)+1)), func() {
		if m.up {
			w.crash(m)
		}
	})
}
