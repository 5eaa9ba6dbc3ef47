// Package memory is the reference store: linearizable, in this process's memory,
// with switches for faults of stores and networks. It is for tests, examples and
// learning, and not for production: nothing survives the process, and no other
// process can reach it.
//
// A [Store] is the server. Each backend opened on it stands for one process:
//
//	store := memory.New()
//	a, err := memory.Open(ctx, store, "orders", nil)
//	b, err := memory.Open(ctx, store, "orders", nil)
//
// The Store's methods play accidents of a server: Wipe, Restore an older Snapshot,
// Compact, BreakWatches, Tamper, SetLying. Options.Wrap takes what plays faults of one
// process's network. Counts returns the numbers of calls.
//
// # What it does not do
//
// It has no expiry, no persistence, no access control, and one mutex for
// everything. Under testing/synctest it blocks durably wherever it waits, and it
// has no goroutine until something is observed.
package memory
