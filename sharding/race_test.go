//go:build race

package sharding

// restartScale is how many shards the rolling restart has: fewer where all is slower.
const restartScale = 200
