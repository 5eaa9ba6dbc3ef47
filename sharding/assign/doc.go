// Package assign decides which member of a cluster should own each shard. The package performs no
// I/O, reads no clock and starts no goroutines. Package sharding writes the plans to the store and
// carries them out.
//
// A [Cluster] describes the members, the shards and their owners. An [Assigner] computes a [Plan]
// from a Cluster. The default Assigner, [Balance], weighs an even load against the number of moves,
// splits and merges ranges of a keyspace, and follows the [Rules]. To use a different Assigner, set
// sharding.Options.Assigner.
//
// Plans are only advice. A lease's fence decides who may write to a shard.
package assign
