// Package changelog gives a watch to a store without one, such as Consul or ZooKeeper. Each process
// writes change logs beside its records, and reads the change logs of the others. [New] turns a
// [Store] into a kv.Store, which callers use like a store with a watch.
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
// A change log is one record of at most about 3 KiB. Only one process writes it. If a batch writes
// a member's record, a shard's record or a chunk of a log, it also writes the change log, as its
// [Batch.Piggyback], so every change has an entry.
//
// An entry is the name of a record that a write may have changed. If a write changes only one
// shard's record, or one short chunk, the entry contains the record as its inline value. At a
// hand-over, the entry also contains the head, so that the successor's first commit needs no read.
// That commit compares the record and the head like any other commit. Readers rely on nothing else
// in an entry.
//
// The writes of a change log are numbered. Entries of writes up to its floor have been removed. A
// reader that has read up to the floor has missed nothing. Other readers read the records in full.
//
// # How it works
//
//   - Each write of a change log compares the previous write, so only one transaction at a time can
//     write the change log. If the outcome is unknown, the process reads the change log before it
//     uses it again, and the compare refuses writes that are still under way.
//   - Ownership and logs have separate change logs, and heartbeats need none (rule E4).
//   - Each process follows all change logs of ownership with one blocked call. A process that tails
//     logs follows their change logs with a second call. However large the namespace is, a change
//     costs each process one return of that call and at most one Get. A commit costs nothing to a
//     process that does not tail logs.
//   - Readers that missed entries read in full. After a change of hundreds of records, all readers
//     read in full.
//   - A change log keeps eight chunks of each shard. A tail that missed more, up to hundreds, reads
//     the log of that shard, and no reader is reset (see kv.Store.Watch).
//   - If no process has written a change log for a minute, or a long one for ten seconds, the next
//     write of another process removes it. The removal leaves a tombstone: the number of the last
//     write. Readers that had read up to that write have missed nothing. A process that writes
//     change logs but follows none reads all change logs every ten seconds, along with a write, to
//     find the ones to remove. Therefore, change logs need no timers and no sessions, and an idle
//     namespace stays idle.
//
// # What it does not do
//
// A change log decides nothing. It names records that may have changed, and a lost or false entry
// only costs a read. This package stores only change logs. A hand-over appends the head to the
// shard's record. This package stores that head in the entry instead.
package changelog
