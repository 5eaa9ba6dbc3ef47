package elapsed

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

type world struct{ *testing.T }

func bubble(t *testing.T, f func(*world)) { synctest.Test(t, func(t *testing.T) { f(&world{t}) }) }

func TestBounds(t *testing.T) {
	start := time.Now()
	if time.Since(start) > time.Second { // want `elapsed`
		t.Error("late")
	}
	if took := time.Since(start).Seconds(); 2*took > 1 { // want `elapsed`
		t.Error("late")
	}
	for end := start.Add(time.Minute); time.Now().Before(end); { // want `elapsed`
	}
	all := []time.Duration{time.Second}
	all = append(all, elapsed(start))
	slices.Sort(all)
	if all[0] > time.Second || len(all) > 2 { // want `elapsed`
		t.Error("late")
	}
	_, took := both(start)
	atMost(t, took)
	if a, b := start, time.Now(); b.Before(a) { // an order
		t.Error("back")
	}
	if n, _ := both(start); n > 3 {
		t.Error(n)
	}
}

func elapsed(start time.Time) time.Duration { return time.Now().Sub(start) }

func both(start time.Time) (int, time.Duration) { return 1, elapsed(start) }

func atMost(t *testing.T, took time.Duration) {
	if took > time.Second { // want `elapsed`
		t.Error(took)
	}
}

func TestBubbles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		if start := time.Now(); time.Since(start) > time.Second {
			t.Error("late")
		}
	})
	bubble(t, inside)
	bubble(t, func(w *world) { onlyInside(w.T, time.Now()) })
}

func inside(w *world) {
	if start := time.Now(); time.Since(start) > time.Second {
		w.Error("late")
	}
}

func onlyInside(t *testing.T, start time.Time) {
	if time.Since(start) > time.Second {
		t.Error("late")
	}
}

type gauge struct{}

func (gauge) AtMost(string, time.Duration, time.Duration) {}

func TestFigure(t *testing.T) { gauge{}.AtMost("it", time.Second, time.Minute) }
