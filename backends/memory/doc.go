// Package memory is the reference store. The store is linearizable, keeps its data in memory, and
// can simulate store and network faults. Use the store for tests, examples and learning. Do not use
// the store in production, because no other process can reach it, and its data is lost when the
// process ends.
//
// A [Store] represents the server. Each backend that is opened on a Store represents one process:
//
//	store := memory.New()
//	a, err := memory.Open(ctx, store, "orders", nil)
//	b, err := memory.Open(ctx, store, "orders", nil)
//
// These methods of the Store simulate failures of a server: Wipe, Restore, Compact, BreakWatches,
// Tamper and SetLying. A function in Options.Wrap can simulate faults in the network of one
// process. Counts returns how many calls the Store has served.
//
// # What it does not do
//
// The Store has no expiry, persistence or access control, and uses one mutex for everything. Under
// testing/synctest, it blocks durably wherever it waits. It starts no goroutine until a caller
// observes something.
package memory
