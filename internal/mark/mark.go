// Package mark defines the metadata of members that Tenure writes, and that applications can
// neither set nor remove. Package sharding recognizes members by it, because each member that
// runs a Manager has a mark. The ids of one process's sessions begin with the same bytes.
package mark

import (
	"context"

	"github.com/tenure-go/tenure/core/driver"
)

// Key is the key of MemberState.Meta for members with a Manager. Applications may not use keys that
// begin with "_".
const Key = "_shards"

// Keys of MemberState.Meta that core writes, and that MemberState.Ineligible and Trouble read.
// A backend stores them like any other key.
const (
	IneligibleKey = "_ineligible" // the reason why a member is not eligible
	TroubleKey    = "_trouble"    // the reason why a member needs an operator's help
)

type key struct{}

// Allow returns a context under which Elector.Update lets its caller see and change Tenure's keys.
func Allow(ctx context.Context) context.Context { return context.WithValue(ctx, key{}, true) }

// Allowed reports whether a context comes from Allow, or is derived from such a context.
func Allowed(ctx context.Context) bool { return ctx.Value(key{}) != nil }

// ProcessLen is the number of bytes at the beginning of a session's id that name its process.
const ProcessLen = 16

// Process returns the common beginning of the ids of a process's sessions. An id of another length
// than core's stands for a process with one session.
func Process(id driver.SessionID) driver.SessionID {
	if len(id) == 2*ProcessLen {
		return id[:ProcessLen]
	}
	return id
}
