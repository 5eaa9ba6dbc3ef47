//go:build !race

package sharding

// restartScale is how many shards the rolling restart has.
const restartScale = 1000
