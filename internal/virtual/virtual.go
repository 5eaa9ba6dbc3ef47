// Package virtual is what core asks its surroundings for, where a test plays them:
// package tenuretest has the machine of one process suspended, while the time of the
// bubble goes on for the others, and repeats what is random otherwise.
package virtual

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"time"
)

// Host is a backend whose process is a virtual one.
type Host interface {
	Process() *Process
}

// Process has the clocks and the randomness of one process. Safe for concurrent use.
type Process struct {
	mu     sync.Mutex
	rnd    *rand.Rand
	id     uint64        // that its sessions begin with
	missed time.Duration // in suspensions that are over
	since  time.Time     // of the one under way; zero: none is
}

// NewProcess returns a process. No two of a test have the same seed.
func NewProcess(seed uint64) *Process { return &Process{rnd: rand.New(rand.NewPCG(seed, 0))} }

// SessionID is a new session's id. Those of one process begin alike.
func (p *Process) SessionID() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	process, session := p.rnd.Uint64(), p.rnd.Uint64()
	if p.id == 0 {
		p.id = process
	}
	return fmt.Sprintf("%016x%016x", p.id, session)
}

// Int64N is a number from 0 to n-1.
func (p *Process) Int64N(n int64) int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.rnd.Int64N(n)
}

// crawl is how slowly a suspended clock goes. Were it to stand still, a timer that is
// about to fire would be set anew for ever.
const crawl = 1000

// Suspend has the monotonic clock of the process stand still, but for a thousandth.
func (p *Process) Suspend() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.since.IsZero() {
		p.since = time.Now()
	}
}

// Resume has it go on from where it stood.
func (p *Process) Resume() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.missed += p.missing()
	p.since = time.Time{}
}

// missing is what was missed in the suspension under way.
func (p *Process) missing() time.Duration {
	if p.since.IsZero() {
		return 0
	}
	d := time.Since(p.since)
	return d - d/crawl
}

// Behind is how far the monotonic clock is behind that of the bubble.
func (p *Process) Behind() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.missed + p.missing()
}

// Ahead is how far the boot clock, which counts suspended time, is ahead of the
// monotonic clock. The process finds out when it runs again.
func (p *Process) Ahead() (time.Duration, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.missed, true
}
