package core

import (
	"sync/atomic"
	"time"

	"github.com/tenure-go/tenure/internal/fsm"
)

// clock gives the machine its instants: the monotonic time since start plus the
// time the machine was suspended since then. Reading the latter is slow, so it is
// sampled: by a timer, so that trust ends in time though nobody asks, and by now where the
// wall clock has moved and the monotonic one has not, as after a suspension. What the wall
// clock says counts for nothing else. Safe for concurrent use.
type clock struct {
	start time.Time
	ahead func() (time.Duration, bool) // boot time less monotonic time, if there is a boot clock
	base  time.Duration                // at start
	away  atomic.Int64                 // suspended since start, in nanoseconds
	wall  atomic.Int64                 // wall clock less the monotonic time since start, when last sampled for it
	ticks bool                         // there is something to sample

	behind func() time.Duration // how long a test had the monotonic clock stand still; else nil
}

// minSuspend is the least suspension that counts. Below is the noise of reading
// two clocks one after the other.
const minSuspend = time.Millisecond

func newClock(ahead func() (time.Duration, bool)) *clock {
	c := &clock{start: time.Now(), ahead: ahead}
	c.wall.Store(c.start.UnixNano())
	c.base, c.ticks = ahead()
	return c
}

func (c *clock) now() fsm.Instant {
	t := time.Now()
	mono := int64(t.Sub(c.start))
	if c.behind != nil {
		mono -= int64(c.behind())
	}
	if c.ticks {
		if wall := t.UnixNano() - mono; time.Duration(wall-c.wall.Load()).Abs() >= minSuspend {
			c.sample()
			c.wall.Store(wall)
		}
	}
	return fsm.Instant(mono + c.away.Load())
}

// sample takes in suspensions since the last call.
func (c *clock) sample() {
	if !c.ticks {
		return
	}
	d, ok := c.ahead()
	for away := c.away.Load(); ok && d-c.base >= time.Duration(away)+minSuspend; away = c.away.Load() {
		if c.away.CompareAndSwap(away, int64(d-c.base)) {
			return
		}
	}
}
