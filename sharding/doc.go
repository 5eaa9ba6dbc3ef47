// Package sharding shares shards among the members of a namespace: evenly, by capacity or by load,
// with as few moves as possible. It carries out planned moves in order. Shards have fixed names, or
// divide a keyspace into ranges. Each process runs a [Manager] alongside its core.Elector:
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
//     members and owners from its view. An [Assigner], which is a pure function, says which
//     member should own each shard. The assigner's member appends the changes to the log of
//     "_assigner".
//   - Every member reads that log into the same table. If a shard is assigned to another member,
//     its owner hands it over by a directed transfer after the handler has returned. A member
//     stands by for every shard that it does not own.
//
// # No shard is forgotten (W1)
//
// All members contend for all shards. Standing by costs about 300 bytes for each shard. The
// assigned owner of a free shard claims it first, then its heir, then the others by priority and
// rendezvous (C9). Every member derives the same heirs from the table. After a crash, therefore,
// each heir claims its shards in one batch, without the assigner. The shares are then those of a
// plan. While there is no assigner, or no plan yet, only priority and rendezvous decide.
//
// A shard whose owners keep dying is quarantined: after several deaths, no member claims it for
// a time, and views give the reason (see [Quarantine]).
//
// # Rules
//
//   - W1: no shard is forgotten: each has an owner, or a member that will claim it, or is in
//     quarantine.
//   - W2: a new owner starts after the former lease ended.
//   - W3: a plan is applied whole or not at all, and continues from the plan before it.
//   - W4: a plan that is older than a lease does not move its shard.
//   - W5: a hash is served by one shard at a time. Before another shard takes a range, the
//     range's shard ends its calls there, and notes the range and the recipient under its
//     lease.
//
// # Leaving
//
// When the context of Run ends, the member marks its record as draining (core.MemberState), and the
// assigner plans its shards away. The member hands each shard over when its handler has returned.
// Then Run returns. If there is no assigner, the member hands its shards to their heirs after four
// intervals.
//
// # Keys
//
// A [Keyspace] maps keys to hashes of 64 bits, and begins with one shard for each of a number of
// equal ranges. Ranges are split and merged while they are served. The assigner does this according
// to load, and operators' rules can request it. The plans contain the [Map] of ranges. What decides
// is each shard's note, an item that is committed under the shard's lease. A range has left a shard
// when the shard's note says so. [Manager.OpenSlice] carries out the changes of ranges in the
// shard's handler, and [Slice] says which keys the shard has. A [Router] finds the current owner of
// a shard or a key.
//
// # Load
//
// [Slice.Add] and [Manager.Add] measure the load of a shard. Each member reports its loads to
// the assigner. The default assigner, [Balance], moves shards away from overloaded members.
//
// # What it does not do
//
// It moves no data. The state that an owner needs is in the shard's log and items, or wherever
// the application keeps it. Plans are advice. Rules such as "not on this node" hold once a plan
// is carried out, not at every moment.
package sharding
