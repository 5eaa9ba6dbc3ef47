// Package lock takes locks for a moment: lock "invoice-123", do something short, unlock it.
//
//	locks := lock.Open(elector) // an Elector that runs
//	k, err := locks.Lock(ctx, "invoice-123")
//	if err != nil {
//		return err
//	}
//	err = pay(k.Context(), k.Token())
//	return errors.Join(err, k.Unlock(ctx))
//
// A [Lock] is a lease like any other, with a token, a fence and a context. It is lost when its
// process stalls for longer than its TTL, or the store is away for as long, and then somebody
// else may have it. A process that was stopped finds out too late. So what is written under a
// lock carries its token to where that is compared, or is a commit under it, which the store
// compares; a token of one name is greater each time.
//
// # What it costs
//
// Lock and Unlock are one write each, and those of many names travel together. Those of one
// process that wait for a name wait here, in the order in which they came, and cost nothing.
// Processes see in their views that a lock was given back, and take turns, in an order that is
// another one each time; a process that takes a name again and again leaves it to others for
// 20 ms after 100.
//
// A name that nobody holds leaves nothing, neither in memory nor in the store (rule R2 of
// package driver), unless something was committed under it. A SQL store keeps the rows of the
// last names, up to 2,048 for each process; ZooKeeper keeps three small nodes for each name.
//
// # What it is not
//
// There is no semaphore and no read-write lock. Five holders at a time are five names, of which
// a caller tries each with TryLock; each has a token that means something. Tokens of a lock
// that several hold at once would not: a write of the one would fence off the others.
//
// For work that goes on, such as the owner of a partition, contend for a shard instead, which
// hands over to a standby in one write.
package lock
