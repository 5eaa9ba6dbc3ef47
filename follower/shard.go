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
	lanes   []*lane
	waiting int    // callers of WaitFor
	changed signal // a lane advanced
	sweep   uint64 // the last reading of all heads that listed it
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
			s.lanes = append(s.lanes, &lane{f: f, s: s, pos: Position{Shard: string(id)}, limit: min(firstLimit, t.o.Batch)})
		}
	}
	return s
}

// learn takes in that the log has an entry seq.
func (s *shard) learn(seq core.Seq, now time.Time) {
	if seq <= s.head {
		return
	}
	s.head = seq
	if n := len(s.marks); n > 0 && now.Sub(s.marks[n-1].at) < markEvery {
		s.marks[n-1].through = seq
		return
	}
	if len(s.marks) == maxMarks {
		for i := range maxMarks / 2 {
			s.marks[i] = mark{through: s.marks[2*i+1].through, at: s.marks[2*i].at}
		}
		s.marks = s.marks[:maxMarks/2]
	}
	s.marks = append(s.marks, mark{through: seq, at: now})
}

// prune forgets when entries became known that all have applied.
func (s *shard) prune() {
	least := s.head
	for _, l := range s.lanes {
		least = min(least, l.pos.Seq)
	}
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

// reopen makes all unapplied entries known as of now, or earlier if some were: a
// position went back behind what the marks cover.
func (s *shard) reopen(now time.Time) {
	if len(s.marks) > 0 {
		now = s.marks[0].at
	}
	s.marks = append(s.marks[:0], mark{through: s.head, at: now})
}

// age is how long the oldest entry after pos has been known; 0 if there is none.
func (s *shard) age(pos core.Seq, now time.Time) time.Duration {
	for _, m := range s.marks {
		if m.through > pos {
			return now.Sub(m.at)
		}
	}
	return 0
}
