package fsm

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/proof/mutate"
)

// A Recorder records the steps of a simulation's processes. Run names a process, which gets a new
// name when it is restarted. Wall is the real time.
type Recorder interface {
	Step(run string, cfg *Config, wall int64, now Instant, in *Input, out []Effect)
	// Acked is called for each commit of one entry, with the entry's number seq.
	Acked(run string, wall int64, f driver.Fence, n driver.WriteNo, seq driver.Seq)
}

// Simulate runs the simulation of a seed. The error names the broken rule and the reason.
func Simulate(seed uint64, r Recorder) error {
	if _, v := recordSeed(seed, newIgnored(), nil, r); v != nil {
		return errors.New(v.rule + ": " + v.text)
	}
	return nil
}

// scenes, if not nil, records the machines of tests that construct a single case.
var scenes Recorder

// sceneCount keeps the names of scenes distinct.
var sceneCount atomic.Int64

// RecordScenes makes r record the machines of tests that construct a single case. A run is named
// SCENE/PROCESS. The processes of a scene share a store. r is safe for concurrent use.
func RecordScenes(r Recorder) { scenes = r }

// A scene is the part of a Recorder for the machines of one test.
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

// step makes the machine take a step. Unless s is nil, s records the step.
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

// Mutants returns the mutants if -mutants asks for them.
func Mutants() (names []string, edits [][]mutate.Edit) {
	for _, m := range mutants {
		if mutantsFlag.On() {
			names, edits = append(names, m.name), append(edits, m.edits)
		}
	}
	return names, edits
}
