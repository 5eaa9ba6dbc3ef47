package core

import "context"

// RunSingleton runs h on at most one member of the namespace at a time, until h
// has done its work.
func RunSingleton(ctx context.Context, b Backend, shard string, h Handler, o *Options) error {
	return nil
}
