// Package sharding distributes shards among the members of a namespace, evenly, by capacity or by
// load, with as few moves as possible. Shards have fixed names, or divide a keyspace into ranges.
// Each process runs a [Manager] alongside its core.Elector:
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
//   - The lease decides which member owns a shard. A wrong or late plan costs time, but never
//     safety.
//   - The assigner plans. The assigner is the member that holds the reserved shard "_assigner". The
//     assigner reads members and owners from its view. An [Assigner], which is a pure function,
//     decides which member should own each shard. The assigner appends the changes to the log of
//     "_assigner".
//   - Every member reads that log and derives the same table of assignments. If a shard is assigned
//     to another member, the owner transfers the shard to that member after the handler has
//     returned. A member stands by for every shard that it does not own.
//
// # No shard is forgotten (W1)
//
// All members contend for all shards. Standing by costs about 300 bytes for each shard. A free
// shard is claimed first by its assigned owner, then by its heir, and then by the others in the
// order of priority and rendezvous hash (C9). Every member derives the same heirs from the table.
// Therefore, after a crash, each heir claims its shards in one batch, without the assigner, and the
// shares are as even as those of a plan. While there is no assigner, or no plan yet, only priority
// and rendezvous hash decide.
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
// assigner gives its shards to other members. The member hands each shard over when the shard's
// handler has returned. Then Run returns. If there is no assigner, the member hands its shards over
// to their heirs after four intervals.
//
// # Keys
//
// A [Keyspace] maps keys to 64-bit hashes, and begins with a number of equal ranges, each with its
// own shard. The assigner splits and merges ranges according to load, and operators' rules can
// request splits and merges. The ranges stay in service during a change. The plans contain the
// [Map] of ranges, but each shard's note is authoritative. The note is an item that is committed
// under the shard's lease. A range has left a shard once the shard's note records this.
// [Manager.OpenSlice] carries out the changes of ranges in the shard's handler, and the [Slice]
// that it returns knows which keys the shard has. A [Router] finds the current owner of a shard or
// a key.
//
// # Load
//
// [Slice.Add] and [Manager.Add] measure the load of a shard. Each member reports its loads to
// the assigner. The default assigner, [Balance], moves shards away from overloaded members.
//
// # What it does not do
//
// Package sharding moves no data. The state that an owner needs is in the shard's log and items, or
// wherever the application keeps it. Plans are advice. A rule such as "not on this node" applies
// once a plan has been carried out, not at every moment.
package sharding
