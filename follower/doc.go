// Package follower applies the entries of decision logs elsewhere: to a projection that serves
// reads, to an outbox, or to another system. A [Tailer] reads the decision logs of a namespace and
// passes each shard's entries, in order and without gaps, to one or more [Applier]s.
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
//     database. Each effect happens exactly once, even after a crash or if two processes follow
//     under one name by mistake.
//   - [Stored] applies first and saves the position afterwards, in a [File] or in the application's
//     own store. After a crash, some entries come again, with the same (shard, seq). [Memory] keeps
//     the position in the process, so that every start begins with the first entry or a snapshot.
//
// # Order
//
// Within a shard, entries come one after the other (T4). Entries of different shards come in no
// particular order. The Tailer applies shards concurrently, and a slow or failing shard does not
// delay the others. If an entry cannot be applied, the Tailer tries again after a back-off, and
// never skips the entry. An [Event] and [Tailer.Lag] report such entries.
//
// A Tailer has one TailLog stream, however many shards it follows. It keeps entries from the stream
// up to a limit. Shards that are further behind are read with ReadLog, a few at a time and at a
// limited rate. To detect a stream that no longer delivers entries, the Tailer also reads all heads
// once per Resync and, while Fresh is called, once per Pulse.
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
// for the caller's own write. The [Position] of a write can be passed between processes as a
// string. The lag in time does not compare clocks of different machines. It is the time since this
// process learned of the oldest entry that it has not applied yet. The true lag is longer by the
// time in which the store reports an entry: one network trip if the store pushes changes, and up to
// Limits.PollPeriod otherwise. [Tailer.Sync] asks the store instead, so that its answer is certain.
//
// # A store that went back
//
// A store may lose acknowledged entries, for example when a backup is restored. Signs of such a
// loss are a head behind the position, a different entry at the position, and a different identity
// of the store. [Tailer.Run] then returns a *StoreChangedError, because only an operator knows
// which effects to undo. The Tailer refuses an entry whose token is lower than that of an applied
// entry.
//
// # What it does not do
//
// A follower writes nothing to the coordination store, holds no lease and needs no session. It
// cannot ensure that an effect outside a database happens exactly once. For that, the receiver must
// remember (shard, seq).
package follower
