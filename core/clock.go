package core

import (
	"sync/atomic"
	"time"

	"github.com/tenure-go/tenure/core/fsm"
)

// clock gives the machine its instants: the monotonic time since start plus the
// time the machine was suspended since then. Reading the latter is slow, so it is
// sampled; now costs one clock read. Safe for concurrent use, but for sample.
type clock struct {
	start time.Time
	ahead func() (time.Duration, bool) // boot time less monotonic time, if there is a boot clock
	base  time.Duration                // at start
	away  atomic.Int64                 // suspended since start, in nanoseconds
	ticks bool                         // there is something to sample

	behind func() time.Duration // how long a test had the monotonic clock stand still; else nil
}

// minSuspend is the least suspension that counts. Below is the noise of reading
// two clocks one after the other.
const minSuspend = time.Millisecond

func newClock(ahead func() (time.Duration, bool)) *clock {
	c := &clock{start: time.Now(), ahead: ahead}
	c.base, c.ticks = ahead()
	return c
}

func (c *clock) now() fsm.Instant {
	now := int64(time.Since(c.start)) + c.away.Load()
	if c.behind != nil {
		now -= int64(c.behind())
	}
	return fsm.Instant(now)
}

// sample takes in suspensions since the last call. Its callers take turns.
func (c *clock) sample() {
	if !c.ticks {
		return
	}
	if d, ok := c.ahead(); ok && d-c.base >= time.Duration(c.away.Load())+minSuspend {
		c.away.Store(int64(d - c.base))
	}
}
