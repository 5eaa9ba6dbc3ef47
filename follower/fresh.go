package follower

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/internal/errtext"
)

// Fresh reports whether a read of the shard may be served from its projection. If Lag.Time is at
// most bound, it returns nil. Otherwise, it returns a *StaleError with the lag. It makes no call
// to the store: it only looks up a map. With a bound of 0, every known entry must have been
// applied. If no Applier follows the shard, the error matches core.ErrInvalid.
//
// A stream that hangs gives no sign of that, nor does a process or machine that was stopped. So
// Fresh relies for at most 2 * Options.Pulse on the last proof that all news was heard. The age
// of an older proof counts as lag; it also counts for entries that the next proof shows, until
// they are applied. The Tailer makes proofs while Fresh is called at least once in
// Options.Resync. After a pause, the first answer may therefore be that the projection is
// stale.
func (t *Tailer) Fresh(shard string, bound time.Duration) error {
	lag, err := t.ShardLag(shard)
	if err != nil {
		return err
	}
	now := time.Now()
	t.mu.Lock()
	t.asked = now
	if age := t.proven.age(now); age > 2*t.o.Pulse {
		lag.Time = max(lag.Time, age)
	}
	if s := t.shards[core.ShardID(shard)]; s != nil && lag.Applied < s.missed {
		lag.Time = max(lag.Time, s.missedSince.age(now))
	}
	t.mu.Unlock()
	select {
	case t.ask <- struct{}{}:
	default:
	}
	if lag.Known && lag.Time <= bound {
		return nil
	}
	return &StaleError{Bound: bound, Lag: lag}
}

// WaitFor waits until every Applier that follows the shard has applied entry seq. A caller that
// has waited for its own write can read it from the projection. If ctx ends, the error matches
// that of ctx, and is also a *StaleError with the lag. After Run, it matches core.ErrStopped. If
// no Applier follows the shard, it matches core.ErrInvalid. Before Run, WaitFor waits.
func (t *Tailer) WaitFor(ctx context.Context, shard string, seq core.Seq) error {
	if err := core.CheckShard(shard); err != nil {
		return err
	}
	t.mu.Lock()
	s, err := t.followedShard(shard)
	if err != nil {
		t.mu.Unlock()
		return err
	}
	s.waiting++
	defer func() {
		s.waiting--
		t.forget(s)
		t.mu.Unlock()
	}()
	for {
		lag := t.lag(s, time.Now())
		switch {
		case lag.Applied >= seq:
			return nil
		case t.phase == stopped:
			return fmt.Errorf("tenure: shard %q: %w before entry %d was applied", shard, core.ErrStopped, seq)
		case ctx.Err() != nil:
			return errtext.Errorf("tenure: shard %q: waiting for entry %d: %w: %w", shard, seq, context.Cause(ctx),
				&StaleError{Lag: lag})
		}
		changed := s.changed.wait()
		t.mu.Unlock()
		select {
		case <-changed:
		case <-t.ended:
		case <-ctx.Done():
		}
		t.mu.Lock()
	}
}

// Sync asks the store for the shard's head, and waits until that entry is applied. A later read
// of the projection is at least as new as any write acknowledged before the call. Otherwise,
// Sync is like WaitFor.
func (t *Tailer) Sync(ctx context.Context, shard string) error {
	if err := core.CheckShard(shard); err != nil {
		return err
	}
	call, cancel := context.WithTimeout(ctx, t.o.CallTimeout)
	page, err := t.b.ReadLog(call, core.ShardID(shard), 0, 0)
	cancel()
	if err != nil {
		return errtext.Errorf("tenure: shard %q: reading the head: %w", shard, err)
	}
	t.mu.Lock()
	if t.phase == running && t.known && page.Head.Seq > 0 {
		if s := t.shard(core.ShardID(shard)); s != nil {
			news := page.Head.Seq > s.head
			t.learn(s, page.Head.Seq, time.Now())
			for _, l := range s.cursors {
				l.verify = l.verify || news
				t.start(l)
			}
		}
	}
	t.mu.Unlock()
	return t.WaitFor(ctx, shard, page.Head.Seq)
}

// ShardLag returns the lag of the shard's projection. If no Applier follows the shard, the error
// matches core.ErrInvalid.
func (t *Tailer) ShardLag(shard string) (Lag, error) {
	if err := core.CheckShard(shard); err != nil {
		return Lag{}, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	s, err := t.followedShard(shard)
	if err != nil {
		return Lag{}, err
	}
	defer t.forget(s)
	return t.lag(s, time.Now()), nil
}

// Lags returns the lag of every followed shard that has a log, in the order of names.
func (t *Tailer) Lags() []Lag {
	now := time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	lags := make([]Lag, 0, len(t.shards))
	for _, s := range t.shards {
		lags = append(lags, t.lag(s, now))
	}
	slices.SortFunc(lags, func(a, b Lag) int { return strings.Compare(a.Shard, b.Shard) })
	return lags
}

// Lag returns the total lag. Entries, Applied and Head are sums over all shards. Time is the
// longest. Applier and Err are those of the shard that is furthest behind in time.
func (t *Tailer) Lag() Lag {
	now := time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	total := Lag{Known: t.known, Time: t.silence(now), Err: t.deaf()}
	for _, s := range t.shards {
		l := t.lag(s, now)
		total.Entries += l.Entries
		total.Applied += l.Applied
		total.Head += l.Head
		if l.Time > total.Time || total.Err == nil && l.Err != nil {
			total.Time, total.Err, total.Applier = max(l.Time, total.Time), l.Err, l.Applier
		}
	}
	return total
}

// Position returns the shard's position in the Applier of that name; a Seq of 0 means none. A batch
// that is still being applied does not count.
func (t *Tailer) Position(applier, shard string) Position {
	t.mu.Lock()
	defer t.mu.Unlock()
	if s := t.shards[core.ShardID(shard)]; s != nil {
		for _, l := range s.cursors {
			if l.f.name == applier {
				return l.pos
			}
		}
	}
	return Position{Shard: shard}
}

func (t *Tailer) followedShard(shard string) (*shard, error) {
	if s := t.shard(core.ShardID(shard)); s != nil {
		return s, nil
	}
	return nil, fmt.Errorf("tenure: %w: nobody follows shard %q", core.ErrInvalid, shard)
}

// forget drops state that exists only because a caller asked for the shard, because names may come
// from outside.
func (t *Tailer) forget(s *shard) {
	if s.waiting > 0 || s.head > 0 {
		return
	}
	for _, l := range s.cursors {
		if l.busy || l.pos.Seq > 0 {
			return
		}
	}
	delete(t.shards, s.id)
}

// silence returns the time for which new entries may be unknown, 0 while the stream works.
func (t *Tailer) silence(now time.Time) time.Duration {
	if t.deaf() == nil {
		return 0
	}
	return now.Sub(t.sure)
}

func (t *Tailer) lag(s *shard, now time.Time) Lag {
	lag := Lag{Shard: string(s.id), Head: s.head, Known: t.known, Time: t.silence(now), Err: t.deaf()}
	for i, l := range s.cursors {
		if i == 0 || l.pos.Seq < lag.Applied {
			lag.Applied, lag.Applier = l.pos.Seq, l.f.name
		}
		if l.err != nil {
			lag.Err = l.err
		}
	}
	lag.Entries = max(0, int64(lag.Head-lag.Applied))
	lag.Time = max(lag.Time, s.age(lag.Applied, now))
	return lag
}
