package follower

import (
	"context"
	"sync"
	"time"
)

// pacer spreads reads over time. A pacer is safe for concurrent use.
type pacer struct {
	every time.Duration
	mu    *sync.Mutex
	next  *time.Time
}

func newPacer(rate int) pacer {
	if rate <= 0 {
		return pacer{}
	}
	return pacer{every: time.Second / time.Duration(rate), mu: new(sync.Mutex), next: new(time.Time)}
}

// turn returns how long the next read must wait.
func (p pacer) turn(now time.Time) time.Duration {
	if p.every == 0 {
		return 0
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	at := *p.next
	if at.Before(now) {
		at = now
	}
	*p.next = at.Add(p.every)
	return at.Sub(now)
}

// If ctx ends, backOff returns false.
func (t *Tailer) backOff(ctx context.Context, attempt int) bool {
	d := t.o.BackoffMin
	for i := 1; i < attempt && d < t.o.BackoffMax; i++ {
		d *= 2
	}
	d = min(d, t.o.BackoffMax)
	return wait(ctx, d/2+time.Duration(t.draw(int64(d/2)+1)))
}

// If ctx ends first, wait returns false.
func wait(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
