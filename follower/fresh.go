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

// Fresh returns nil if Lag.Time is at most bound, so that the shard's projection may serve a read.
// If the lag is longer, Fresh returns a *StaleError that contains the lag. Fresh does not call the
// store. If bound is 0, every known entry must have been applied. If no Applier follows the shard,
// the error matches core.ErrInvalid.
//
// The Tailer cannot notice directly that its stream hangs, or that its process or machine was
// paused. A proof that no entry was missed is therefore valid for at most 2 * Options.Pulse. If the
// last proof is older, the proof's age counts as lag. If the next proof reveals entries, their lag
// includes this age until they are applied. The Tailer obtains such proofs while Fresh is called at
// least once per Options.Resync. If Fresh is called less often, a call may therefore report that
// the projection is stale.
func (t *Tailer) Fresh(shard string, bound time.Duration) error {
	lag, err := t.shardLag(shard)
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
// waits for its own write can then read the write from the projection. If ctx ends, the error
// matches ctx's error and contains a *StaleError with the lag. After Run has ended, the error
// matches core.ErrStopped. If no Applier follows the shard, the error matches core.ErrInvalid. A
// WaitFor that is called before Run also waits for Run to begin.
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

// Sync queries the store for the number of the shard's last entry, and waits until that entry is
// applied. Once Sync has returned nil, reads of the projection reflect every write that was
// acknowledged before the call. In all other respects, Sync is like WaitFor.
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

func (t *Tailer) shardLag(shard string) (Lag, error) {
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

// Lags returns the lag of every followed shard that has a log, sorted by the shards' names.
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

// Lag returns the total lag. Entries, Applied and Head are sums over all shards. Time, Applier and
// Err come from the shard with the longest lag.
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

// Position returns the shard's position in the Applier with this name. A Seq of 0 means that
// nothing was applied. A batch that is still being applied does not count.
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

// forget drops a shard's state that exists only because a caller, who may be untrusted, named the
// shard.
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

// silence returns how long the Tailer may have missed new entries: 0 while the stream works.
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
