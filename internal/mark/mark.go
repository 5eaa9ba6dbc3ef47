// Package mark is how package sharding marks a member that runs a Manager. Applications can neither
// set nor remove the mark.
package mark

import "context"

// Key is the key of MemberState.Meta that a member with a Manager has. Keys that begin with "_" are
// refused from applications.
const Key = "_shards"

type key struct{}

// Allow returns a context under which Elector.Update lets its caller see and change Tenure's keys.
func Allow(ctx context.Context) context.Context { return context.WithValue(ctx, key{}, true) }

// Allowed reports whether Allow returned the context, or one that ctx was made from.
func Allowed(ctx context.Context) bool { return ctx.Value(key{}) != nil }
