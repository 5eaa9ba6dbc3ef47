package bucket

import (
	"context"
	"sync"
	"time"
)

// recently is the time for which a process gives way to others whose objects it has seen.
const recently = 10 * time.Second

// streak is the number of objects after which a busy process gives way even if it has seen no other
// process. A process that has just started may never have won a number.
const streak = 8

// pace lets other processes write. A process that has lost a number reads one object before it
// tries the next number, so it needs up to two of its round trips. The fields belong to store.mu.
type pace struct {
	own    time.Duration // time that a request takes
	rival  time.Duration // the same, of the slowest other process that has written recently
	seen   time.Time     // when an object of another process was last read
	last   time.Time     // when this process last wrote
	inARow int           // objects that this process wrote without a pause
}

func (p *pace) wrote(took time.Duration) {
	if p.own == 0 {
		p.own = took
	}
	p.own = min((7*p.own+took)/8, maxPace)
	p.last = time.Now()
	p.inARow++
}

func (p *pace) met(rival time.Duration) {
	if time.Since(p.seen) > recently {
		p.rival = 0
	}
	p.rival, p.seen = max(rival, p.rival*15/16), time.Now()
	p.inARow = 0
}

// rest waits after a write of this process.
func (p *pace) rest(ctx context.Context, mu *sync.Mutex) {
	mu.Lock()
	idle := time.Since(p.last)
	d := 2 * max(p.own, p.rival)
	switch {
	case time.Since(p.seen) < recently:
	case p.inARow >= streak:
		d *= 2
		p.inARow = 0
	default:
		d = 0
	}
	mu.Unlock()
	if d = min(d, maxPace); d > idle {
		wait(ctx, d-idle)
	}
}
