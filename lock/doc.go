// Package lock provides short-lived locks: lock "invoice-123", do something short, unlock it.
//
//	locks := lock.Open(elector) // an Elector that runs
//	err := locks.Do(ctx, "invoice-123", func(ctx context.Context, k *lock.Lock) error {
//		return pay(ctx, k.Token())
//	})
//
// A [Lock] is a lease like any other, with a token, a fence and a context. A lock is lost if its
// process stalls, or the store is out of reach, for longer than the lock's TTL. Another process may
// then hold it. A process that was stopped learns of the loss too late. Therefore, commit each
// write under the lock, so that the store checks it, or send the lock's token to a place that
// compares it. Each new token for a name is greater than the last.
//
// # What it costs
//
// Lock and Unlock cost one write each, and writes for many names travel together. Callers in one
// process that want the same name queue there, in order of arrival, at no cost to the store.
// Processes see in their views that a lock was given back. They take turns, in an order that
// changes each time. A process that has held a name almost continuously for 100 ms pauses for 20 ms
// to let others in.
//
// A name that no caller holds leaves nothing in memory or in the store (rule R2 of package driver),
// unless something was committed under it. A SQL store keeps the rows of the most recent names, up
// to 2,048 for each process. ZooKeeper keeps three small nodes for each name.
//
// # What it is not
//
// There is no semaphore and no read-write lock. For five holders at a time, use five names, and try
// each with TryLock; each has its own token. If several holders shared one lock, its token would be
// useless, because one holder's write would fence off the others.
//
// For lasting work, such as owning a partition, contend for a shard instead. A shard is handed over
// to a standby in one write.
package lock
