package sharding

import "github.com/tenure-go/tenure/internal/keyspace"

// Limits of a plan that is read, and of the names and ranges of a set.
const (
	maxShards  = keyspace.MaxShards
	maxMembers = 1 << 16
	maxSpecs   = 1 << 12
)
