// Package keyspace carries, in a handler's context, which shards a shard's keys may go to.
package keyspace

import "context"

type key struct{}

// With returns a context of a handler. Name is that of the keyspace, or of the shard if its keys stay there.
func With(ctx context.Context, name string) context.Context {
	return context.WithValue(ctx, key{}, name)
}

// Of returns the name; empty if the handler is not a Manager's.
func Of(ctx context.Context) string {
	name, _ := ctx.Value(key{}).(string)
	return name
}
