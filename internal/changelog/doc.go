// Package changelog gives a watch to a store without one, such as Consul or ZooKeeper. The
// processes write change logs beside their records, and read each other's. [New] turns a
// [Store] into a kv.Store. To its callers, it is like one with a watch.
//
//	process A                          the store                        process B
//
//	kv.Backend                                                          kv.Backend
//	   | Apply: shard s1 to b                       Watch: s1 is b's ^
//	   v                                                             |
//	changelog.New              +-----------------------+          changelog.New
//	   | adds an entry         | !feed/state-A-1       |             ^
//	   | to the change log,    |   write 8, floor 2    |             | has read up to write
//	   | in the same           |   8: shard/s1 =(value)|             | 7, so it takes entry 8;
//	   | transaction           |   7: member/a         |             | had it read up to write
//	   v                       |   3: shard/s9         |             | 1, it would read all
//	Store.Apply -------------> +-----------------------+ --------> Store.Follow
//	       one transaction     | !state/shard/s1       |    one blocked call for all change
//	       writes both         |   held by b           |    logs; Store.Get for those without
//	                           +-----------------------+    a value in them
//
// # The words
//
// A change log is one record of at most about 3 KiB. One process writes it. Every batch that
// writes a member's record, a shard's record or a chunk of a log carries the change log's write
// as its [Batch.Piggyback]. So every change has an entry.
//
// An entry is the name of a record that a write may have changed. If a write changes only one
// shard's record, or one short chunk, the entry contains the record as its inline value. At a
// hand-over, it also contains the head, so that the successor's first commit needs no read. The
// commit compares both like any other. Readers rely on nothing else in an entry.
//
// Writes of a change log are numbered. Its floor is the number of the write up to which its entries
// are gone. A reader that has read up to the floor has missed nothing. Other readers read the
// records in full.
//
// # How it works
//
//   - A write of a change log compares the previous write, so only one transaction at a time
//     carries a change log. After an unknown outcome, the change log is read before its next
//     use, and the compare refuses writes still under way.
//   - Ownership and logs have separate change logs, and heartbeats need none (rule E4).
//   - All processes follow the change logs of ownership with one blocked call each. Processes that
//     tail logs follow the change logs of logs with another. In a namespace of any size, a change
//     costs each of them one return of that call and at most one Get. A process that does not tail
//     pays nothing for a commit.
//   - Readers that missed entries read in full. After a change of hundreds of records, all
//     readers do so, and spend a third of the time on it.
//   - A change log keeps eight chunks of one shard. If a tail missed more, up to hundreds, it
//     reads the log of that shard, and no reader is reset (see kv.Store.Watch).
//   - If no process has written a change log for a minute, or a long one for ten seconds, the
//     next write of another process removes it. The write leaves a tombstone: the number of the
//     last write. Readers that had read up to it have missed nothing. For this purpose, a
//     process that writes change logs and follows none reads them every ten seconds, along with
//     a write. So change logs need no timers and no sessions, and an idle namespace stays idle.
//
// # What it does not do
//
// A change log decides nothing. It names records that may have changed, and a lost or false
// entry only costs a read. It stores only change logs. The head that a hand-over writes behind
// the shard's record goes into the entry, and not into the stored record.
package changelog
