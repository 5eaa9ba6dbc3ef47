package follower

import (
	"slices"
	"time"

	"github.com/tenure-go/tenure/core"
)

// shard is what is known of one shard's log, and who follows it. Tailer.mu guards
// it.
type shard struct {
	id      core.ShardID
	head    core.Seq // last entry known
	marks   []mark
	cursors []*cursor
	waiting int    // callers of WaitFor
	changed signal // a cursor advanced
	sweep   uint64 // the last reading of all heads that listed it

	missed      core.Seq // entries up to this one may be as old as missedSince
	missedSince instant
}

// mark says when entries became known: those up to through, and after the mark
// before, not earlier than at.
type mark struct {
	through core.Seq
	at      time.Time
}

const (
	// maxMarks bounds the marks of a shard. Beyond, two neighbors become one, which
	// makes the lag of some entries look older than it is.
	maxMarks = 16
	// markEvery is how close two marks may be.
	markEvery = time.Millisecond / 8
)

// shard returns what is known of a shard, nil if nobody follows it.
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
			s.cursors = append(s.cursors, &cursor{f: f, s: s, pos: Position{Shard: string(id)}, limit: min(firstLimit, t.o.Batch)})
		}
	}
	return s
}

// learn takes in that the log has an entry seq, not written before at.
func (s *shard) learn(seq core.Seq, at time.Time) {
	if seq <= s.head {
		return
	}
	s.head = seq
	n := len(s.marks)
	for n > 0 && s.marks[n-1].at.After(at) {
		n-- // what counted as younger counts as this old, so that marks are in order
	}
	s.marks = s.marks[:n]
	if n > 0 && at.Sub(s.marks[n-1].at) < markEvery {
		s.marks[n-1].through = seq
		return
	}
	if n == maxMarks {
		s.merge()
	}
	s.marks = append(s.marks, mark{through: seq, at: at})
}

// merge makes one mark of the two that are closest in time.
func (s *shard) merge() {
	k := 1
	for i := range s.marks[1:] {
		if s.marks[i+1].at.Sub(s.marks[i].at) < s.marks[k].at.Sub(s.marks[k-1].at) {
			k = i + 1
		}
	}
	s.marks[k-1].through = s.marks[k].through
	s.marks = slices.Delete(s.marks, k, k+1)
}

// applied is the last entry that all have applied.
func (s *shard) applied() core.Seq {
	least := s.head
	for _, l := range s.cursors {
		least = min(least, l.pos.Seq)
	}
	return least
}

// miss takes in that entries known now may have been written at any time since.
func (s *shard) miss(since instant) {
	if s.missed <= s.applied() {
		s.missedSince = since
	}
	s.missed = s.head
}

// prune forgets when entries became known that all have applied.
func (s *shard) prune() {
	least := s.applied()
	n := 0
	for n < len(s.marks) && s.marks[n].through <= least {
		n++
	}
	if n == len(s.marks) {
		s.marks = nil // an idle shard keeps nothing
	} else if n > 0 {
		s.marks = slices.Delete(s.marks, 0, n)
	}
}

// lower takes in that the log ends at an earlier entry than was known.
func (s *shard) lower(head core.Seq) {
	s.head, s.missed = head, min(s.missed, head)
	for i := range s.marks {
		s.marks[i].through = min(s.marks[i].through, head)
	}
	s.prune()
}

// reopen forgets how old the entries known so far are: a position went back behind
// what the marks cover.
func (s *shard) reopen() { s.marks = append(s.marks[:0], mark{through: s.head}) }

// age is how long the oldest entry after pos has been known; 0 if there is none.
func (s *shard) age(pos core.Seq, now time.Time) time.Duration {
	for _, m := range s.marks {
		if m.through > pos {
			return now.Sub(m.at)
		}
	}
	return 0
}
