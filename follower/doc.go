// Package follower applies the decisions of shards' owners elsewhere: to a
// projection that serves reads, to an outbox, to another system. A [Tailer] reads
// the decision logs of a namespace and hands each shard's entries, in order and
// without gaps, to one or several [Applier]s.
//
//	t, err := follower.NewTailer(backend, nil)
//	err = t.Follow("ledger", follower.Memory(apply, nil), "accounts-*")
//	err = t.Run(ctx)
//
// # Once
//
// An Applier applies entries and remembers the position, which is where the two
// kinds of it differ:
//
//   - [SQL] commits the position with the effect, in one transaction of the
//     application's own database: each effect happens exactly once, also over a
//     crash, and also where two processes follow under one name by mistake.
//   - [Stored] applies first and saves the position afterwards, in a [File] or in
//     the application's own store: after a crash some entries come again,
//     identified by (shard, seq). [Memory] keeps the position in the process: every
//     start begins with the first entry, or a snapshot.
//
// # Order
//
// Within a shard entries come one after the other (T4). Between shards there
// is no order: shards are applied at the same time, and a slow or failing one does
// not hold up the others. An entry that cannot be applied is tried again, with
// back-off, until it can: none is ever skipped, and [Hooks] and [Tailer.Lag] report
// it.
//
// A Tailer has one TailLog stream, however many shards it follows. Entries from it
// are kept up to a bound; a shard that is further behind is read with ReadLog, a
// few at a time and at a bounded pace. The stream only announces entries: every
// Resync, and every Pulse while Fresh is asked, the heads are read as well, so that
// a watch which died in silence is found.
//
// # Rules
//
//   - T1: the entries of a shard are numbered 1, 2, 3 ... without gaps.
//   - T2: the tokens of a shard's entries never decrease.
//   - T3: a number has one entry, for ever.
//   - T4: the entries that a follower has applied are a prefix of the log.
//   - T5: effect and position are one step, or a repeated effect is recognised by (shard, seq).
//   - T6: a gap, a trim or a lost watch is noticed, and the log read again.
//   - T7: a log is trimmed only behind a snapshot that is stored.
//   - T8: a store whose log is not the one that was applied ends Run.
//
// # Trimmed logs
//
// A [Snapshotter] lets a shard's owner write a snapshot of its state, under the
// fence, and trim the log behind it. A follower that needs trimmed entries restores
// the snapshot and goes on from there.
//
// # Lag, and reads
//
// [Tailer.Fresh] reports whether a read may be served from the projection, and
// [Tailer.WaitFor] waits for one's own write, whose [Position] may travel as a
// string. Lag in time compares no clocks of different machines: it is how long ago
// this process learned of the oldest entry that it has not applied yet. To that the
// store adds the time that news take, one way where it pushes and Limits.PollPeriod
// elsewhere. [Tailer.Sync] asks the store instead, and is certain.
//
// # A store that went back
//
// A head behind the position, another entry at the position than the one that was
// applied, or a store with another identity mean that acknowledged entries were
// lost: by a restored backup, for instance. [Tailer.Run] then returns
// *StoreChangedError, since nobody but an operator knows which effects are to be
// undone. An entry with a lower token than one already applied is refused.
//
// # What it does not do
//
// It writes nothing to the coordination store, holds no lease and needs no session.
// It cannot make an effect outside a database happen exactly once: that takes a
// receiver that remembers (shard, seq).
package follower
