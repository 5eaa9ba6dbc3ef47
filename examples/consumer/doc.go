// Command consumer shares the partitions of a stream of deposits among processes, wired with fx,
// and books each deposit exactly once.
//
//	go run ./consumer -db consumer.db -nats nats://127.0.0.1:4222 -node a
//	go run ./consumer -db consumer.db -nats nats://127.0.0.1:4222 -node b
//
// An account belongs to one of eight shards, by the hash of its name. The deposits of a shard are
// one subject of the stream. The owner of the shard reads from where the last owner stopped. The
// number of the last message is an item of the shard, written in the same fenced commit as the
// balances that the message changed. A process that was stopped and superseded in the middle of a
// message can no longer commit it, so its successor reads the message again.
package main
