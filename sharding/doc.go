// Package sharding shares shards among the members of a namespace: evenly, by capacity or by load,
// with as few moves as possible. It carries out planned moves in order. Shards have fixed names, or
// divide a keyspace into ranges. Each process runs a [Manager] beside its core.Elector:
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
//   - The lease decides who owns a shard. A wrong or late plan costs time, never safety.
//   - The assigner plans. It is the member that holds the reserved shard "_assigner". It reads
//     members and owners from its view. An [Assigner], which is a pure function, says who should
//     own each shard. The member appends the changes to the log of "_assigner".
//   - Every member reads that log into the same table. If a shard is assigned to another member,
//     its owner hands it over by a directed transfer after the handler has returned. A member
//     stands by for every shard that it does not own.
//
// # No shard is forgotten (W1)
//
// All members contend for all shards; standing by costs some 300 bytes for each shard. They claim a
// free shard in order: its assigned owner, then its heir, then by priority and rendezvous (C9).
// Every member derives the same heirs from the table. After a crash, therefore, each heir claims
// its shards in one batch, without the assigner, and the shares are those of a plan. While there is
// no assigner, or no plan yet, only priority and rendezvous decide.
//
// A shard whose owners keep dying is quarantined: after several deaths no member claims it for a
// time, and views give the reason (see [Quarantine]).
//
// # Rules
//
//   - W1: no shard is forgotten: each has an owner, or a member that will claim it, or is in
//     quarantine.
//   - W2: a new owner starts after the former lease ended.
//   - W3: a plan is applied whole or not at all, and continues from the plan before it.
//   - W4: a plan that is older than a lease does not move its shard.
//   - W5: a hash is served by one shard at a time. Another shard takes a range only after the
//     range's shard ended its calls and noted, under its lease, the range and its recipient.
//
// # Leaving
//
// When the context of Run ends, the member marks its record as draining (core.MemberState), and the
// assigner plans its shards away. The member hands them over one by one as their handlers return.
// Then Run returns. Without an assigner it hands them to their heirs after four intervals.
//
// # Keys
//
// A [Keyspace] maps keys to hashes of 64 bits, and begins with one shard for each of a number of
// equal ranges. Ranges are split and merged while they serve: by the assigner according to load, or
// by operators' rules. The plans have the [Map] of ranges. The authority is each shard's note, an
// item that is committed under the shard's lease. A range has left a shard when the shard's note
// says so. [Manager.OpenSlice] carries out the changes of ranges in the shard's handler, and
// [Slice] says which keys the shard has. A [Router] finds the current owner of a shard or a key.
//
// # Load
//
// [Slice.Add] and [Manager.Add] measure the load of a shard. Each member reports it to the
// assigner. The default assigner, [Balance], moves shards away from overloaded members.
//
// # What it does not do
//
// It moves no data: the state that an owner needs is in the shard's log and items, or where the
// application keeps it. Plans are advice; rules ("not on this node") hold as soon as a plan is
// carried out, not at every moment.
package sharding
