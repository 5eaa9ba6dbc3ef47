package follower

import (
	"slices"
	"time"

	"github.com/tenure-go/tenure/core"
)

// shard is the known state of one shard's log, and the cursors that follow it.
// Tailer.mu guards it.
type shard struct {
	id       core.ShardID
	head     core.Seq // last entry known
	arrivals []arrival
	cursors  []*cursor
	waiting  int    // calls of WaitFor
	changed  signal // a cursor advanced
	sweep    uint64 // the last reading of all heads that listed it

	missed      core.Seq // entries up to this one may be as old as missedSince
	missedSince instant
}

// arrival records when entries became known: the entries after the previous arrival, up to
// through, were not written before at.
type arrival struct {
	through core.Seq
	at      time.Time
}

const (
	// maxArrivals limits the arrivals of a shard. Above this limit, two neighbours are merged,
	// which makes the lag of some entries look older than it is.
	maxArrivals = 16
	// arrivalEvery is the shortest time between two arrivals.
	arrivalEvery = time.Millisecond / 8
)

// shard returns the state of a shard, or nil if no Applier follows it.
func (t *Tailer) shard(id core.ShardID) *shard {
	if s := t.shards[id]; s != nil {
		return s
	}
	var s *shard
	for _, f := range t.followed {
		if f.wants(id) {
			if s == nil {
				s = &shard{id: id}
				t.shards[id] = s
			}
			s.cursors = append(s.cursors, &cursor{f: f, s: s, pos: Position{Shard: string(id)},
				limit: min(firstLimit, t.o.Batch)})
		}
	}
	return s
}

// learn records that the log has an entry seq, not written before at.
func (s *shard) learn(seq core.Seq, at time.Time) {
	if seq <= s.head {
		return
	}
	s.head = seq
	n := len(s.arrivals)
	for n > 0 && s.arrivals[n-1].at.After(at) {
		n-- // younger entries count as this old, so that arrivals stay in order
	}
	s.arrivals = s.arrivals[:n]
	if n > 0 && at.Sub(s.arrivals[n-1].at) < arrivalEvery {
		s.arrivals[n-1].through = seq
		return
	}
	if n == maxArrivals {
		s.merge()
	}
	s.arrivals = append(s.arrivals, arrival{through: seq, at: at})
}

// merge merges the two arrivals that are closest in time.
func (s *shard) merge() {
	k := 1
	for i := range s.arrivals[1:] {
		if s.arrivals[i+1].at.Sub(s.arrivals[i].at) < s.arrivals[k].at.Sub(s.arrivals[k-1].at) {
			k = i + 1
		}
	}
	s.arrivals[k-1].through = s.arrivals[k].through
	s.arrivals = slices.Delete(s.arrivals, k, k+1)
}

// applied returns the last entry that all Appliers have applied.
func (s *shard) applied() core.Seq {
	least := s.head
	for _, l := range s.cursors {
		least = min(least, l.pos.Seq)
	}
	return least
}

// miss records that entries known now may have been written at any time since.
func (s *shard) miss(since instant) {
	if s.missed <= s.applied() {
		s.missedSince = since
	}
	s.missed = s.head
}

// prune forgets the arrivals of entries that all Appliers have applied.
func (s *shard) prune() {
	least := s.applied()
	n := 0
	for n < len(s.arrivals) && s.arrivals[n].through <= least {
		n++
	}
	if n == len(s.arrivals) {
		s.arrivals = nil // an idle shard keeps nothing
	} else if n > 0 {
		s.arrivals = slices.Delete(s.arrivals, 0, n)
	}
}

// lower records that the log ends at an earlier entry than was known.
func (s *shard) lower(head core.Seq) {
	s.head, s.missed = head, min(s.missed, head)
	for i := range s.arrivals {
		s.arrivals[i].through = min(s.arrivals[i].through, head)
	}
	s.prune()
}

// reopen forgets the ages of the entries known so far, because a position went back behind the
// entries that the arrivals cover.
func (s *shard) reopen() { s.arrivals = append(s.arrivals[:0], arrival{through: s.head}) }

// age returns the time for which the oldest entry after pos has been known, or 0 if there is no
// such entry.
func (s *shard) age(pos core.Seq, now time.Time) time.Duration {
	for _, m := range s.arrivals {
		if m.through > pos {
			return now.Sub(m.at)
		}
	}
	return 0
}
