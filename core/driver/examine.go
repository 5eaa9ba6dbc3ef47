package driver

import "context"

// Finding is an Examiner's result about one setting of the store, one right of this user, or the
// clock.
type Finding struct {
	Name   string `json:"name"`
	Value  string `json:"value"`
	Remedy string `json:"remedy,omitempty"` // what to change; empty if nothing
}

// Examiner is an optional interface of a Backend that can report more about its store than
// opening checks, for operators. The command tenure doctor shows it.
type Examiner interface {
	// Examine only reads. It reports settings with which a crash could lose acknowledged writes,
	// this user's rights and missing rights, and the server's clock. It leaves out anything that
	// the user may not read. The findings are for people, and differ from version to version.
	Examine(ctx context.Context) ([]Finding, error)
}
