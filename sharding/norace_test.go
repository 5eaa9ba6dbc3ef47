//go:build !race

package sharding

// restartScale is the number of shards of the rolling restart.
const restartScale = 1000
