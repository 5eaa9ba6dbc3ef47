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

// The Elector reports a damaged record once, even if it finds the record repeatedly. If the damage
// changes, the Elector reports the record again, but at most once a minute. The Elector forgets a
// record that it has not found again within damages.keep. After the first listing.MaxDamaged
// records, the Elector only counts further records. Otherwise, anyone who can write to the store
// could make the list arbitrarily long.
const (
	damageAgain   = time.Minute
	damageResyncs = 2
)

// damages contains the recently found damaged records. Elector.mu guards it.
type damages struct {
	keep  time.Duration // how long a record is kept after it was last found
	known map[string]*damage
	total int       // records reported or counted since the start
	more  time.Time // when a line about further records was last logged
}

type damage struct {
	err         *driver.DamagedError
	met, posted time.Time
}

// damaged registers the damaged record that err reports, if any. The caller must not hold e.mu.
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

// forget removes records that were not found recently, and reports whether it removed any.
func (s *damages) forget(now time.Time) (any bool) {
	for key, k := range s.known {
		if now.Sub(k.met) > s.keep {
			delete(s.known, key)
			any = true
		}
	}
	return any
}

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
		n.tell(Event{Kind: RecordDamaged, Err: d})
		n.warn("tenure: damaged record: restore it from a backup, or remove it if it is nobody's",
			slog.String("key", d.Key), slog.String("shard", string(d.Shard)), slog.String("why", d.Why))
	})
}

func (n *notifier) moreDamaged(total int) {
	n.post(func() {
		n.warn("tenure: more damaged records than are named: look who writes them", slog.Int("damaged", total))
	})
}
