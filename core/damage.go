package core

import (
	"cmp"
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/listing"
)

// A damaged record is reported once, however often it is found. It is reported again only if it is
// damaged in another way a minute later. A record that was not found for damages.keep is forgotten.
// Beyond listing.MaxDamaged, records are counted but not named, because a writer to the store may
// create any number of names.
const (
	damageAgain   = time.Minute
	damageResyncs = 2
)

// damages holds the recently found damaged records. Elector.mu guards it.
type damages struct {
	keep  time.Duration // how long a record is kept after it was last found
	known map[string]*damage
	total int       // reported or counted since the start
	more  time.Time // when it was last logged that there are more
}

type damage struct {
	err         *driver.DamagedError
	met, posted time.Time
}

// damaged records the damaged record that the error of a call or an item names. The caller does not
// hold e.mu.
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

// viewDamaged records the damaged records that a page of a view names.
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

// resultsDamaged records the damaged records because of which items of a batch were refused.
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
	if len(s.known) >= listing.MaxDamaged {
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

// forget removes records that were not found recently, and reports whether there were any.
func (s *damages) forget(now time.Time) (any bool) {
	for key, k := range s.known {
		if now.Sub(k.met) > s.keep {
			delete(s.known, key)
			any = true
		}
	}
	return any
}

// list returns the known damaged records, by key.
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
