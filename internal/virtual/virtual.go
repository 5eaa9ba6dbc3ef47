// Package virtual lets tests replace what core asks of its surroundings. With it, package
// tenuretest suspends the machine of one process while the bubble's time passes for the others.
// It also makes random values repeatable.
package virtual

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"time"
)

// Host is a backend with a virtual process.
type Host interface {
	Process() *Process
}

// Process provides the clocks and the randomness of one process. It is safe for concurrent use.
type Process struct {
	mu     sync.Mutex
	rnd    *rand.Rand
	id     uint64        // the beginning of its sessions' ids
	missed time.Duration // in past suspensions
	since  time.Time     // the begin of the present suspension, or zero
}

// NewProcess returns a process. Each process of a test must have a different seed.
func NewProcess(seed uint64) *Process { return &Process{rnd: rand.New(rand.NewPCG(seed, 0))} }

// SessionID returns a new session's id. The ids of one process begin with the same bytes.
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

// crawl is how much slower a suspended clock runs. If the clock stood still, a timer that is
// about to fire would be set again forever.
const crawl = 1000

// Suspend stops the monotonic clock of the process, except for a thousandth of the time.
func (p *Process) Suspend() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.since.IsZero() {
		p.since = time.Now()
	}
}

// Resume lets the clock continue from its value.
func (p *Process) Resume() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.missed += p.missing()
	p.since = time.Time{}
}

// missing returns the time missed in the present suspension.
func (p *Process) missing() time.Duration {
	if p.since.IsZero() {
		return 0
	}
	d := time.Since(p.since)
	return d - d/crawl
}

// Behind returns how far the monotonic clock is behind the bubble's.
func (p *Process) Behind() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.missed + p.missing()
}

// Ahead returns how far the boot clock, which counts suspended time, is ahead of the monotonic
// clock. The process notices when it runs again.
func (p *Process) Ahead() (time.Duration, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.missed, true
}
