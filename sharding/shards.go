package sharding

// Limits of a plan that is read, and of the names and ranges of a set.
const (
	maxShards  = 1 << 20
	maxMembers = 1 << 16
	maxSpecs   = 1 << 12
)
