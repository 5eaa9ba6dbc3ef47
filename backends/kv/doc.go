// Package kv implements driver.Backend for any store that offers conditional transactions, reads
// and a watch. The backends for etcd, Consul, ZooKeeper and Redis, and the in-memory reference
// store, use this package. A new store implements only the five methods of [Store]:
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
// Package driver defines the rules (A1, E1, ...) and the terms session, shard, fence, head and
// identity. In this package, a lease is always one of Tenure's, and is unrelated to a store's TTL.
//
// # What a store must have
//
//   - A revision that is positive, increases with every write, never goes back, and is reported for
//     every record and every write. The revision must survive a restart, because tokens are derived
//     from it (rule A2).
//   - A transaction that atomically compares the revisions of several records, or checks whether
//     records exist, and then writes several records.
//   - Reads that see every acknowledged write.
//   - A watch that delivers all changes since a given revision, or reports that it no longer can.
//
// Open proves the conditions on scratch keys of the namespace (rule P1). The conformance suite
// proves the rest.
//
// Limits.BatchItems is the largest number of transactions in one Apply. Choose the number that fits
// in one round trip to the store. A transaction has at most two conditions, except that a commit
// has at most three, plus one for each of its operations. The guard of a batch has two conditions.
// If necessary, the store splits a batch further.
//
// Consul and ZooKeeper have no watch of this kind. They implement the Store of internal/changelog,
// which keeps a log of changes in the store itself and provides the kv.Store.
//
// # How the contract is met
//
// Authors of a Store can stop reading here. Package internal/kvkeys lists the records. Every
// decision about a lease is a comparison in the store:
//
//   - A lease's token is the namespace's base plus the revision of the shard's record, so a fence
//     is checked by comparing that revision (rules F1 and A5). A record names one session at one
//     revision. If a fence or claim names another session, the Backend refuses it. The Backend
//     knows the record at that revision, or reads the record before the write.
//   - A claim compares the shard's record, and checks that the holder has no roster entry (rule
//     A1). The record keeps the token that the claim replaced, so that a repeated claim recognizes
//     its earlier success (rule A3).
//   - A session is alive while its roster entry exists, and the session's writes check only that
//     entry. An update reads the entry and compares its revision, so that a late update fails. The
//     update does not write the record of the heartbeat (rule M4).
//   - A commit compares the shard's record and its head, and writes the head, so that it is applied
//     once or never (rule F1). The entries of a commit are one record, under the number of the last
//     entry.
//   - A trim advances the oldest entry in the head. After the commit, the trimming process deletes
//     the older records. If a crash leaves some of them behind, the next trim removes them.
//   - Every write is guarded by the revision of the identity record, and every answer is
//     checked against the revisions acknowledged before it was sent (rule I1). After
//     ErrStoreChanged, a Backend writes nothing more.
//   - A refused transaction reads the records that it compared. Some stores can read them only
//     after the refusal. If the conditions hold by then, the answer is ErrRetry.
//
// A Backend has up to three watches: one of members and shards, one of the requested heartbeats
// and, after the first TailLog, one of the logs. If a watch fails, the calls that wait for it fail
// as well, and the next call starts the watch again. A Backend retries nothing. An Observe without
// a cursor reads the store, and so includes any change that the watch missed.
//
// At a hand-over, the giver appends the head that it knows to the value of the shard's record. The
// successor receives this head with the change of the record, so that its first commit needs no
// read. Other readers of the record ignore the appended head, and the successor's commit compares
// it like any other head.
//
// # What it does not do
//
// Package kv starts no timer and bases no decision on a clock. It refuses a used session id only if
// the id is among the last 16 of its node label, or among the last 128 of removed labels. Package
// core uses each id only once.
//
// No transaction compares the store's revision. Therefore, a store that was restored from a backup
// may apply one write of each Backend. Because the answer has a lower revision, the Backend then
// reports the outcome of the write as unknown (rule E1), or returns ErrStoreChanged for a
// heartbeat. Every later call returns ErrStoreChanged.
package kv
