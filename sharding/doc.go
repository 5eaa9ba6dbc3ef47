// Package sharding shares shards among the members of a namespace: evenly or by
// capacity or load, with as few moves as possible, and planned ones in order. Shards
// have fixed names, or divide a keyspace into ranges. Each process runs a [Manager] beside its core.Elector:
//
//	e, err := core.NewElector(backend, nil)
//	m, err := sharding.NewManager(backend, e, serve, &sharding.Options{
//		Shards: []string{"orders-0000..1023"},
//	})
//	go e.Run(background)
//	err = m.Run(ctx) // until ctx ends; then its shards have gone to others
//	stopElector()
//
// # Who decides what
//
//   - The lease decides who owns a shard. A wrong or late plan costs time,
//     never safety.
//   - The assigner plans. It is an ordinary leader, the holder of the reserved shard
//     "_assigner": it sees members and owners in its view, an [Assigner], which is a
//     pure function, says who should own what, and the changes are appended to that
//     shard's log.
//   - Every member reads that log into the same table, hands over what is assigned
//     to another, by a directed transfer when the handler has returned, and stands by
//     for everything else.
//
// # No shard is forgotten (W1)
//
// All members contend for all shards; standing by costs nothing but some 300 bytes.
// When a shard is free they claim it in order: its assigned owner, then its heir,
// then by priority and rendezvous (C9). The heirs are worked out from the table on
// every member alike, so a crash is answered at once, without the assigner, by one
// claim batch per heir, and leaves shares as a plan would have them. While there is
// no assigner, or no plan yet, the order by priority and rendezvous is all there is.
//
// A shard that fells its owners is held, visibly: after several deaths of its owners
// nobody claims it for a time, and views say why (see [Quarantine]).
//
// # Rules
//
//   - W1: no shard is forgotten: each has an owner or a member that is about to claim it, or is in
//     quarantine.
//   - W2: a new owner starts after the former lease ended.
//   - W3: a plan is applied whole or not at all, and goes on from the one before it.
//   - W4: a plan that is older than a lease does not move it.
//   - W5: a hash is served by one shard at a time: another one takes a range only after the shard
//     that had it ended its calls and noted, under its lease, what it gave and to whom.
//
// # Leaving
//
// When the context of Run ends, the member says in its record that it is draining
// (core.MemberState), which the assigner sees. Its shards are planned away and handed
// over one by one as their handlers return, and Run returns. Without an assigner it
// hands them to their heirs after four intervals.
//
// # Keys
//
// A [Keyspace] maps keys to hashes of 64 bits, and begins with equal ranges of them, one
// for each shard. Ranges are split and merged while they serve: by the assigner according to
// load, or by operators' rules. The plans have the [Map] of ranges. The authority is each
// shard's note, an item that is committed under the shard's lease: a range has left a shard
// when the shard's note says so. [Manager.OpenSlice] carries this out in the shard's handler,
// and [Slice] says which keys the shard has. A [Router] says who owns a shard or a key at
// present.
//
// # Load
//
// [Slice.Add] and [Counter.Add] measure the load of a shard. Each member reports it to the
// assigner, by default [Balance], which relieves members with too much of it.
//
// # What it does not do
//
// It moves no data: what an owner needs is in the shard's log and items, or where
// the application keeps it. Plans are advice; rules ("not on this node") hold as
// soon as a plan is carried out, not at every moment.
package sharding
