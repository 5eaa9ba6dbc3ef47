package core

import (
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"
)

func TestClockCountsSuspendedTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ahead := time.Hour
		c := newClock(func() (time.Duration, bool) { return ahead, true })
		step := func(d, want time.Duration) {
			t.Helper()
			ahead += d
			c.sample()
			if got := time.Duration(c.now()); got != want {
				t.Errorf("instant %v, want %v", got, want)
			}
		}
		step(0, 0)
		step(minSuspend-1, 0) // noise between two clock readings
		step(time.Minute, time.Minute+minSuspend-1)
		step(-time.Second, time.Minute+minSuspend-1) // the clock never goes back
		time.Sleep(time.Second)
		step(time.Second, time.Minute+time.Second+minSuspend-1)
	})
}

// The first check after a suspension ends a lease without a timer: the wall clock moved and the
// monotonic clock did not.
func TestSuspensionEndsALeaseAtTheFirstCheck(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var suspended time.Duration
		c := newClock(func() (time.Duration, bool) { return 5*time.Hour + suspended, true })
		c.behind = func() time.Duration { return suspended }
		l := &Lease{clk: c, trust: &trust{}}
		for _, slept := range []time.Duration{ttl, time.Hour} {
			l.trust.until.Store(int64(c.now().Add(ttl)))
			time.Sleep(ttl / 2)
			if err := l.Err(); err != nil {
				t.Errorf("half a TTL without a suspension: %v", err)
			}
			time.Sleep(slept)
			suspended += slept
			if err := l.Err(); !errors.Is(err, ErrLapsed) {
				t.Errorf("the first check after a suspension of %v: %v, want ErrLapsed", slept, err)
			}
		}
	})
}

// Setting the wall clock must not move trust. Fake time has no separate monotonic clock, so this
// test runs in real time.
func TestClockIgnoresWallTime(t *testing.T) {
	t.Parallel()
	for _, step := range []time.Duration{-time.Hour, time.Hour} {
		c := newClock(func() (time.Duration, bool) { return 0, false })
		wall := c.start.Round(0)
		// A time with a monotonic reading has the seconds of the wall clock in its
		// first word, above 30 bits of nanoseconds.
		*(*uint64)(unsafe.Pointer(&c.start)) -= uint64(int64(step/time.Second)) << 30
		if got := wall.Sub(c.start.Round(0)); got != step {
			t.Fatalf("the wall clock was set by %v, want %v: see how time.Time is laid out", got, step)
		}
		if got := time.Duration(c.now()); got < 0 || got > time.Minute {
			t.Errorf("instant %v right after the start, with the wall clock set by %v", got, step)
		}
	}
}

// The boot clock must not move with fake time.
func TestBootClockIsStill(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newClock(bootAhead)
		for range 1000 {
			time.Sleep(time.Hour)
			c.sample()
		}
		if got := time.Duration(c.now()); got != 1000*time.Hour {
			t.Errorf("instant %v, want 1000h", got)
		}
	})
}

func TestNotifierOrderAndBound(t *testing.T) {
	t.Parallel()
	var got []int
	dropped := 0
	n := newNotifier(Hooks{OnEvent: func(e Event) { dropped += e.Dropped }}, nil, "a")
	for i := range maxEvents + 10 {
		n.post(func() { got = append(got, i) })
	}
	n.close()
	n.post(func() { t.Error("called after close") })
	var wg sync.WaitGroup
	wg.Go(n.serve)
	wg.Wait()
	if dropped != 10 || len(got) != maxEvents || got[0] != 10 || got[maxEvents-1] != maxEvents+9 {
		t.Errorf("%d dropped, %d called, from %d", dropped, len(got), got[0])
	}
}
