// Package rhythm chooses which failures of a repeated call to log. These are the first, those
// after 1, 5 and 15 minutes, and then one every 15 minutes. The end is also logged.
package rhythm

import (
	"cmp"
	"sync"
	"time"
)

const (
	every = 15 * time.Minute
	// calm is how long after the end of a spell the next failure counts as a first one. So a
	// call that alternates between failing and working keeps the rhythm.
	calm = 5 * time.Minute
	// silent is how long after its last failure a spell without an end is forgotten.
	silent  = 2 * every
	maxKeys = 16 // default number of spells
)

// Rhythm keeps a spell of failures for each key. A key is the kind of a call, never a name from
// an unbounded set. The zero value is ready for use. Methods may be called concurrently.
type Rhythm struct {
	// After is how long a call must fail before its first line.
	After time.Duration
	// Keys limits the spells. Default 16. Further keys share one.
	Keys int

	mu     sync.Mutex
	spells map[string]*spell
}

// Spell is a time in which a call kept failing.
type Spell struct {
	Since    time.Time
	Failures int
}

type spell struct {
	Spell
	said, next time.Time // when the first line was logged; when the next is due
	last       time.Time // the last failure
	ended      time.Time // when it last worked since a line, or zero
	works      bool
	open       bool // a line was logged, and no end since
}

// Failed records a failure, and reports whether it is logged.
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

// Worked records a success, and reports whether the end of a spell is logged.
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

// next returns the time of the line after now, if the first one was logged at said.
func next(said, now time.Time) time.Time {
	for _, d := range []time.Duration{time.Minute, 5 * time.Minute, every} {
		if at := said.Add(d); at.After(now) {
			return at
		}
	}
	return said.Add(now.Sub(said).Truncate(every) + every)
}
