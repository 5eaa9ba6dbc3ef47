package fsm

import (
	"errors"
	"testing"

	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/proof/mutate"
)

// A Recorder gets what the processes of a simulation do. Run names a process: one that was
// started again has another one. Wall is the real time.
type Recorder interface {
	Step(run string, cfg *Config, wall int64, now Instant, in *Input, out []Effect)
	Acked(run string, wall int64, f driver.Fence, n driver.WriteNo)
}

// Simulate runs the simulation of a seed. The error is the rule that it broke, with why.
func Simulate(seed uint64, r Recorder) error {
	if _, v := recordSeed(seed, newIgnored(), nil, r); v != nil {
		return errors.New(v.rule + ": " + v.text)
	}
	return nil
}

// EachMutant calls f with the mutants that -mutants chose.
func EachMutant(t *testing.T, f func(name string, edits []mutate.Edit)) {
	t.Helper()
	for _, m := range mutants {
		if mutantsFlag.Touched(m.breaks, m.edits) {
			f(m.name, m.edits)
		}
	}
}
