// Package mark defines the member metadata that Tenure writes and that applications can neither set
// nor remove. Managers of package sharding recognize each other's members by a mark. The package
// also extracts the prefix that all session ids of one process share.
package mark

import (
	"context"

	"github.com/tenure-go/tenure/core/driver"
)

// Key is the key in MemberState.Meta that marks members with a Manager. Applications may not use
// keys that begin with "_".
const Key = "_shards"

// Core writes these keys in MemberState.Meta, and the methods Ineligible and Trouble of MemberState
// read them. Backends store these keys like other keys.
const (
	IneligibleKey = "_ineligible" // the reason why a member is not eligible
	TroubleKey    = "_trouble"    // the reason why a member needs an operator's help
)

type key struct{}

// Allow returns a context with which the caller of Elector.Update can see and change Tenure's keys.
func Allow(ctx context.Context) context.Context { return context.WithValue(ctx, key{}, true) }

// Allowed reports whether a context comes from Allow, or is derived from such a context.
func Allowed(ctx context.Context) bool { return ctx.Value(key{}) != nil }

// ProcessLen is the length of the prefix of a session id that identifies the session's process.
const ProcessLen = 16

// Process returns the prefix that all session ids of a process share. If an id does not have the
// length of core's ids, Process returns the whole id.
func Process(id driver.SessionID) driver.SessionID {
	if len(id) == 2*ProcessLen {
		return id[:ProcessLen]
	}
	return id
}
