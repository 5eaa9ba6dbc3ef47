package sharding

import "github.com/tenure-go/tenure/internal/keyspace"

const (
	maxShards  = keyspace.MaxShards
	maxMembers = 1 << 16
	maxSpecs   = 1 << 12
)
