// Package keyspace defines the names, hashes and limits of sets of shards. The package also
// records, in a handler's context, the shards to which the keys of the handler's shard may move.
package keyspace

import "context"

type key struct{}

// With returns a handler's context that carries the keyspace's name or, if the shard's keys never
// move, the shard's name.
func With(ctx context.Context, name string) context.Context {
	return context.WithValue(ctx, key{}, name)
}

// Of returns the name that With stored, or "" if the context is not from a Manager's handler.
func Of(ctx context.Context) string {
	name, _ := ctx.Value(key{}).(string)
	return name
}
