// Package follower applies the decisions of shards' owners elsewhere: to a projection that serves
// reads, to an outbox, or to another system. A [Tailer] reads the decision logs of a namespace and
// passes each shard's entries, in order and without gaps, to one or several [Applier]s.
//
//	t, err := follower.NewTailer(backend, nil)
//	err = t.Follow("ledger", follower.Memory(apply, nil), "accounts-*")
//	err = t.Run(ctx)
//
// # Once
//
// An Applier applies entries and remembers the position. There are two kinds:
//
//   - [SQL] commits the position with the effect, in one transaction of the application's own
//     database. Each effect happens exactly once, even after a crash, and even if two processes
//     follow under one name by mistake.
//   - [Stored] applies first and saves the position afterwards, in a [File] or in the application's
//     own store. After a crash, some entries come again, identified by (shard, seq). [Memory] keeps
//     the position in the process: every start begins with the first entry, or a snapshot.
//
// # Order
//
// Within a shard, entries come one after the other (T4). Between shards, there is no order. Shards
// are applied at the same time, and a slow or failing shard does not delay the others. If an entry
// cannot be applied, the Tailer tries again, with back-off, and never skips it. [Hooks] and
// [Tailer.Lag] report such entries.
//
// A Tailer has one TailLog stream, however many shards it follows. It keeps entries from the stream
// up to a limit. Shards that are further behind are read with ReadLog, a few at a time and at a
// limited rate. The stream only announces entries. The Tailer also reads the heads every Resync,
// and every Pulse while Fresh is called, to detect a watch that died in silence.
//
// # Rules
//
//   - T1: the entries of a shard are numbered 1, 2, 3 ... without gaps.
//   - T2: the tokens of a shard's entries never decrease.
//   - T3: a number has one entry, permanently.
//   - T4: the entries that a follower has applied are a prefix of the log.
//   - T5: effect and position are one step, or a repeated effect is recognised by (shard, seq).
//   - T6: a gap, a trim or a lost watch is noticed, and the log is read again.
//   - T7: a log is trimmed only behind a snapshot that is stored.
//   - T8: if the store's log is not the log that was applied, Run ends.
//
// # Trimmed logs
//
// A [Snapshotter] lets a shard's owner write a snapshot of its state, under the fence, and trim the
// log behind it. A follower that needs trimmed entries restores the snapshot and continues from
// there.
//
// # Lag, and reads
//
// [Tailer.Fresh] reports whether a read may be served from the projection. [Tailer.WaitFor] waits
// for the caller's own write. The [Position] of the write may travel as a string. Lag in time
// compares no clocks of different machines. It is the time since this process learned of the
// oldest entry that it has not applied yet. The store adds its own delay. This is one network
// trip if the store pushes news, and otherwise Limits.PollPeriod. [Tailer.Sync] asks the store
// instead, and its answer is certain.
//
// # A store that went back
//
// When a backup is restored, for example, acknowledged entries may be lost. Signs of it are a head
// behind the position, another entry at the position, or another identity of the store.
// [Tailer.Run] then returns *StoreChangedError, since only an operator knows which effects to undo.
// An entry with a lower token than one already applied is refused.
//
// # What it does not do
//
// It writes nothing to the coordination store, holds no lease and needs no session. It cannot make
// an effect outside a database happen exactly once: for that, the receiver must remember (shard,
// seq).
package follower
