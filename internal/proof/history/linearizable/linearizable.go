// Package linearizable applies the porcupine checker to the histories that package history records.
// It searches for an order of a shard's operations that explains the outcomes seen by the clients.
// The package has a model of the fenced lease and a model of the fenced log, and checks each shard
// separately. An operation whose outcome is unknown may have taken effect at any time after its
// call, or never.
//
// A validator of package history identifies the broken rule, but a model shows only that some rule
// is broken. A program that uses only the validators does not include porcupine.
package linearizable

import (
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/proof/history"
)

// These are the names of the models in Finding.Check.
const (
	Lease = "lease-linearizable"
	Log   = "log-linearizable"
)

// RuleUndecided is the Rule of a finding about a shard that porcupine did not check before the
// timeout.
const RuleUndecided = "undecided"

// defaultTimeout is porcupine's time limit if the caller sets none.
const defaultTimeout = 30 * time.Second

type model struct {
	check, rule, what string
	spec              porcupine.Model
	// uses reports whether the operation matters to the model.
	uses func(*history.Operation) bool
}

// models returns the models of the fenced lease and of the fenced log. The log's model is stricter,
// because it also contains the record. The lease's model shows whether the leases alone are wrong,
// and takes less time.
func models() []model {
	return []model{
		{
			check: Lease, rule: "A1", what: "leases",
			spec: spec(record.step),
			uses: func(o *history.Operation) bool {
				return bears(o) && o.Kind != history.Read && (o.Kind != history.Commit || !open(o))
			},
		},
		{
			check: Log, rule: "F1", what: "leases, commits and reads of the log",
			spec: spec(fencedLog.step),
			uses: bears,
		},
	}
}

// spec returns a porcupine model of a step function over comparable states.
func spec[S comparable](step func(S, *history.Operation) (S, bool)) porcupine.Model {
	return porcupine.Model{
		Init: func() any { var s S; return s },
		Step: func(state, input, _ any) (bool, any) {
			next, ok := step(state.(S), input.(*history.Operation))
			return ok, next
		},
		DescribeOperation: func(input, _ any) string { return input.(*history.Operation).String() },
		DescribeState:     func(state any) string { return fmt.Sprint(state) },
	}
}

// open reports whether the outcome is unknown.
func open(o *history.Operation) bool { return o.Outcome != history.OK && o.Outcome != history.Refused }

// bears reports whether the operation changed or shows its shard's state.
func bears(o *history.Operation) bool {
	switch o.Kind {
	case history.Acquire, history.Transfer, history.Release, history.Commit:
		if o.Outcome != history.Refused {
			return true
		}
		switch o.Reason {
		case history.ReasonHeld, history.ReasonFenced, history.ReasonNumber, history.ReasonConflict:
			return o.Kind != history.Release
		}
		return false
	case history.Read:
		return o.Outcome == history.OK
	default:
		return false
	}
}

// Check checks each shard of a history against the models. It returns a finding for each shard
// whose operations no order explains, and one with RuleUndecided for each shard that porcupine did
// not check before the timeout. All models and shards share the timeout. A timeout of 0 means 30 s.
// Check runs porcupine on all processors.
func Check(h *history.History, timeout time.Duration) []history.Finding {
	if timeout <= 0 {
		timeout = defaultTimeout
	}
	deadline := time.Now().Add(timeout)
	of := byShard(h)
	var out []history.Finding
	for _, m := range models() {
		for _, shard := range slices.Sorted(maps.Keys(of)) {
			ops := operations(m, of[shard])
			if len(ops) == 0 {
				continue
			}
			result := porcupine.Unknown
			if left := time.Until(deadline); left > 0 {
				result = porcupine.CheckOperationsTimeout(m.spec, ops, left)
			}
			f := history.Finding{Rule: m.rule, Check: m.check, Shard: shard}
			switch result {
			case porcupine.Illegal:
				f.Message = fmt.Sprintf("no order of its %d operations (%s) gives the outcomes that the clients saw",
					len(ops), m.what)
				out = append(out, f)
			case porcupine.Unknown:
				f.Rule = RuleUndecided
				f.Message = fmt.Sprintf("porcupine did not decide its %d operations (%s) within %v for all: "+
					"shorten the run, or raise the timeout", len(ops), m.what, timeout)
				out = append(out, f)
			default: // porcupine.Ok
			}
		}
	}
	return out
}

func byShard(h *history.History) map[driver.ShardID][]*history.Operation {
	of := map[driver.ShardID][]*history.Operation{}
	for i := range h.Operations {
		if op := &h.Operations[i]; op.Shard != "" {
			of[op.Shard] = append(of[op.Shard], op)
		}
	}
	return of
}

// operations returns a shard's operations in porcupine's form, sorted by call. Operations with an
// unknown outcome have no end. The operations of one client do not overlap.
func operations(m model, ops []*history.Operation) []porcupine.Operation {
	var last history.Instant
	for _, op := range ops {
		last = max(last, op.Call, op.Return)
	}
	var out []porcupine.Operation
	var clients []history.Instant // end of each client's last operation
	for _, op := range ops {
		if !m.uses(op) {
			continue
		}
		end := last + 1
		if !open(op) {
			end = op.Return
		}
		id := 0
		for id < len(clients) && clients[id] >= op.Call {
			id++
		}
		if id == len(clients) {
			clients = append(clients, 0)
		}
		clients[id] = end
		out = append(out, porcupine.Operation{ClientId: id, Input: op, Call: int64(op.Call), Return: int64(end)})
	}
	return out
}

// Draw writes a page, such as log-linearizable-orders.html, into dir for each finding of a model.
// Porcupine generates the page, which shows the longest orders that porcupine found. Other findings
// have no page.
func Draw(dir string, h *history.History, found []history.Finding) error {
	var errs []error
	for _, f := range found {
		for _, m := range models() {
			if m.check != f.Check {
				continue
			}
			_, info := porcupine.CheckOperationsVerbose(m.spec, operations(m, byShard(h)[f.Shard]), defaultTimeout)
			path := filepath.Join(dir, fmt.Sprintf("%s-%s.html", f.Check, f.Shard))
			if err := porcupine.VisualizePath(m.spec, info, path); err != nil {
				errs = append(errs, fmt.Errorf("tenure: history: %w", err))
			}
		}
	}
	return errors.Join(errs...)
}
