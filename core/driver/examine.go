package driver

import "context"

// Finding is what an Examiner reports about one setting of the store, one permission of this user,
// or the clock.
type Finding struct {
	Name   string `json:"name"`
	Value  string `json:"value"`
	Remedy string `json:"remedy,omitempty"` // what to change; empty if nothing needs to change
}

// Examiner is an optional interface of a Backend. For operators, an Examiner reports facts about
// the store that Open does not check. The tenure doctor command shows the findings.
type Examiner interface {
	// Examine only reads from the store. Examine reports settings under which a crash could lose
	// acknowledged writes, the permissions that this user has and lacks, and the server's clock.
	// Examine leaves out anything that the user may not read. The findings are for human readers,
	// and may change between versions.
	Examine(ctx context.Context) ([]Finding, error)
}
