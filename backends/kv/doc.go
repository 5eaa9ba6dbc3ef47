// Package kv implements driver.Backend for any store that offers conditional transactions, reads
// and a watch. The backends for etcd, Consul, ZooKeeper and Redis, and the in-memory reference
// store, use this package. A new store needs to implement only the five methods of [Store]:
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
// identity. In this package, a lease is always a Tenure lease, unrelated to a store's TTLs.
//
// # What a store must have
//
//   - The store reports a revision for every record and every write. Revisions are positive,
//     increase with every write, and never decrease. Revisions must survive a restart, because
//     tokens are derived from them (rule A2).
//   - A transaction atomically checks the revisions or the existence of several records, and then
//     writes several records.
//   - Reads see every acknowledged write.
//   - A watch delivers all changes since a given revision, or reports that it cannot deliver them.
//
// Open tests conditional writes on scratch keys of the namespace (rule P1). The conformance suite
// tests the other requirements.
//
// Limits.BatchItems is the maximum number of transactions in one call of Apply. Choose a number
// that fits in one round trip to the store. A commit has at most three conditions, plus one for
// each operation. Removing node labels takes one condition for each of at most 64 labels, plus one
// more. All other transactions, and the guard of a batch, have at most two conditions. If
// necessary, the store splits a batch further.
//
// Consul and ZooKeeper have no watch that delivers all changes. Their backends implement the Store
// of internal/changelog, which keeps a log of changes in the store and provides the kv.Store.
//
// # How the contract is met
//
// Authors of a Store can stop reading here. Package internal/kvkeys lists the records in the store.
// Every decision about a lease is a comparison in the store:
//
//   - A lease's token is the namespace's base plus the revision of the shard's record. A fence is
//     checked by comparing that revision (rules F1 and A5). Each revision of the record belongs to
//     one session. The Backend either knows that session or reads the record before writing. Any
//     fence or claim that names a different session is refused.
//   - A claim is conditional on the revision of the shard's record, and on the absence of the
//     holder's roster entry (rule A1). Because the new record contains the replaced token, a
//     repeated claim recognizes its earlier success (rule A3).
//   - A session is alive while its roster entry exists, and its writes check only that entry. An
//     update reads the entry and replaces it only at the same revision, so that a late update
//     fails. Updates never write the heartbeat record (rule M4).
//   - A commit is conditional on the revisions of the shard's record and head, and writes the head.
//     A commit is therefore applied at most once (rule F1). One record, keyed by the last entry's
//     number, contains all entries of a commit.
//   - A trim advances the oldest entry in the head. After the commit, the trimming process deletes
//     the older records. If a crash leaves some older records behind, the next trim removes them.
//   - Every write is guarded by the revision of the identity record. The Backend compares the
//     answer's revision with those acknowledged before the write was sent (rule I1). After
//     ErrStoreChanged, a Backend stops writing.
//   - A refused transaction returns the records that it compared. Some stores can read these
//     records only after the refusal. If the conditions then hold, the answer is ErrRetry.
//
// A Backend has up to three watches: one for members and shards, one for the requested heartbeats
// and, after the first call of TailLog, one for the logs. If a watch fails, the calls that wait for
// it also fail, and the next call restarts it. A Backend never retries a call. Without a cursor,
// Observe reads the store, so its result includes any change that the watch missed.
//
// At a hand-over, the outgoing owner appends its last known head to the shard's record. The
// successor receives this head with the changed record, so its first commit needs no read. Other
// readers of the record ignore the appended head. The successor's commit compares the appended head
// like any other head.
//
// # What it does not do
//
// Package kv starts no timer and bases no decision on a clock. A used session id is refused only if
// it is among the last 16 of its node label, or among the last 128 of removed labels. Package core
// uses each id only once.
//
// No transaction compares the store's revision. Therefore, a store that was restored from a backup
// may apply one more write from each Backend. Because of the answer's lower revision, the Backend
// reports the outcome as unknown (rule E1) or, for a heartbeat, returns ErrStoreChanged. Every
// later call returns ErrStoreChanged.
package kv
