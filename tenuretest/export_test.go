package tenuretest

import (
	"testing"
	"time"
)

// Played plays one seed, and returns the failures and the events.
func Played(t *testing.T, o *Options, seed int, scenario func(w *World)) (failures, events []string) {
	t.Helper()
	c, err := o.resolve()
	if err != nil {
		t.Fatal(err)
	}
	w := play(t, c, seed, false, scenario)
	return w.failures, w.events
}

// Check checks options.
func Check(o *Options) error {
	_, err := o.resolve()
	return err
}

// Step is the beginning or the end of a fault.
type Step struct {
	Member int
	Fault  Faults
	On     bool
}

// Schedule returns the faults that a seed causes to n members, in 100 TTL.
func Schedule(t *testing.T, seed, n int) (out []Step) {
	t.Helper()
	w := &World{o: Options{Length: 100 * time.Second, TTL: time.Second, Faults: AllFaults}, seed: uint64(seed),
		start: time.Now(), slots: make([]*slot, n)}
	for _, s := range w.schedule() {
		out = append(out, Step{s.member, s.fault, s.on})
	}
	return out
}
