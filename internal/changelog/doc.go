// Package changelog adds watches to stores without watches, such as Consul and ZooKeeper. Each
// process writes change logs in addition to its records, and reads the change logs of the other
// processes. [New] turns a [Store] into a kv.Store with watches.
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
// A change log is one record of at most about 3 KiB. Only one process writes to it. A batch that
// writes a member's record, a shard's record or a chunk of a log also writes to a change log, in
// its [Batch.Piggyback]. Therefore, every change has an entry.
//
// An entry is the name of a record that a write may have changed. If a write changes only one
// shard's record, or one short chunk, the entry contains the record as its inline value. At a
// hand-over, the entry also contains the head, so the successor's first commit needs no read. That
// commit compares the record and the head, like any other commit.
//
// The writes to a change log are numbered. Each change log has a floor, which is a write number.
// The entries of all writes up to the floor have been removed. A reader that has read at least up
// to the floor has missed nothing. Other readers read all records.
//
// # How it works
//
//   - Each write to a change log is conditional on the previous write, so only one transaction at a
//     time can write to it. If the outcome of a write is unknown, the process reads the change log
//     before the next write. Writes that are still in progress are then refused.
//   - Ownership and logs have separate change logs, and heartbeats need no change log (rule E4).
//   - Each process follows all change logs of ownership with one blocked call. A process that tails
//     logs follows their change logs with a second blocked call. Regardless of the namespace's
//     size, a change ends one blocked call in each process, and costs at most one Get. Commits
//     cause no work in processes that do not tail logs.
//   - Readers that missed entries read all records. After a change of hundreds of records, all
//     readers read all records.
//   - A change log keeps eight chunks of each shard. If a tail missed more chunks, up to hundreds,
//     it reads that shard's log, and no reader is reset (see kv.Store.Watch).
//   - The next write by another process removes a change log that has been idle for a minute, or a
//     long one that has been idle for ten seconds. The removal leaves a tombstone with the number
//     of the last write. Readers that have read up to that write have missed nothing. A process
//     that writes change logs but follows none of them looks for change logs to remove when it
//     writes, at most every ten seconds. Therefore, change logs need no timers and no sessions, and
//     an idle namespace stays idle.
//
// # What it does not do
//
// No decision depends on a change log, which only names records that may have changed. A lost or
// false entry costs only a read. This package stores only change logs. At a hand-over, package kv
// appends the head to the shard's record, but this package stores the head in the entry.
package changelog
