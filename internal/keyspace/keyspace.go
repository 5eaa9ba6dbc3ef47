// Package keyspace defines the names, hashes and limits of sets of shards. In a handler's context,
// it records to which shards the keys of the handler's shard may move.
package keyspace

import "context"

type key struct{}

// With returns a handler's context with a name: the name of the keyspace or, if the shard's keys
// never move, of the shard.
func With(ctx context.Context, name string) context.Context {
	return context.WithValue(ctx, key{}, name)
}

// Of returns the name, or "" if the context does not come from a Manager's handler.
func Of(ctx context.Context) string {
	name, _ := ctx.Value(key{}).(string)
	return name
}
