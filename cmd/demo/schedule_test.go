package main

import "testing"

func TestSchedule(t *testing.T) {
	t.Parallel()
	members := []string{"a", "b", "c"}
	different := 0
	for seed := range uint64(100) {
		s := newSchedule(seed, members, 1000)
		if s != newSchedule(seed, members, 1000) {
			t.Fatalf("seed %d gives two schedules", seed)
		}
		if s.kill == s.stop || s.stop == s.leave || s.leave == s.kill {
			t.Errorf("seed %d strikes one member twice: %+v", seed, s)
		}
		if !(0 < s.killAt && s.killAt < s.stopAt && s.stopAt < s.restartAt && s.restartAt < s.leaveAt && s.leaveAt < 1000) {
			t.Errorf("seed %d strikes out of order: %+v", seed, s)
		}
		if s != newSchedule(seed+1, members, 1000) {
			different++
		}
	}
	if different != 100 {
		t.Errorf("%d of 100 seeds differ from the next", different)
	}
	if s := newSchedule(1, members[:2], 1000); s.kill == s.stop || s.leave != s.kill {
		t.Errorf("two members: %+v", s)
	}
}
