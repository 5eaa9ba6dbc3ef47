package history

import (
	"fmt"
	"time"

	"github.com/anishathalye/porcupine"
)

// defaultTimeout bounds porcupine where Options does not.
const defaultTimeout = 30 * time.Second

// model is one of the two sequential specifications.
type model struct {
	check, rule, what string
	spec              porcupine.Model
	// uses reports whether the operation bears on the model.
	uses func(*Operation) bool
}

// models returns the fenced lease and the fenced log. The log's is the stricter
// one, for it holds the record too; the lease's says whether the leases alone were
// broken, and is decided sooner.
func models() []model {
	return []model{
		{
			check: CheckLease, rule: "A1", what: "leases",
			spec: spec(record.step),
			uses: func(o *Operation) bool { return o.bears() && o.Kind != Read && (o.Kind != Commit || !o.open()) },
		},
		{
			check: CheckLog, rule: "F1", what: "leases, commits and reads of the log",
			spec: spec(fencedLog.step),
			uses: (*Operation).bears,
		},
	}
}

// spec makes a porcupine model of a step function over comparable states.
func spec[S comparable](step func(S, *Operation) (S, bool)) porcupine.Model {
	return porcupine.Model{
		Init: func() any { var s S; return s },
		Step: func(state, input, _ any) (bool, any) {
			next, ok := step(state.(S), input.(*Operation))
			return ok, next
		},
		DescribeOperation: func(input, _ any) string { return input.(*Operation).String() },
		DescribeState:     func(state any) string { return fmt.Sprint(state) },
	}
}

// bears reports whether the operation did something to its shard, or tells
// something about it.
func (o *Operation) bears() bool {
	switch o.Kind {
	case Acquire, Transfer, Release, Commit:
		if o.Outcome != Refused {
			return true
		}
		switch o.Reason {
		case ReasonHeld, ReasonFenced, ReasonNumber, ReasonConflict:
			return o.Kind != Release
		}
		return false
	case Read:
		return o.Outcome == OK
	}
	return false
}

// Linearizable judges each shard of a history by the models, and returns one
// finding for each that no order of its operations explains, and one with
// RuleUndecided for each that was not decided in time. It runs porcupine on all
// processors.
func Linearizable(h *History, o *Options) []Finding {
	timeout := defaultTimeout
	if o != nil && o.Timeout > 0 {
		timeout = o.Timeout
	}
	deadline := time.Now().Add(timeout)
	x := newIndex(h)
	var out []Finding
	for _, m := range models() {
		for _, shard := range x.shards {
			ops := operations(m, x.of[shard])
			if len(ops) == 0 {
				continue
			}
			result := porcupine.Unknown
			if left := time.Until(deadline); left > 0 {
				result = porcupine.CheckOperationsTimeout(m.spec, ops, left)
			}
			switch result {
			case porcupine.Illegal:
				out = append(out, finding(m.rule, m.check, shard, nil,
					"no order of its %d operations (%s) gives the outcomes that the clients saw", len(ops), m.what))
			case porcupine.Unknown:
				out = append(out, finding(RuleUndecided, m.check, shard, nil,
					"porcupine did not decide its %d operations (%s) within %v for all: shorten the run, or raise Options.Timeout", len(ops), m.what, timeout))
			}
		}
	}
	return out
}

// operations returns a shard's operations as porcupine takes them: sorted by
// call, of unknown outcome open-ended, each in a lane where nothing else happens
// at that time.
func operations(m model, ops []*Operation) []porcupine.Operation {
	var last Instant
	for _, op := range ops {
		last = max(last, op.Call, op.Return)
	}
	var out []porcupine.Operation
	var lanes []Instant // the end of the last operation in each
	for _, op := range ops {
		if !m.uses(op) {
			continue
		}
		end := last + 1
		if !op.open() {
			end = op.Return
		}
		lane := 0
		for lane < len(lanes) && lanes[lane] >= op.Call {
			lane++
		}
		if lane == len(lanes) {
			lanes = append(lanes, 0)
		}
		lanes[lane] = end
		out = append(out, porcupine.Operation{ClientId: lane, Input: op, Call: int64(op.Call), Return: int64(end)})
	}
	return out
}

// picture writes porcupine's page for one shard, which shows the longest orders
// that it found.
func picture(h *History, f Finding, path string) error {
	for _, m := range models() {
		if m.check != f.Check {
			continue
		}
		ops := operations(m, newIndex(h).of[f.Shard])
		_, info := porcupine.CheckOperationsVerbose(m.spec, ops, defaultTimeout)
		return porcupine.VisualizePath(m.spec, info, path)
	}
	return fmt.Errorf("tenure: history: %s is not a model", f.Check)
}

// pictured reports whether the finding is a model's.
func (f *Finding) pictured() bool {
	return (f.Check == CheckLease || f.Check == CheckLog)
}
