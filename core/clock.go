package core

import (
	"sync/atomic"
	"time"

	"github.com/tenure-go/tenure/internal/fsm"
)

// clock gives the machine its instants: the monotonic time since start plus the time for which the
// computer was suspended since then. Reading the suspended time is slow, so it is sampled. A timer
// samples it, so that trust ends in time even without calls. The method now also samples it if the
// wall clock has moved and the monotonic clock has not, as happens after a suspension. The wall
// clock has no other use. A clock is safe for concurrent use.
type clock struct {
	start time.Time
	ahead func() (time.Duration, bool) // boot time less monotonic time; false without a boot clock
	base  time.Duration                // at start
	away  atomic.Int64                 // suspended since start, in nanoseconds
	wall  atomic.Int64                 // wall clock less the monotonic time since start, when it last caused a sample
	ticks bool                         // there is a boot clock to sample

	behind func() time.Duration // how long a test stopped the monotonic clock; otherwise nil
}

// minSuspend is the shortest suspension that counts. A shorter one may only be noise from reading
// two clocks in succession.
const minSuspend = time.Millisecond

func newClock(ahead func() (time.Duration, bool)) *clock {
	c := &clock{start: time.Now(), ahead: ahead}
	c.wall.Store(c.start.UnixNano())
	c.base, c.ticks = ahead()
	return c
}

func (c *clock) now() fsm.Instant {
	at, _ := c.read()
	return at
}

// read returns the current instant and the wall clock's time at that instant.
func (c *clock) read() (fsm.Instant, time.Time) {
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
	return fsm.Instant(mono + c.away.Load()), t
}

// sample adds the time suspended since the last call.
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
