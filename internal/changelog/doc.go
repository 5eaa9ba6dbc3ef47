// Package changelog gives a watch to a store that has none, as Consul and ZooKeeper
// are: the processes write change logs beside their records, and read each other's.
// [New] makes a kv.Store of a [Store]; to its callers it is like one with a watch.
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
// A change log is one record of at most about 3 KiB. One process writes it. Its
// [Batch.Piggyback] goes with every batch that writes a member's record, a shard's
// record or a chunk of a log, so no change is without an entry.
//
// An entry is the name of a record that a write may have changed. A write of one
// shard's record, or of one short chunk, has the record in the entry, its inline value,
// and with a hand-over the head, so that the successor's first commit needs no read;
// the commit compares both like any other. Readers never believe an entry to be more
// than that.
//
// Writes of a change log are numbered. Its floor is the write up to which entries are
// no longer in it. A reader that has read up to the floor has missed nothing; another
// one reads the records in full.
//
// # How it works
//
//   - A write of a change log compares the one before, so one transaction at a time
//     carries a change log. After an outcome that is unknown it is read before its next
//     use, and the compare refuses writes still under way.
//   - Ownership and logs have separate change logs, and heartbeats need none (rule
//     E4).
//   - All processes follow the change logs of ownership with one blocked call each, and
//     those that tail the logs theirs with another. A change costs each of them one
//     return of that call and at most one Get, for a namespace of any size; a commit
//     costs nobody anything who does not tail.
//   - Readers that missed entries read in full: all of them after a change of hundreds
//     of records, as often as one read takes a third of the time.
//   - Of one shard's chunks a change log keeps eight. A tail that missed more, up to
//     hundreds, reads that shard's log, and no reader is reset: see kv.Store.Watch.
//   - A change log that nobody writes, for a minute or, if it is long, ten seconds, is
//     removed by the next write of another process, which leaves a tombstone: the number
//     of the last write. Readers that had read so far have missed nothing. A process that
//     writes change logs and follows none reads them every ten seconds for this, beside a
//     write. So change logs need no timers and no sessions, and an idle namespace stays
//     idle.
//
// # What it does not do
//
// It decides nothing: it names records that may have changed, and a lost or false
// entry costs a read. It stores only change logs. The head that a hand-over has behind
// the shard's record goes into the entry, and not into the record.
package changelog
