// Package kv is a driver.Backend on any store that offers conditional transactions, reads and a
// watch. etcd, Consul, ZooKeeper, Redis and the in-memory reference store use it. A new store
// implements the five methods of [Store], and thereby the whole contract of package driver:
//
//	func Open(ctx context.Context, o *Options) (*kv.Backend, error) {
//		client, err := dial(ctx, o) // a kv.Store
//		if err != nil {
//			return nil, err
//		}
//		b, err := kv.Open(ctx, client, kv.Options{
//			Backend:   "mystore",
//			Namespace: o.Namespace,
//			Create:    o.Create,
//			Limits:    driver.Limits{BatchItems: 100, WriteOps: 100, WriteBytes: 1 << 20, MinTTL: time.Second},
//		})
//		if err != nil {
//			return nil, errors.Join(err, client.Close())
//		}
//		return b, nil
//	}
//
// Package driver defines the rules (A1, E1, ...) and the words session, shard, fence, head and
// identity. A lease here is one of Tenure's, and is unrelated to a store's TTL.
//
// # What a store must have
//
//   - A revision that is positive, grows with every write, never steps back, and is reported
//     for every record and every write. It must survive a restart, because tokens are made of
//     it (rule A2).
//   - A transaction that compares the revisions of several records, or checks that records exist or
//     do not, and then writes several records, atomically.
//   - Reads that see every acknowledged write.
//   - A watch that delivers all changes since a given revision, or reports that it no longer can.
//
// Open proves the conditions on scratch keys of the namespace (rule P1). The conformance suite
// proves the rest.
//
// Limits.BatchItems is the largest number of transactions in one Apply. Choose the number that
// fits in one round trip to the store. A transaction has at most two conditions. A commit has
// at most three, plus one for each of its operations. The guard of a batch has two. If it must,
// the store splits a batch further.
//
// Consul and ZooKeeper have no such watch. They implement the Store of internal/changelog, which
// keeps a log of changes in the store itself and provides the kv.Store.
//
// # How the contract is met
//
// Authors of a Store can stop reading here. Package internal/kvkeys lists the records. A
// compare in the store makes every decision about a lease:
//
//   - A lease's token is the namespace's base plus the revision of the shard's record, so a
//     fence is checked by comparing that revision (rules F1 and A5). A record names one session
//     at one revision. If a fence or claim names another session, the Backend refuses it. It
//     knows the record at that revision, or reads it before the write.
//   - A claim compares the shard's record, and checks that the holder has no roster entry (rule
//     A1). The record keeps the token that the claim replaced, so that a repeated claim finds its
//     success (rule A3).
//   - A session lives while its roster entry exists, and its writes compare only that. An update of
//     the entry reads it and compares its revision, so that a late update fails. The update does
//     not write the record of the heartbeat (rule M4).
//   - A commit compares the shard's record and its head and writes the head, so it applies once or
//     never (rule F1). Its entries are one record, under the number of the last.
//   - A trim advances the head's oldest entry. After the commit, the trimming process deletes
//     the records below it. If a crash leaves some behind, the next trim removes them.
//   - Every write is guarded by the revision of the identity record, and every answer is
//     checked against the revisions acknowledged before it was sent (rule I1). After
//     ErrStoreChanged, a Backend writes nothing more.
//   - A refused transaction reads the records that it compared. Some stores can read them only
//     after the refusal. If the conditions hold at that time, the answer is ErrRetry.
//
// A Backend has up to three watches: of members and shards, of the heartbeats asked for, and, after
// the first TailLog, of the logs. If a watch fails, the calls that wait for it fail too, and the
// next call begins it again. A Backend retries nothing. An Observe without a cursor reads the store
// and corrects what the watch may have missed.
//
// At a hand-over, the giver appends the head that it knows to the value of the shard's record.
// The successor gets the head with the change, so that its first commit needs no read. Other
// readers of the record ignore the head, and the commit compares it like any other.
//
// # What it does not do
//
// Package kv starts no timer and bases no decision on a clock. It refuses a used session id
// only if that is among the last 16 of its node label, or the last 128 of removed labels. core
// uses each id once.
//
// No transaction compares the store's revision. So a store that was restored from a backup may
// apply one write of each Backend. The lower revision in the answer makes the Backend report the
// write as unknown (rule E1), or a heartbeat as ErrStoreChanged. Every later call returns
// ErrStoreChanged.
package kv
