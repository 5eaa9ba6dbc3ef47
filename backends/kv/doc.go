// Package kv is a driver.Backend on any store that offers conditional
// transactions, reads and a watch: what etcd, Consul, ZooKeeper and the in-memory
// reference store share. A new store implements [Store], five methods, and has the
// whole contract of package driver:
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
// Rules (A1, E1, ...) are those of package driver, which also has the words: session, shard,
// fence, head, identity. A lease is Tenure's, and has nothing to do with a store's TTL.
//
// # What a store must bring
//
//   - A revision: positive, greater with every write, never stepping back, and reported
//     for every record and every write. It must survive a restart, because tokens are made of
//     it (rule A2).
//   - A transaction that compares the revisions of several records, or that some exist or
//     do not, and then writes several, atomically.
//   - Reads that see every acknowledged write.
//   - A watch that delivers all changes since a given revision, or reports that it no longer
//     can.
//
// Open proves the conditions on scratch keys of the namespace (rule P1). The conformance suite
// proves the rest.
//
// Limits.BatchItems is the largest number of transactions in one Apply. Choose what the store
// carries in one round trip. A transaction has at most two conditions, but that of a commit,
// which has at most three and one for each of its operations; the guard of a batch has two. The
// store splits a batch further if it must.
//
// Consul and ZooKeeper have no such watch. They implement the Store of internal/changelog, which
// keeps a log of changes in the store itself, and has a kv.Store for it.
//
// # How the contract is met
//
// An author of a Store need not read on. Package internal/kvkeys lists the records. Every
// decision about a lease is made by a compare in the store:
//
//   - A lease's token is the namespace's base plus the revision of the shard's
//     record, so a fence is checked by comparing that revision (rules F1 and A5). A record
//     names one session at one revision. A fence or claim that names another session is
//     refused by what this process knows of the record at that revision, or by a read
//     before the write.
//   - A claim compares the shard's record, and that the holder has no roster entry
//     (rule A1). The record keeps the token it was granted from, by which a
//     repeated claim finds its success (rule A3).
//   - A session lives while its roster entry exists, and its writes compare no more than
//     that. An update of the entry reads it and compares its revision, so that an update
//     that comes late fails. It does not write the record of the heartbeat (rule M4).
//   - A commit compares the shard's record and its head and writes the head, so it
//     applies once or never (rule F1). Its entries are one record, under the number
//     of the last.
//   - A trim moves the head's oldest entry. Records below it are deleted after the
//     commit, by whoever trims; what a crash leaves behind, the next trim removes.
//   - Every write is guarded by the revision of the identity record, and every
//     answer is checked against the revisions acknowledged before it was sent
//     (rule I1). After ErrStoreChanged a Backend writes nothing more.
//   - A refused transaction reads what it compared. Some stores can read only after the
//     refusal. If the conditions hold by then, the answer is ErrRetry.
//
// A Backend has up to three watches: of members and shards, of the heartbeats asked for, and,
// after the first TailLog, of the logs. A watch that fails fails the calls that wait for it, and
// the next call begins it anew: a Backend retries nothing by itself. An Observe without a
// cursor reads the store and corrects what the watch may have missed.
//
// At a hand-over the giver appends the head that it knows to the value of the shard's record.
// The successor gets it with the change, so that its first commit needs no read. Other
// readers of the record ignore it, and the commit compares the head like any other.
//
// # What it does not do
//
// It starts no timer, and decides nothing by a clock. It refuses a session id that was used
// before only if it is among the last 16 of its node label, or the last 128 of labels that were
// removed; core uses each id once.
//
// No transaction compares the store's revision. So a store that was restored from a backup may
// apply one write of each Backend. Its answer has a lower revision: the Backend reports the
// write as unknown (rule E1), or as ErrStoreChanged if it was a heartbeat. Every later call is
// ErrStoreChanged.
package kv
