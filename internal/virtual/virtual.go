// Package virtual lets tests replace core's clock and random source. Package tenuretest uses
// package virtual to make random values repeatable. A test can also suspend the machine of one
// process, while the time of the synctest bubble passes for the other processes.
package virtual

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"time"
)

// Host is a backend that has a virtual process.
type Host interface {
	Process() *Process
}

// Process provides the clocks and the randomness of one process. A Process is safe for concurrent
// use.
type Process struct {
	mu     sync.Mutex
	rnd    *rand.Rand
	id     uint64        // the first bytes of the process's session ids
	missed time.Duration // time missed in past suspensions
	since  time.Time     // the beginning of the current suspension, or zero
}

// NewProcess returns a process. Each process of a test must have a different seed.
func NewProcess(seed uint64) *Process { return &Process{rnd: rand.New(rand.NewPCG(seed, 0))} }

// SessionID returns the id of a new session. The ids of one process begin with the same bytes.
func (p *Process) SessionID() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	process, session := p.rnd.Uint64(), p.rnd.Uint64()
	if p.id == 0 {
		p.id = process
	}
	return fmt.Sprintf("%016x%016x", p.id, session)
}

// Int64N returns a number from 0 to n-1.
func (p *Process) Int64N(n int64) int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.rnd.Int64N(n)
}

// crawl is the factor by which a suspended clock is slower. If the clock stopped completely, core
// would set a timer that is about to fire again and again.
const crawl = 1000

// Suspend makes the monotonic clock of the process run a thousand times slower, so that it almost
// stops.
func (p *Process) Suspend() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.since.IsZero() {
		p.since = time.Now()
	}
}

// Resume lets the clock continue, at normal speed, from its current value.
func (p *Process) Resume() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.missed += p.missing()
	p.since = time.Time{}
}

// missing returns the time that the clock has missed in the current suspension.
func (p *Process) missing() time.Duration {
	if p.since.IsZero() {
		return 0
	}
	d := time.Since(p.since)
	return d - d/crawl
}

// Behind returns how far the process's monotonic clock is behind the bubble's clock.
func (p *Process) Behind() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.missed + p.missing()
}

// Ahead returns how far the boot clock, which counts suspended time, is ahead of the monotonic
// clock. The process notices a suspension only when it runs again.
func (p *Process) Ahead() (time.Duration, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.missed, true
}
