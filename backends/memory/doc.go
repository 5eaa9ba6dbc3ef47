// Package memory is the reference store. It is linearizable, lives in this process's memory,
// and has switches for faults of stores and networks. It is for tests, examples and learning.
// It is not for production, because nothing survives the process, and no other process can
// reach it.
//
// A [Store] is the server. Each backend opened on it stands for one process:
//
//	store := memory.New()
//	a, err := memory.Open(ctx, store, "orders", nil)
//	b, err := memory.Open(ctx, store, "orders", nil)
//
// The Store's methods simulate accidents of a server: Wipe, Restore an older Snapshot, Compact,
// BreakWatches, Tamper, SetLying. A function in Options.Wrap simulates faults of one process's
// network. Counts returns how many calls the Store has served.
//
// # What it does not do
//
// The Store has no expiry, no persistence, no access control, and one mutex for everything.
// Under testing/synctest, it blocks durably wherever it waits. It starts no goroutine until
// something is observed.
package memory
