// Package lock takes locks for a moment: lock "invoice-123", do something short, unlock it.
//
//	locks := lock.Open(elector) // an Elector that runs
//	err := locks.Do(ctx, "invoice-123", func(ctx context.Context, k *lock.Lock) error {
//		return pay(ctx, k.Token())
//	})
//
// A [Lock] is a lease like any other, with a token, a fence and a context. It is lost when its
// process stalls, or the store is out of reach, for longer than its TTL; another process may then
// have it. A process that was stopped finds out too late. So a write under a lock is a commit under
// the lock, which the store checks, or carries the lock's token to a place that compares it. Each
// new token of a name is greater than the last.
//
// # What it costs
//
// Lock and Unlock are one write each, and writes of many names travel together. Callers of one
// process that want the same name queue in the process, in order of arrival, at no cost to the
// store. Processes see in their views that a lock was given back, and take turns, in an order that
// changes each time. A process that has held a name almost continuously for 100 ms pauses 20 ms to
// let others in.
//
// A name that no caller holds leaves nothing in memory or in the store (rule R2 of package driver),
// unless something was committed under it. A SQL store keeps the rows of the last names, up to
// 2,048 for each process; ZooKeeper keeps three small nodes for each name.
//
// # What it is not
//
// There is no semaphore and no read-write lock. For five holders at a time use five names, and try
// each with TryLock; each has its own token. A token of a lock with several holders would be
// useless: a write of one holder would fence off the others.
//
// For lasting work, such as owning a partition, contend for a shard instead, which hands over to a
// standby in one write.
package lock
