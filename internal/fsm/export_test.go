package fsm

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/proof/mutate"
)

// A Recorder gets what the processes of a simulation do. Run names a process: one that was
// started again has another one. Wall is the real time.
type Recorder interface {
	Step(run string, cfg *Config, wall int64, now Instant, in *Input, out []Effect)
	// Acked is called for a commit of one entry, which has number seq.
	Acked(run string, wall int64, f driver.Fence, n driver.WriteNo, seq driver.Seq)
}

// Simulate runs the simulation of a seed. The error is the rule that it broke, with why.
func Simulate(seed uint64, r Recorder) error {
	if _, v := recordSeed(seed, newIgnored(), nil, r); v != nil {
		return errors.New(v.rule + ": " + v.text)
	}
	return nil
}

// scenes gets what the machines do of tests that build one case; nil: nobody does.
var scenes Recorder

// sceneCount makes the names of scenes different.
var sceneCount atomic.Int64

// RecordScenes has r get what the machines do of tests that build one case. A run is named
// SCENE/PROCESS there; the processes of a scene share a store. r is safe for concurrent use.
func RecordScenes(r Recorder) { scenes = r }

// A scene is the part of a Recorder that one test's machines have.
type scene struct {
	r    Recorder
	name string
}

// newScene returns nil without a Recorder.
func newScene() *scene {
	if scenes == nil {
		return nil
	}
	return &scene{scenes, fmt.Sprintf("scene-%d", sceneCount.Add(1))}
}

// step has the machine take a step, which s notes unless it is nil.
func (s *scene) step(m *Machine, now Instant, in Input) []Effect {
	if s == nil {
		return m.Step(now, in)
	}
	cfg := m.Config()
	out := m.Step(now, in)
	s.Step("m0.1", &cfg, int64(time.Hour)+int64(now), now, &in, out)
	return out
}

func (s *scene) Step(run string, cfg *Config, wall int64, now Instant, in *Input, out []Effect) {
	s.r.Step(s.name+"/"+run, cfg, wall, now, in, out)
}

func (s *scene) Acked(run string, wall int64, f driver.Fence, n driver.WriteNo, seq driver.Seq) {
	s.r.Acked(s.name+"/"+run, wall, f, n, seq)
}

// Mutants are the mutants if -mutants asks for them.
func Mutants() (names []string, edits [][]mutate.Edit) {
	for _, m := range mutants {
		if mutantsFlag.On() {
			names, edits = append(names, m.name), append(edits, m.edits)
		}
	}
	return names, edits
}
