// Package lock provides short-lived locks on names, such as "invoice-123".
//
//	locks := lock.Open(elector) // an Elector that runs
//	err := locks.Do(ctx, "invoice-123", func(ctx context.Context, k *lock.Lock) error {
//		return pay(ctx, k.Token())
//	})
//
// A [Lock] is a lease like any other, with a token, a fence and a context. A lock is lost if its
// process stalls or cannot reach the store for longer than the TTL. Another process may then hold
// the lock, and a process that was stopped learns of the loss too late. Therefore, commit each
// write under the lock, so that the store checks the fence, or send the lock's token to a system
// that compares tokens. Each new token for a name is greater than the token before it.
//
// # What it costs
//
// Lock and Unlock cost one write each, and writes for many names are sent together. Callers in one
// process that want the same name wait in order of arrival, at no cost to the store. Processes see
// in their views that a lock was given back, and take turns in an order that changes each time. A
// process that has held a name almost continuously for 100 ms pauses for 20 ms, so that others can
// take it.
//
// A name that no caller holds takes up no space in memory or in the store (rule R2 of package
// driver), unless something was committed under it. However, a SQL store keeps the rows of the most
// recent names, up to 2,048 for each process, and ZooKeeper keeps three small nodes for each name.
//
// # What it is not
//
// There is no semaphore and no read-write lock. For five holders at a time, use five names, each
// with its own token, and try each name with TryLock. If several holders shared one lock, the
// lock's token would be useless, because one holder's write would fence off the other holders.
//
// For lasting work, such as owning a partition, contend for a shard instead. A shard is handed over
// to a standby in one write.
package lock
