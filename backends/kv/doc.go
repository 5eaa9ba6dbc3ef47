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
// # What a store must bring
//
// A revision: positive, greater with every write, never stepping back, and reported
// for every record and every write. Tokens are made of it (rule A2), so it must
// survive a restart. A transaction that compares the revisions of several records,
// or that some exist or do not, and then writes several, atomically. Reads that
// see every acknowledged write. A watch that says what changed since a revision,
// or that it cannot say so. Open proves the conditions on a scratch key (rule P1);
// the conformance suite proves the rest.
//
// BatchItems is how many transactions go into one Apply: what the store carries in
// one round trip, each with at most two conditions, or three and one for each
// operation of a commit. The store splits a batch further if it must.
//
// A store without such a watch, as Consul and ZooKeeper are, implements the Store of
// package changelog, which gives it one: kv.Open(ctx, changelog.New(client, namespace, ...), ...).
//
// # How the contract is met
//
// Package internal/kvkeys lists the records. All that decides is a compare in the store:
//
//   - A lease's token is the namespace's base plus the revision of the shard's
//     record, so a fence is checked by comparing that revision (rules F1 and A5).
//     A revision also fixes the record's session; a fence or claim that names
//     another one is found out by this process's own knowledge of the record at
//     that revision, or by reading it first.
//   - A claim compares the shard's record, and that the holder has no roster entry
//     (rule A1). The record keeps the token it was granted from, by which a
//     repeated claim finds its success (rule A3).
//   - A session lives while its roster entry exists, and its writes compare no more than
//     that. An update of the entry reads it and compares its revision, so a late one has
//     no effect, and leaves the record of the heartbeat alone (rule M4).
//   - A commit compares the shard's record and its head and writes the head, so it
//     applies once or never (rule F1). Its entries are one record, under the number
//     of the last.
//   - A trim moves the head's oldest entry. Records below it are deleted after the
//     commit, by whoever trims; what a crash leaves behind, the next trim removes.
//   - Every write is guarded by the revision of the identity record, and every
//     answer is checked against the revisions acknowledged before it was sent
//     (rule I1). After ErrStoreChanged a Backend writes nothing more.
//   - A refused transaction reads what it compared. Where a store can only read
//     after it was refused, and what refused it has passed meanwhile, the answer is
//     ErrRetry.
//
// Views come from one watch per process of the roster and the shards' records, one
// of the heartbeats asked for, and, from the first TailLog on, one of the logs. A
// watch that fails fails the calls that wait for it, and the next call begins it
// anew: a Backend retries nothing by itself. An Observe without a cursor reads the
// store and corrects what the watch may have missed.
//
// A hand-over writes the head behind the shard's record, as the former owner knows it,
// so that the successor learns it with the change and its first commit needs no read.
// Other readers of the record ignore it, and the commit compares the head like any other.
//
// # What it does not do
//
// It starts no timer, and decides nothing by a clock. A session id is refused if it is
// one of the last 16 that joined under its node label, or of the last 128 whose labels
// were removed; core uses each id once (rule C3).
// No transaction compares the store's revision. A store that went back may thus apply one
// write of each Backend, and its answer shows that it went back: the outcome of that write is
// unknown (rule E1), and every call after it is ErrStoreChanged. Of a heartbeat the
// answer itself is ErrStoreChanged.
package kv
