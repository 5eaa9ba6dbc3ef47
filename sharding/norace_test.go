//go:build !race

package sharding

import "time"

var restartScale = scale{shards: 1000, interval: 100 * time.Millisecond}
