package rhythm

import (
	"fmt"
	"reflect"
	"testing"
	"time"
)

// TestRhythm checks which failures are logged in two hours with a failure each second, and that
// their end is logged.
func TestRhythm(t *testing.T) {
	t.Parallel()
	var r Rhythm
	var lines []time.Duration
	begin := time.Unix(1e9, 0)
	for d := time.Duration(0); d <= time.Hour; d += time.Second {
		if s, ok := r.Failed("x", begin.Add(d)); ok {
			lines = append(lines, d)
			if s.Since != begin || s.Failures != int(d/time.Second)+1 {
				t.Errorf("after %v: %+v", d, s)
			}
		}
	}
	want := []time.Duration{0, time.Minute, 5 * time.Minute, 15 * time.Minute, 30 * time.Minute, 45 * time.Minute, time.Hour}
	if !reflect.DeepEqual(lines, want) {
		t.Errorf("lines after %v, want %v", lines, want)
	}
	end := begin.Add(time.Hour + time.Second)
	if s, ok := r.Worked("x", end); !ok || s.Since != begin || s.Failures != 3601 {
		t.Errorf("the end: %+v, logged: %v", s, ok)
	}
	if _, ok := r.Worked("x", end); ok {
		t.Error("the end was logged twice")
	}
	if _, ok := r.Failed("x", end.Add(calm)); !ok {
		t.Error("the first failure after a calm was not logged")
	}
	if _, ok := r.Worked("y", end); ok {
		t.Error("the end of no spell was logged")
	}
}

// TestInTurn: a call that alternates between failing and working causes at most twice as many lines
// as a call that only fails. The last line reports the end.
func TestInTurn(t *testing.T) {
	t.Parallel()
	var r Rhythm
	now := time.Unix(1e9, 0)
	lines, ended := 0, true
	for range 1800 {
		if _, ok := r.Failed("x", now); ok {
			lines, ended = lines+1, false
		}
		if _, ok := r.Worked("x", now.Add(time.Second)); ok {
			lines, ended = lines+1, true
		}
		now = now.Add(2 * time.Second)
	}
	if lines > 14 || !ended {
		t.Errorf("%d lines in an hour, the last one is an end: %v", lines, ended)
	}
}

// TestAgain: if a spell begins soon after the end of another, its first line is logged within calm.
func TestAgain(t *testing.T) {
	t.Parallel()
	var r Rhythm
	now := time.Unix(1e9, 0)
	for range 3600 {
		now = now.Add(time.Second)
		r.Failed("x", now)
	}
	r.Worked("x", now)
	end, lines := now, 0
	for now = now.Add(time.Minute); now.Before(end.Add(calm + time.Minute)); now = now.Add(time.Second) {
		if _, ok := r.Failed("x", now); ok {
			lines++
		}
	}
	if lines != 1 {
		t.Errorf("%d lines, want one", lines)
	}
}

// TestAfter: if a spell ends early, neither the spell nor its end is logged.
func TestAfter(t *testing.T) {
	t.Parallel()
	r := Rhythm{After: 10 * time.Second}
	now := time.Unix(1e9, 0)
	for range 5 {
		if _, ok := r.Failed("x", now.Add(9*time.Second)); ok {
			t.Error("logged early")
		}
		if _, ok := r.Worked("x", now.Add(9*time.Second)); ok {
			t.Error("an end without a beginning")
		}
		now = now.Add(time.Hour)
	}
	r.Failed("x", now)
	if _, ok := r.Failed("x", now.Add(10*time.Second)); !ok {
		t.Error("no line after the time")
	}
	if _, ok := r.Failed("x", now.Add(70*time.Second)); !ok {
		t.Error("no line a minute after the first")
	}
}

// TestBound: even with an endless number of keys, the memory and the number of lines are limited,
// and keys are forgotten.
func TestBound(t *testing.T) {
	t.Parallel()
	var r Rhythm
	now := time.Unix(1e9, 0)
	lines := 0
	for n := range 10_000 {
		if _, ok := r.Failed(fmt.Sprint(n), now); ok {
			lines++
		}
	}
	if lines != maxKeys+1 || len(r.spells) != maxKeys+1 {
		t.Errorf("%d lines and %d spells", lines, len(r.spells))
	}
	if _, ok := r.Failed("later", now.Add(silent)); !ok || len(r.spells) != 1 {
		t.Errorf("%d spells, want one that is new: %v", len(r.spells), ok)
	}
}
