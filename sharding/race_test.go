//go:build race

package sharding

import "time"

var restartScale = scale{shards: 200, interval: time.Second}
