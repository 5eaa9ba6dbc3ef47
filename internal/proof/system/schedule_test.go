package system

import (
	"context"
	"reflect"
	"slices"
	"testing"
	"time"
)

const testTTL = 500 * time.Millisecond

func draw(seed uint64, n int, store *Store) []step {
	s := newSchedule(seed, testTTL, n, store)
	var out []step
	for range n {
		out = append(out, s.next())
	}
	return out
}

func TestScheduleFollowsTheSeed(t *testing.T) {
	t.Parallel()
	for seed := range uint64(20) {
		a, b, other := draw(seed, 30, &Store{}), draw(seed, 30, &Store{}), draw(seed+1, 30, &Store{})
		if !reflect.DeepEqual(a, b) {
			t.Errorf("seed %d gives two schedules:\n%v\n%v", seed, a, b)
		}
		if reflect.DeepEqual(a, other) {
			t.Errorf("seeds %d and %d give one schedule: %v", seed, seed+1, a)
		}
		if n := newSchedule(seed, testTTL, 10, &Store{}).members(); n < minMembers || n > maxMembers {
			t.Errorf("seed %d has %d members", seed, n)
		}
	}
}

func TestScheduleHasWhatEveryRunNeeds(t *testing.T) {
	t.Parallel()
	for seed := range uint64(50) {
		count := map[fault]int{}
		for _, st := range draw(seed, minSteps, &Store{}) {
			count[st.Fault]++
		}
		if count[faultSend] < 2 || count[faultKill] < 1 || count[faultStop] < 1 {
			t.Errorf("seed %d has only %v", seed, count)
		}
	}
}

func TestScheduleDrawsEveryFault(t *testing.T) {
	t.Parallel()
	fault3 := func(context.Context) (func() error, error) { return nil, nil }
	full := &Store{Restart: func(context.Context) error { return nil }, Pause: fault3, Cut: fault3}
	seen := map[fault]int{}
	for _, st := range draw(1, 60, full) {
		seen[st.Fault]++
		if st.Fault == faultShort && st.For >= marginOf(testTTL) {
			t.Errorf("a short stop of %v is not within the margin %v", st.For, marginOf(testTTL))
		}
		if st.After <= 0 || st.Victim < 0 || st.Victim >= 1 || st.Shard < 0 || st.Shard >= 1 {
			t.Errorf("out of range: %+v", st)
		}
	}
	for _, f := range newSchedule(1, testTTL, 10, full).any {
		if seen[f] == 0 {
			t.Errorf("never drawn: %s", f)
		}
	}
	if len(seen) != 13 {
		t.Errorf("%d kinds of faults were drawn, want 13", len(seen))
	}
	none := draw(1, 60, &Store{})
	if slices.ContainsFunc(none, func(st step) bool { return st.Fault.ofStore() }) {
		t.Errorf("a fault of the store was drawn that the configuration cannot do: %v", none)
	}
}
