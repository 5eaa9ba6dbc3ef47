// Package sharding distributes shards among the members of a namespace evenly, by capacity or by
// load, with the fewest possible moves. A shard either has a fixed name or serves one range of a
// keyspace. Each process runs a [Manager] alongside its core.Elector:
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
//   - The lease decides which member owns a shard. Wrong or late plans cost time, but not safety.
//   - The member that owns the reserved shard "_assigner" is the assigner, and writes the plans.
//     The assigner reads members and owners from its view. A pure function, the [assign.Assigner],
//     decides which member should own each shard. The assigner appends each plan to the log of
//     "_assigner".
//   - Every member reads the log of "_assigner" and derives the same table of assignments. If a
//     plan assigns a shard to a different member, the owner stops its handler and then transfers
//     the shard. A member stands by for every shard that it does not own.
//
// # No shard is forgotten (W1)
//
// All members contend for all shards. Standing by for a shard takes about 300 bytes of memory. The
// assigned owner is the first to claim a free shard, followed by the shard's heir. The remaining
// members follow in order of priority and rendezvous hash (C9). Every member derives the same heirs
// from the table. After a crash, each heir therefore claims its shards in one batch, without
// waiting for the assigner. The shards are then as evenly distributed as after a plan. While there
// is no assigner, or no plan yet, only priority and rendezvous hash decide which member claims a
// shard.
//
// A shard whose owners keep dying is quarantined. After several deaths, no member claims the shard
// for a while, and views show the reason (see [Quarantine]).
//
// # Rules
//
//   - W1: each shard has an owner or a member that will claim it, unless the shard is in
//     quarantine.
//   - W2: a new owner starts after the former lease ended.
//   - W3: a plan is applied completely or not at all, and continues from the previous plan.
//   - W4: a plan that is older than a lease does not move the lease's shard.
//   - W5: one shard at a time serves a hash. Before another shard takes a range, the giver ends its
//     calls in that range, and notes the range and the recipient under its own lease.
//
// # Leaving
//
// When Run's context ends, the member marks its record as draining (core.MemberState), and the
// assigner assigns the member's shards to other members. The member hands each shard over when its
// handler has returned. After the last hand-over, Run returns. If there is no assigner, the member
// waits four intervals and then hands its shards over to their heirs.
//
// # Keys
//
// A [Keyspace] maps keys to 64-bit hashes. A keyspace begins with equal ranges, each served by one
// shard. The assigner splits and merges ranges according to load, and operators' rules can request
// splits and merges. Ranges stay in service while they are split or merged. The plans contain the
// [Map] of all ranges, but each shard's note, an item that the owner commits under the shard's
// lease, is authoritative. A range has left a shard once the shard's note records this. A shard's
// handler calls [Manager.OpenSlice] to get a [Slice]. The Slice determines which keys the shard
// serves, and splits and merges the shard's range. A [Router] finds the current owner of a shard or
// a key.
//
// # Load
//
// [Slice.Add] and [Manager.Add] measure the load of a shard. Each member reports its loads to
// the assigner. The default assigner, [assign.Balance], moves shards away from overloaded members.
//
// # What it does not do
//
// Package sharding moves no data. An owner finds its shard's state in the shard's log and items, or
// wherever the application keeps it. Plans are advice. A rule such as "not on this node" takes
// effect only once members have carried out a plan.
package sharding
