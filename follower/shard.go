package follower

import (
	"slices"
	"time"

	"github.com/tenure-go/tenure/core"
)

// Tailer.mu guards shard.
type shard struct {
	id       core.ShardID
	head     core.Seq // number of the last entry known
	arrivals []arrival
	cursors  []*cursor
	waiting  int    // number of WaitFor calls in progress
	changed  signal // wakes waiters when a cursor advances
	sweep    uint64 // number of the last read of all heads that listed the shard

	missed      core.Seq // entries up to this number may be as old as missedSince
	missedSince instant
}

// arrival records when entries became known. The entries after the previous arrival, up to the
// number through, were written at or after the time at.
type arrival struct {
	through core.Seq
	at      time.Time
}

const (
	// If a shard has more than maxArrivals, learn merges two neighbors, and some entries then look
	// older than they are.
	maxArrivals = 16
	// arrivalEvery is the minimum time between two arrivals.
	arrivalEvery = time.Millisecond / 8
)

// If no Applier follows the shard, the result is nil.
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

// learn records that the log contains entry seq, which was written at or after the time at.
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

// merge combines the two arrivals that are closest in time.
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

func (s *shard) applied() core.Seq {
	least := s.head
	for _, l := range s.cursors {
		least = min(least, l.pos.Seq)
	}
	return least
}

// miss records that the entries known so far may have been written at any time after since.
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
		s.arrivals = nil // an idle shard keeps no arrivals
	} else if n > 0 {
		s.arrivals = slices.Delete(s.arrivals, 0, n)
	}
}

// lower records that the log ends before the known head.
func (s *shard) lower(head core.Seq) {
	s.head, s.missed = head, min(s.missed, head)
	for i := range s.arrivals {
		s.arrivals[i].through = min(s.arrivals[i].through, head)
	}
	s.prune()
}

// After a position went back to an entry before the first arrival, reopen forgets the known
// entries' ages.
func (s *shard) reopen() { s.arrivals = append(s.arrivals[:0], arrival{through: s.head}) }

// age returns how long the oldest entry after pos has been known, or 0 if there is no such entry.
func (s *shard) age(pos core.Seq, now time.Time) time.Duration {
	for _, m := range s.arrivals {
		if m.through > pos {
			return now.Sub(m.at)
		}
	}
	return 0
}
