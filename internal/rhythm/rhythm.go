// Package rhythm decides which failures of a repeated call are logged. A caller logs the first
// failure, a failure after 1, 5 and 15 minutes, and then a failure every 15 minutes. The caller
// also logs the end of the failures.
package rhythm

import (
	"cmp"
	"sync"
	"time"
)

const (
	every = 15 * time.Minute
	// If a call fails less than calm after the end of a spell, the spell continues. A call that
	// alternates between failing and working therefore stays on the same schedule.
	calm = 5 * time.Minute
	// A spell that has not ended is forgotten after the time silent without a failure.
	silent  = 2 * every
	maxKeys = 16 // default number of spells
)

// Rhythm keeps a spell of failures for each key. A key is the kind of a call, and never a name from
// an unbounded set. The zero value is ready for use. A Rhythm is safe for concurrent use.
type Rhythm struct {
	// After is how long a call must fail before a failure is logged.
	After time.Duration
	// Keys limits the number of spells. The default is 16. Further keys share one spell.
	Keys int

	mu     sync.Mutex
	spells map[string]*spell
}

// Spell is a period in which a call kept failing.
type Spell struct {
	Since    time.Time
	Failures int
}

type spell struct {
	Spell
	said, next time.Time // when the first line was logged, and when the next line is due
	last       time.Time // the last failure
	ended      time.Time // when the call last worked since a line was logged, or zero
	works      bool
	open       bool // a line was logged, and the end of the spell was not
}

// Failed records a failure, and reports whether to log it.
func (r *Rhythm) Failed(key string, now time.Time) (Spell, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.spell(key, now)
	s.Failures++
	s.last, s.works = now, false
	if now.Before(s.next) && (s.ended.IsZero() || now.Before(s.ended.Add(calm))) {
		return s.Spell, false
	}
	if s.said.IsZero() {
		s.said = now
	}
	s.open, s.next, s.ended = true, next(s.said, now), time.Time{}
	return s.Spell, true
}

// Worked records a success, and reports whether to log the end of a spell.
func (r *Rhythm) Worked(key string, now time.Time) (Spell, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.spells[key]
	if s == nil || s.works {
		return Spell{}, false
	}
	if s.said.IsZero() {
		delete(r.spells, key)
		return Spell{}, false
	}
	open := s.open
	s.open, s.works, s.ended = false, true, now
	return s.Spell, open
}

func (r *Rhythm) spell(key string, now time.Time) *spell {
	for k, s := range r.spells {
		if now.Sub(s.last) >= silent || s.works && now.Sub(s.ended) >= calm {
			delete(r.spells, k)
		}
	}
	if r.spells[key] == nil && len(r.spells) >= cmp.Or(r.Keys, maxKeys) {
		key = ""
	}
	s := r.spells[key]
	if s == nil {
		s = &spell{Spell: Spell{Since: now}, next: now.Add(r.After)}
		if r.spells == nil {
			r.spells = map[string]*spell{}
		}
		r.spells[key] = s
	}
	return s
}

// next returns the time when the next line after now is due. The argument said is the time of the
// spell's first line.
func next(said, now time.Time) time.Time {
	for _, d := range []time.Duration{time.Minute, 5 * time.Minute, every} {
		if at := said.Add(d); at.After(now) {
			return at
		}
	}
	return said.Add(now.Sub(said).Truncate(every) + every)
}
