//go:build race

package sharding

// restartScale is the number of shards of the rolling restart. It is lower under the slow race
// detector.
const restartScale = 200
