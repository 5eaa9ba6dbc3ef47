package driver

import (
	"context"
	"fmt"
	"time"
)

// Finding is an Examiner's result about one setting of the store, right of this user, or clock.
type Finding struct {
	Name   string `json:"name"`
	Value  string `json:"value"`
	Remedy string `json:"remedy,omitempty"` // what to change; empty if nothing
}

// Examiner is an optional interface of a Backend that can report more about its store than
// opening checks, for operators. The command tenure doctor shows it.
type Examiner interface {
	// Examine reads, and writes nothing. It reports settings with which a crash could lose
	// acknowledged writes, this user's rights and missing rights, and the server's clock. It
	// leaves out anything that the user may not read. The findings are for people, and differ
	// from version to version.
	Examine(ctx context.Context) ([]Finding, error)
}

// ClockFinding compares a server's clock with this machine's clock before and after it was read.
// The finding only informs, because Tenure compares no clocks.
func ClockFinding(before, server, after time.Time) Finding {
	middle := before.Add(after.Sub(before) / 2)
	off := server.Sub(middle).Round(time.Millisecond)
	within := (after.Sub(before)/2 + time.Millisecond).Round(time.Millisecond)
	f := Finding{Name: "clock", Value: fmt.Sprintf("the server's is %v ahead of this machine's, within %v", off, within)}
	if off < 0 {
		f.Value = fmt.Sprintf("the server's is %v behind this machine's, within %v", -off, within)
	}
	return f
}
