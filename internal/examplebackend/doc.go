// Package examplebackend is a complete backend of Tenure, written from outside
// with docs/writing-a-backend.md and nothing else: a store of files in one
// directory, which several processes of one host share. It is there to be read
// and copied, and passes the whole conformance suite.
//
// It takes the shortest of the roads: [Open] gives a client, which implements
// the five methods of kv.Store, to kv.Open, and package kv does the rest. A
// directory is no more than an ordered map with revisions; sessions, leases, logs
// and views would be work to invent again, and to prove.
//
//	<dir>/journal   one line for each batch of writes, with a checksum
//	<dir>/lock      locked exclusively to append, shared to read new lines
//
// The journal is the store: replaying it gives the records, its line count is the
// revision, and the lines after a revision are the changes since. So a watch is a
// look at the length of the file (driver.Limits.PollPeriod), and a read that finds
// the length unchanged has every acknowledged write without a lock. A write is
// acknowledged after fsync. A torn last line was never acknowledged; the next
// writer cuts it off. A journal that has become much longer than its records is
// rewritten beside itself and renamed into place.
//
// # What it does not do
//
// One writer at a time, in one fsync each: hundreds of writes a second, not
// thousands. A process that is stopped between lock and unlock stops every other;
// one that is killed there stops nobody. The lock is flock(2), so the directory
// must be on a local file system, and the file lock must never be removed while a
// process runs. Elsewhere than on Linux, macOS and the BSDs Open answers
// driver.ErrUnsupported. After a power failure a line may be missing that a killed
// process had appended and not yet synced, although others have read it.
package examplebackend
