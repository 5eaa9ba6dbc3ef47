package driver

import (
	"context"
	"fmt"
	"time"
)

// Finding is what an Examiner says of one setting of the store, right of this user, or
// clock.
type Finding struct {
	Name   string `json:"name"`
	Value  string `json:"value"`
	Remedy string `json:"remedy,omitempty"` // what to change; empty: it is as it should be
}

// Examiner is a Backend that can say more of its store than opening it checks. It is
// optional, for operators: the command tenure doctor shows it.
type Examiner interface {
	// Examine reads, and writes nothing: settings with which a crash could lose
	// acknowledged writes, what this user may do and what it lacks, and the server's clock.
	// What the user may not read is left out. The findings are for people, and differ from
	// version to version.
	Examine(ctx context.Context) ([]Finding, error)
}

// ClockFinding compares a server's clock with this machine's, which was read before and
// after. It informs: Tenure compares no clocks.
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
