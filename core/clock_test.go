package core

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"
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
		step(minSuspend-1, 0) // the noise of two readings
		step(time.Minute, time.Minute+minSuspend-1)
		step(-time.Second, time.Minute+minSuspend-1) // never back
		time.Sleep(time.Second)
		step(time.Second, time.Minute+time.Second+minSuspend-1)
	})
}

// Fake time passes at once; the boot clock must not notice.
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
	n := newNotifier(Hooks{OnDropped: func(k int) { dropped += k }}, nil)
	for i := range maxEvents + 10 {
		n.post(func() { got = append(got, i) })
	}
	n.close()
	n.post(func() { t.Error("called after close") })
	var wg sync.WaitGroup
	wg.Go(n.run)
	wg.Wait()
	if dropped != 10 || len(got) != maxEvents || got[0] != 10 || got[maxEvents-1] != maxEvents+9 {
		t.Errorf("%d dropped, %d called, from %d", dropped, len(got), got[0])
	}
}
