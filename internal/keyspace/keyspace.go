// Package keyspace defines the names, hashes and limits of sets of shards. It also records, in
// a handler's context, which shards a shard's keys may go to.
package keyspace

import "context"

type key struct{}

// With returns a handler's context. Name is the name of the keyspace, or of the shard if its keys
// stay there.
func With(ctx context.Context, name string) context.Context {
	return context.WithValue(ctx, key{}, name)
}

// Of returns the name, or "" if the context is not that of a Manager's handler.
func Of(ctx context.Context) string {
	name, _ := ctx.Value(key{}).(string)
	return name
}
