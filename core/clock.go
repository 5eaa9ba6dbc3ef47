package core

import (
	"sync/atomic"
	"time"

	"github.com/tenure-go/tenure/internal/fsm"
)

// clock measures time for the machine: the monotonic time since start, plus the time that the
// computer has been suspended since then. Reading the suspended time is slow, so a timer samples
// it. Trust therefore ends on time even if no caller reads the clock. The now method also takes a
// sample if the wall clock has moved and the monotonic clock has not, as after a suspension. The
// wall clock has no other use. A clock is safe for concurrent use.
type clock struct {
	start time.Time
	ahead func() (time.Duration, bool) // boot time minus monotonic time; false without a boot clock
	base  time.Duration                // the value of ahead at the start
	away  atomic.Int64                 // time suspended since the start, in nanoseconds
	wall  atomic.Int64                 // wall clock minus the monotonic time since start, when it last caused a sample
	ticks bool                         // there is a boot clock to sample

	behind func() time.Duration // how long a test stopped the monotonic clock; otherwise nil
}

// minSuspend is the shortest suspension that counts. A shorter suspension may only be noise from
// reading two clocks in succession.
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

// read returns the current instant and the corresponding wall-clock time.
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

// sample adds any time that the computer has been suspended since the last sample.
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
