package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"
)

type locker interface {
	member
	// The unlock function returns when the store has recorded the release.
	lock(ctx context.Context, name string) (unlock func(ctx context.Context) error, err error)
}

func (m *tenureMember) lock(ctx context.Context, name string) (unlock func(ctx context.Context) error, err error) {
	k, err := m.locks.Lock(ctx, name)
	if err != nil {
		return nil, err
	}
	return k.Unlock, nil
}

func (l *locks) lock(ctx context.Context, name string) (unlock func(ctx context.Context) error, err error) {
	_, unlock, err = l.take(ctx, name)
	return unlock, err
}

func (p *polled) lock(ctx context.Context, name string) (unlock func(ctx context.Context) error, err error) {
	return p.once(ctx, name)
}

// The new member has already locked a name once, so its session exists.
func (b *bout) locker(ctx context.Context, errp *error) (locker, func(), error) {
	at := b.place(usual)
	m, err := b.contender.join(ctx, at)
	if err != nil {
		return nil, nil, err
	}
	leave := func() { *errp = errors.Join(*errp, m.close()) }
	l, ok := m.(locker)
	if !ok {
		leave()
		return nil, nil, errNone
	}
	if err := lockOnce(ctx, l, at.Node); err != nil {
		leave()
		return nil, nil, err
	}
	return l, leave, nil
}

func lockOnce(ctx context.Context, l locker, name string) error {
	unlock, err := l.lock(ctx, name)
	if err != nil {
		return fmt.Errorf("lock %s: %w", name, err)
	}
	if err := unlock(ctx); err != nil {
		return fmt.Errorf("unlock %s: %w", name, err)
	}
	return nil
}

const (
	locksWarm = time.Second / 2
	locksFor  = 3 * time.Second
)

// A single goroutine locks and unlocks free names in sequence.
func lockAlone(ctx context.Context, b *bout) ([]float64, error) {
	f, err := lockFresh(ctx, b, 1)
	if err != nil {
		return nil, err
	}
	return []float64{f[1], f[0]}, nil
}

// Many goroutines of one member concurrently lock and unlock free names.
func lockMany(ctx context.Context, b *bout) ([]float64, error) { return lockFresh(ctx, b, b.size(64)) }

// Goroutines lock and unlock names that have never been locked. The figures are the number of names
// per second, and quantiles of the time to lock and unlock a name.
func lockFresh(ctx context.Context, b *bout, goroutines int) (_ []float64, err error) {
	l, leave, err := b.locker(ctx, &err)
	if err != nil {
		return nil, err
	}
	defer leave()
	from := time.Now().Add(b.length(locksWarm))
	to := from.Add(b.length(locksFor))
	took, errs := make([][]float64, goroutines), make([]error, goroutines)
	var all sync.WaitGroup
	for g := range goroutines {
		all.Go(func() {
			for i := 0; ; i++ {
				start := time.Now()
				if start.After(to) {
					return
				}
				if errs[g] = lockOnce(ctx, l, fmt.Sprintf("fresh-%d-%d", g, i)); errs[g] != nil {
					return
				}
				if end := time.Now(); start.After(from) && end.Before(to) {
					took[g] = append(took[g], inMillis(end.Sub(start)))
				}
			}
		})
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	total := slices.Concat(took...)
	return append([]float64{float64(len(total)) / to.Sub(from).Seconds()}, quantiles(total)...), nil
}

// lockHandOver measures the time from an unlock call until the other member's waiting call returns.
// The figures are the median and the maximum. For Tenure, these calls alternate with hand-overs of
// a shard, and a third figure is the hand-overs' median time from the call to the grant.
func lockHandOver(ctx context.Context, b *bout) (_ []float64, err error) {
	var members [2]locker
	for i := range members {
		l, leave, err := b.locker(ctx, &err)
		if err != nil {
			return nil, err
		}
		defer leave()
		members[i] = l
	}
	const name = "passed"
	unlock, err := members[1].lock(ctx, name)
	if err != nil {
		return nil, err
	}
	took, shards, until := []float64{}, []float64{}, time.Now().Add(b.length(swapsTime))
	for i := 0; i < 2 || i < swapsMost && time.Now().Before(until); i++ {
		var d time.Duration
		if unlock, d, err = pass(ctx, members[i%2], name, unlock); err != nil {
			return nil, fmt.Errorf("pass %d: %w", i, err)
		}
		took = append(took, inMillis(d))
		if b.ours {
			if d, err = passShard(ctx, members[i%2].(*tenureMember), members[1-i%2].(*tenureMember), i == 0); err != nil {
				return nil, fmt.Errorf("hand-over %d: %w", i, err)
			}
			if i > 0 {
				shards = append(shards, inMillis(d))
			}
		}
	}
	if err := unlock(ctx); err != nil {
		return nil, err
	}
	slices.Sort(took)
	figures := []float64{took[len(took)/2], took[len(took)-1], math.NaN()}
	if b.ours {
		figures[2] = quantiles(shards)[0]
	}
	return figures, nil
}

// A member waits for a name, which is then unlocked for that member. The returned function releases
// the member's lock.
func pass(ctx context.Context, to locker, name string, unlock func(context.Context) error,
) (next func(context.Context) error, took time.Duration, err error) {
	type result struct {
		unlock func(context.Context) error
		at     time.Time
		err    error
	}
	locked, unlocked := make(chan result, 1), make(chan error, 1)
	go func() {
		unlock, err := to.lock(ctx, name)
		locked <- result{unlock, time.Now(), err}
	}()
	if err := pause(ctx, settles); err != nil {
		return nil, 0, err
	}
	start := time.Now()
	go func() { unlocked <- unlock(ctx) }()
	select {
	case r := <-locked:
		return r.unlock, r.at.Sub(start), errors.Join(r.err, <-unlocked)
	case <-ctx.Done(): // not every peer's lock ends with it
		return nil, 0, context.Cause(ctx)
	}
}

// If first is set, no member has the shard yet.
func passShard(ctx context.Context, to, from *tenureMember, first bool) (time.Duration, error) {
	const shard = "moved"
	won := make(chan time.Time, 1)
	if err := to.want([]string{shard}, func(grant) { won <- time.Now() }); err != nil {
		return 0, err
	}
	start, moved := time.Now(), make(chan error, 1)
	if first {
		moved <- nil
	} else {
		if err := pause(ctx, settles); err != nil {
			return 0, err
		}
		start = time.Now()
		go func() { moved <- from.handOver(ctx, to, shard) }()
	}
	select {
	case at := <-won:
		return at.Sub(start), <-moved
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
}
