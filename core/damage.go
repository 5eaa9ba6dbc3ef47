package core

import (
	"cmp"
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/tenure-go/tenure/core/driver"
)

// A damaged record is reported once, however often it is met, and again only if it
// became damaged in another way a minute later. What was not met for damageKept is
// forgotten. Beyond driver.MaxDamaged records are counted, not named: names from a
// store may be as many as its writer likes.
const (
	damageAgain   = time.Minute
	damageResyncs = 2
)

// damages are the damaged records met of late. Elector.mu guards it.
type damages struct {
	keep  time.Duration // after the last meeting
	known map[string]*damage
	total int       // reported or counted since the start
	more  time.Time // when it was said last that there are more
}

type damage struct {
	err         *driver.DamagedError
	met, posted time.Time
}

// damaged takes in what an error, or an item's, says of a damaged record. e.mu is not
// held.
func (e *Elector) damaged(err error) {
	if !errors.Is(err, driver.ErrDamaged) {
		return
	}
	if d, ok := errors.AsType[*driver.DamagedError](err); ok {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.noteDamage(d)
	}
}

// viewDamaged does so with those that a page of a view names.
func (e *Elector) viewDamaged(v *driver.View) {
	if len(v.Damaged) == 0 {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, d := range v.Damaged {
		e.noteDamage(d)
	}
}

// resultsDamaged does so with those that the items of a batch were refused for.
func (e *Elector) resultsDamaged(results []driver.AcquireResult) {
	for i := range results {
		e.damaged(results[i].Err)
	}
}

func (e *Elector) noteDamage(d *driver.DamagedError) {
	s, now := &e.damages, time.Now()
	if k := s.known[d.Key]; k != nil {
		k.met = now
		if k.err.Why != d.Why && now.Sub(k.posted) >= damageAgain {
			k.err, k.posted = d, now
			e.note.damaged(d)
			e.snap.bump()
		}
		return
	}
	s.forget(now)
	s.total++
	e.snap.bump()
	if len(s.known) >= driver.MaxDamaged {
		if s.more.IsZero() || now.Sub(s.more) >= damageAgain {
			s.more = now
			e.note.moreDamaged(s.total)
		}
		return
	}
	if s.known == nil {
		s.known = make(map[string]*damage)
	}
	s.known[d.Key] = &damage{err: d, met: now, posted: now}
	e.note.damaged(d)
}

// forget leaves out what was not met lately, and reports whether there was any.
func (s *damages) forget(now time.Time) (any bool) {
	for key, k := range s.known {
		if now.Sub(k.met) > s.keep {
			delete(s.known, key)
			any = true
		}
	}
	return any
}

// list is what is known, by key.
func (s *damages) list() []*driver.DamagedError {
	all := make([]*driver.DamagedError, 0, len(s.known))
	for _, k := range s.known {
		all = append(all, k.err)
	}
	slices.SortFunc(all, func(a, b *driver.DamagedError) int { return cmp.Compare(a.Key, b.Key) })
	return all
}

func (n *notifier) damaged(d *driver.DamagedError) {
	n.post(func() {
		if n.h.OnDamaged != nil {
			n.h.OnDamaged(d)
		}
		n.warn("tenure: damaged record: restore it from a backup, or remove it if it is nobody's",
			slog.String("key", d.Key), slog.String("shard", string(d.Shard)), slog.String("why", d.Why))
	})
}

func (n *notifier) moreDamaged(total int) {
	n.post(func() {
		n.warn("tenure: more damaged records than are named: look who writes them", slog.Int("damaged", total))
	})
}
