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

// newGate returns a gate between core and the store. The gate lets the director stop this process
// after core has checked a write, but before the write is sent. The gate reports held writes, and
// late (zombie) writes with their outcomes.
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

// ofAirports drops writes to Tenure's own shards, such as plans.
func ofAirports(writes []write) []write {
	return slices.DeleteFunc(writes, func(w write) bool { return strings.HasPrefix(w.Airport, "_") })
}

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
