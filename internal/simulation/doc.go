// Package simulation runs many members and shards over virtual time: the lease
// machines of core/fsm, one per member, over a model store, with the assigner of
// package sharding, while members crash, leave and join. It measures what a plan
// costs over a day: shards moved against the least possible, time without an
// owner, calls to the store.
//
// The machines, the planner, the assigners and the heirs are the real ones. What
// the Manager does around them is done in its simplest form: a plan reaches every
// member one delay after it was written, and handlers take a fixed time to drain.
// The store answers every call; faults of the network are for the simulation of
// core/fsm. Full reads of the namespace are rare (Config.Resync), because a
// hundred machines would spend the day on them.
package simulation
