package main

import (
	"slices"
	"testing"
)

func TestSchedule(t *testing.T) {
	t.Parallel()
	members := []string{"a", "b", "c", "d"}
	different := 0
	for seed := range uint64(100) {
		s := newSchedule(seed, members, 1000)
		if s != newSchedule(seed, members, 1000) {
			t.Fatalf("seed %d gives two schedules", seed)
		}
		if all := []string{s.kill, s.stop, s.drain,
			s.leave}; len(slices.Compact(slices.Sorted(slices.Values(all)))) != 4 {
			t.Errorf("seed %d has two faults of one member: %+v", seed, s)
		}
		if at := []int{0, s.killAt, s.joinAt, s.stopAt, s.restartAt, s.drainAt, s.leaveAt,
			1000}; !slices.IsSorted(at) || len(slices.Compact(at)) != 8 {
			t.Errorf("seed %d has faults out of order: %+v", seed, s)
		}
		if s != newSchedule(seed+1, members, 1000) {
			different++
		}
	}
	if different != 100 {
		t.Errorf("%d of 100 seeds differ from the next", different)
	}
	if s := newSchedule(1, members[:3], 1000); s.kill == s.stop || s.drain == s.stop || s.drain == s.kill ||
		s.leave != s.kill {
		t.Errorf("three members: %+v", s)
	}
	if s := newSchedule(1, members[:2], 1000); s.kill == s.stop || s.drain == s.leave {
		t.Errorf("two members: %+v", s)
	}
}
