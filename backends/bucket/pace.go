package bucket

import (
	"context"
	"sync"
	"time"
)

// recently is the time for which a process gives way to others whose objects it has seen.
const recently = 30 * time.Second

// A process that has seen no other one for a while gives way after each streak of objects, and for
// longer after a long streak, because another process may never have won a number.
const (
	streak     = 8
	longStreak = 256
)

// pace lets other processes write. A process that has lost a number reads the objects from there
// on, and creates the next one. For this, it needs one of its round trips without an object of
// another process. The fields belong to store.mu.
type pace struct {
	own   time.Duration // time that a request takes
	rival time.Duration // the same, of the slowest other process that has written recently
	seen  time.Time     // when an object of another process was last read
	gap   time.Duration // mean time between such objects
	last  time.Time     // when this process last wrote
	wrote int           // number of objects that this process wrote
}

func (p *pace) done(took time.Duration) {
	if p.own == 0 {
		p.own = took
	}
	p.own = min((7*p.own+took)/8, maxPace)
	p.last = time.Now()
	p.wrote++
}

func (p *pace) met(rival time.Duration) {
	now := time.Now()
	gap := min(now.Sub(p.seen), recently)
	if gap == recently {
		p.rival, p.gap = 0, gap
	}
	p.gap = (15*p.gap + gap) / 16
	p.rival, p.seen = max(rival, p.rival*15/16), now
}

// expect returns the number of objects that other processes have probably written since a time.
func (p *pace) expect(since time.Time) int {
	if p.gap == 0 || time.Since(p.seen) >= recently {
		return 0
	}
	return int(min(min(time.Since(since), recently)/p.gap, maxWindow-1))
}

// rest waits after a write of this process.
func (p *pace) rest(ctx context.Context, mu *sync.Mutex) {
	mu.Lock()
	idle := time.Since(p.last)
	d := 2 * max(p.own, p.rival)
	switch {
	case time.Since(p.seen) < recently:
	case p.wrote%longStreak == longStreak-1:
		d = max(d, min(32*d, maxPace/2))
	case p.wrote%streak == streak-1:
		d *= 2
	default:
		d = 0
	}
	mu.Unlock()
	if d = min(d, 2*maxPace); d > idle {
		wait(ctx, d-idle)
	}
}
