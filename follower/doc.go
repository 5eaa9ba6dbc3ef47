// Package follower applies decision log entries outside the store: to a projection that serves
// reads, to an outbox, or to another system. A [Tailer] reads a namespace's decision logs and
// passes each shard's entries, in order and without gaps, to one or more [Applier]s.
//
//	t, err := follower.NewTailer(backend, nil)
//	err = t.Follow("ledger", follower.Memory(apply, nil), "accounts-*")
//	err = t.Run(ctx)
//
// # Once
//
// There are two kinds of Applier. Each kind applies entries and remembers its position in each log:
//
//   - [SQL] commits the position together with the effect, in one transaction in the application's
//     own database. Each effect happens exactly once, even after a crash, and even if two processes
//     mistakenly follow under the same name.
//   - [Stored] applies the entries first and saves the position afterwards, in a [File] or in the
//     application's own store. After a crash, some entries are applied again, with the same (shard,
//     seq). [Memory] keeps the position only in the process's memory, so every start begins at the
//     first entry or at a snapshot.
//
// # Order
//
// The entries of one shard are applied one after another (T4). Entries of different shards are
// applied concurrently and in no particular order. A slow or failing shard does not delay other
// shards. If an entry cannot be applied, the Tailer tries again after a back-off, and never skips
// the entry. An [Event] and [Tailer.Lag] report such entries.
//
// A Tailer opens one TailLog stream for all shards that it follows, and buffers a limited number of
// the stream's entries. If shards are further behind, the Tailer calls ReadLog for a few shards at
// a time, at a limited rate. The Tailer also reads all heads once per Resync and, while Fresh is
// called, once per Pulse. These reads detect a stream that no longer delivers entries.
//
// # Rules
//
//   - T1: the entries of a shard are numbered 1, 2, 3 ... without gaps.
//   - T2: the tokens of a shard's entries never decrease.
//   - T3: the entry with a given number never changes.
//   - T4: the entries that a follower has applied are a prefix of the log.
//   - T5: either the effect and the position are written in one step, or a repeated effect is
//     recognized by (shard, seq).
//   - T6: the Tailer detects a gap, a trim or a lost watch, and reads the log again.
//   - T7: a log is trimmed only behind a stored snapshot.
//   - T8: if the store's log is not the log that was applied, Run ends.
//
// # Trimmed logs
//
// A [Snapshotter] lets a shard's owner write a snapshot of the shard's state, under the fence, and
// trim the log behind the snapshot. A follower that needs trimmed entries restores the snapshot and
// continues from there.
//
// # Lag, and reads
//
// [Tailer.Fresh] reports whether a read may be served from the projection. [Tailer.WaitFor] waits
// for the caller's own write. The [Position] of a write can be passed between processes as a
// string. Lag.Time is the time since this process learned of the oldest entry that it has not yet
// applied. Tenure does not compare the clocks of different machines. The true lag also includes the
// store's delay in reporting an entry. This delay is one network trip if the store pushes changes,
// and otherwise at most Limits.PollPeriod. For a certain answer, [Tailer.Sync] queries the store.
//
// # A store that went back
//
// A store may lose acknowledged entries, for example when a backup is restored. The Tailer detects
// such a loss if a log's head is behind the Tailer's position, if the entry at that position is
// different, or if the store's identity has changed. [Tailer.Run] then returns a
// *StoreChangedError, because only an operator knows which effects to undo. The Tailer refuses an
// entry whose token is lower than an applied entry's token.
//
// # What it does not do
//
// A follower does not write to the coordination store, and needs no lease and no session. A
// follower cannot ensure that an effect outside a database happens exactly once, unless the
// effect's receiver remembers (shard, seq).
package follower
