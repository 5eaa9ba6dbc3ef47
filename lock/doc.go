// Package lock provides short-lived locks on names, such as "invoice-123".
//
//	locks := lock.Open(elector) // elector is running
//	err := locks.Do(ctx, "invoice-123", func(ctx context.Context, k *lock.Lock) error {
//		return pay(ctx, k.Token())
//	})
//
// A [Lock] is a lease with a token, a fence and a context. A lock is lost if its process stalls or
// cannot reach the store for longer than the TTL. Another process may then take the lock, and a
// process that was stopped notices the loss too late. Therefore, either commit each write under the
// lock, so that the store checks the fence, or send the lock's token to a system that compares
// tokens. For each name, every new token is greater than all earlier tokens.
//
// # What it costs
//
// Lock and Unlock each cost one write, and the writes for many names are sent together. If several
// callers in one process want the same name, they wait in order of arrival, at no cost to the
// store. Processes learn from their views that a lock was released, and claim the lock in an order
// that changes each time. A process that has held a name almost continuously for 100 ms pauses for
// 20 ms, so that other processes can take the name.
//
// A name that no caller holds takes up no space in memory or in the store, unless something was
// committed under that name (rule R2 of package driver). However, a SQL store keeps the rows of up
// to 2,048 recent names for each process, and ZooKeeper keeps three small nodes for each name.
//
// # What it is not
//
// The package has no semaphore and no read-write lock. To allow five concurrent holders, use five
// names, which have separate tokens, and try each name with TryLock. If several holders shared one
// lock, its token would be useless, because one holder's write would fence off the others.
//
// For lasting work, such as owning a partition, contend for a shard instead. One write hands a
// shard over to a standby.
package lock
