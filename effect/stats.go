package effect

import (
	"cmp"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tenure-go/tenure/internal/rhythm"
)

// Stats counts what the ledgers of a process do, for metrics and the board. A process makes one
// and gives it to all its ledgers (Options.Stats) and to what shows it: packages tenureprom,
// tenureotel and tenurehttp. The zero value works. Safe for concurrent use.
type Stats struct {
	begun, done, failed, refused, retries, full atomic.Uint64

	lines rhythm.Rhythm // of what is tried again

	mu      sync.Mutex
	ledgers map[*Ledger]struct{} // those that are open
}

// Counts is what a Stats has counted since it was made, and what waits at present. No key of an
// effect is in it.
type Counts struct {
	// Begun counts the new effects whose intent was written.
	Begun uint64
	// Done, Failed and Refused count the effects that ended: Refused as Refused says, and Failed
	// all others that did not happen or were compensated.
	Done, Failed, Refused uint64
	// Retries counts the calls of a Func after the first for its effect.
	Retries uint64
	// Full counts the calls of Do that began nothing, with ErrFull.
	Full uint64

	// InDoubt are the open effects that nobody attempts, and about which Resolve or the next Do
	// decides. Unresolved are those about which only a person does. Both are of the ledgers that
	// are open and whose lease is valid.
	InDoubt, Unresolved Waiting
	// Shards are those that have such effects, by name.
	Shards []ShardCounts
}

// Waiting is a number of open effects.
type Waiting struct {
	Number int
	// Oldest is when the oldest of them began, by the clock of the leader that began it; zero if
	// there is none.
	Oldest time.Time
}

// ShardCounts is how many effects of a shard wait. See Counts.
type ShardCounts struct {
	Shard               string
	InDoubt, Unresolved int
}

// Age is how long ago the oldest effect began; 0 if there is none, or if its leader's clock is
// ahead.
func (w Waiting) Age() time.Duration {
	if w.Number == 0 {
		return 0
	}
	return max(0, time.Since(w.Oldest))
}

func (w *Waiting) add(began time.Time) {
	if w.Number == 0 || began.Before(w.Oldest) {
		w.Oldest = began
	}
	w.Number++
}

// Counts returns the present counts. It walks all effects that wait: at most
// Options.MaxInDoubt and Concurrent of each ledger.
func (s *Stats) Counts() Counts {
	c := Counts{Begun: s.begun.Load(), Done: s.done.Load(), Failed: s.failed.Load(), Refused: s.refused.Load(),
		Retries: s.retries.Load(), Full: s.full.Load()}
	s.mu.Lock()
	defer s.mu.Unlock()
	for l := range s.ledgers {
		if l.lease.Err() == nil { // else they are the next leader's
			l.count(&c)
		}
	}
	slices.SortFunc(c.Shards, func(a, b ShardCounts) int { return cmp.Compare(a.Shard, b.Shard) })
	return c
}

func (s *Stats) open(l *Ledger) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ledgers == nil {
		s.ledgers = make(map[*Ledger]struct{})
	}
	s.ledgers[l] = struct{}{}
}

func (s *Stats) close(l *Ledger) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.ledgers, l)
}

// idle is an open effect that nobody attempts.
type idle struct {
	began  time.Time
	person bool // neither Resolve nor the next Do decides about it
}

// leave records that nobody attempts an open effect any more.
func (l *Ledger) leave(e Effect) {
	l.mu.Lock()
	defer l.mu.Unlock()
	alone := l.o.Resolve == nil && !l.o.Repeatable
	ours := e.State == InDoubt && e.Token == l.lease.Token()
	_, later := l.later[e.Key]
	l.idle[e.Key] = idle{began: e.Began, person: e.State != Repeat && !later && (alone || ours)}
}

// take records that an effect is attempted, or has ended.
func (l *Ledger) take(key string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.idle, key)
}

// ended counts an effect whose end is written. Cause is fn's error.
func (l *Ledger) ended(e Effect, cause error) {
	l.take(e.Key)
	sure, _ := errors.AsType[*certain](cause)
	switch {
	case e.State == Done:
		l.o.Stats.done.Add(1)
	case sure != nil && sure.final:
		l.o.Stats.refused.Add(1)
	default:
		l.o.Stats.failed.Add(1)
	}
}

// count adds what waits in this ledger.
func (l *Ledger) count(c *Counts) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := ShardCounts{Shard: l.lease.Shard()}
	for _, i := range l.idle {
		if i.person {
			s.Unresolved++
			c.Unresolved.add(i.began)
		} else {
			s.InDoubt++
			c.InDoubt.add(i.began)
		}
	}
	if len(l.idle) > 0 {
		c.Shards = append(c.Shards, s)
	}
}
