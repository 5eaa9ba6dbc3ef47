package main

import (
	"errors"
	"slices"
	"strings"

	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/proof/harness"
	"github.com/tenure-go/tenure/internal/proof/intercept"
)

// newGate returns a gate below core. With it, the director stops this process after core has
// checked a write and before it is sent. The gate reports each held write, and each late write,
// a zombie's, with its outcome.
func newGate(report func(event)) *harness.Gate {
	return &harness.Gate{
		Held: func(writes []driver.Write) { report(event{Is: isHeld, Writes: ofAirports(seen(writes))}) },
		Late: func(c *intercept.Call, _ bool, err error) {
			late := seen(c.Writes)
			for i := range late {
				outcome := err
				if err == nil {
					outcome = c.Committed[i].Err
				}
				late[i].judge(outcome)
			}
			if late = ofAirports(late); len(late) > 0 {
				report(event{Is: isAnswered, Writes: late})
			}
		},
	}
}

// ofAirports drops writes of Tenure's own shards, such as a plan.
func ofAirports(writes []write) []write {
	return slices.DeleteFunc(writes, func(w write) bool { return strings.HasPrefix(w.Airport, "_") })
}

// judge fills in the outcome of a write.
func (w *write) judge(err error) {
	var fenced *core.FencedError
	switch {
	case err == nil:
		w.Outcome = wasAccepted
	case errors.Is(err, core.ErrFenced):
		w.Outcome = wasRefused
		if errors.As(err, &fenced) {
			w.Current = int64(fenced.Current.Token)
		}
	default:
		w.Outcome, w.Cause = wasFailed, err.Error()
	}
}

// seen describes writes for the director.
func seen(writes []driver.Write) []write {
	out := make([]write, len(writes))
	for i, w := range writes {
		out[i] = write{Airport: string(w.Fence.Shard), Token: int64(w.Fence.Token)}
		for _, op := range w.Ops {
			d, err := decodeDecision(op.Value)
			if op.Kind != driver.OpAppend || err != nil {
				continue
			}
			if out[i].Departure == 0 {
				out[i].Departure = d.Departure
			}
			out[i].Count = d.Count
		}
	}
	return out
}
