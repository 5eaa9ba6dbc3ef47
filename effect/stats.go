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

// Stats counts the work of a process's ledgers, for metrics and the board. A process creates one
// Stats and passes it to all its ledgers (Options.Stats), and to packages tenureprom, tenureotel
// and tenurehttp, which show the counts. The zero value is ready to use. Stats is safe for
// concurrent use.
type Stats struct {
	begun, done, failed, refused, retries, full atomic.Uint64

	lines rhythm.Rhythm // of errors after which a ledger tries again

	mu      sync.Mutex
	ledgers map[*Ledger]struct{} // open ledgers
}

// Counts contains everything that a Stats has counted since it was created, and the number of
// effects that are waiting now. It does not contain the effects' keys.
type Counts struct {
	// Begun is the number of new effects whose intent was written.
	Begun uint64
	// Done, Failed and Refused count the effects that ended. Refused counts the effects whose error
	// was marked by the function Refused. Failed counts all other effects that did not happen or
	// were compensated.
	Done, Failed, Refused uint64
	// Retries is the number of Func calls after the first call for an effect.
	Retries uint64
	// Full is the number of calls to Do that began no effect and returned ErrFull.
	Full uint64

	// InDoubt counts the open effects that no call attempts and that Resolve or the next Do will
	// decide. Unresolved counts the open effects that only a person can decide. InDoubt and
	// Unresolved count only effects of open ledgers whose lease is valid.
	InDoubt, Unresolved Waiting
	// Shards lists the shards with such effects, sorted by name.
	Shards []ShardCounts
}

// Waiting describes a group of open effects.
type Waiting struct {
	Number int
	// Oldest is the time when the oldest effect began, according to the clock of the leader at that
	// time. If there is no effect, Oldest is zero.
	Oldest time.Time
}

// ShardCounts contains the numbers of one shard's waiting effects. See Counts.
type ShardCounts struct {
	Shard               string
	InDoubt, Unresolved int
}

// Age returns the time since the oldest effect began. If there is no effect, or the leader's clock
// is ahead, Age returns 0.
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

// Counts returns the current counts. The call visits all waiting effects, whose number per ledger
// is at most the sum of Options.MaxInDoubt and Concurrent.
func (s *Stats) Counts() Counts {
	c := Counts{Begun: s.begun.Load(), Done: s.done.Load(), Failed: s.failed.Load(), Refused: s.refused.Load(),
		Retries: s.retries.Load(), Full: s.full.Load()}
	s.mu.Lock()
	defer s.mu.Unlock()
	for l := range s.ledgers {
		if l.lease.Err() == nil { // otherwise, the next leader counts these effects
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

type idle struct {
	began  time.Time
	person bool // neither Resolve nor the next Do decides the effect
}

func (l *Ledger) leave(e Effect) {
	l.mu.Lock()
	defer l.mu.Unlock()
	alone := l.o.Resolve == nil && !l.o.Repeatable
	ours := e.State == InDoubt && e.Token == l.lease.Token()
	_, later := l.later[e.Key]
	l.idle[e.Key] = idle{began: e.Began, person: e.State != Repeat && !later && (alone || ours)}
}

func (l *Ledger) take(key string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.idle, key)
}

// The cause is fn's error.
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
