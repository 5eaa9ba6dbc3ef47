// Package mark is how package sharding knows members: those that run a Manager have a mark, which
// applications can neither set nor remove, and the sessions of one process begin alike.
package mark

import (
	"context"

	"github.com/tenure-go/tenure/core/driver"
)

// Key is the key of MemberState.Meta that a member with a Manager has. Keys that begin with "_" are
// refused from applications.
const Key = "_shards"

type key struct{}

// Allow returns a context under which Elector.Update lets its caller see and change Tenure's keys.
func Allow(ctx context.Context) context.Context { return context.WithValue(ctx, key{}, true) }

// Allowed reports whether Allow returned the context, or one that ctx was made from.
func Allowed(ctx context.Context) bool { return ctx.Value(key{}) != nil }

// ProcessLen is how many bytes at the beginning of a session's id name its process.
const ProcessLen = 16

// Process is what the ids of all sessions of a process begin with. An id of another length than
// core's names its process alone.
func Process(id driver.SessionID) driver.SessionID {
	if len(id) == 2*ProcessLen {
		return id[:ProcessLen]
	}
	return id
}
