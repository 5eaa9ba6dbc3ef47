// Command consumer shares the partitions of a stream of deposits among processes, wired with fx,
// and books each deposit exactly once.
//
//	go run ./consumer -db consumer.db -nats nats://127.0.0.1:4222 -node a
//	go run ./consumer -db consumer.db -nats nats://127.0.0.1:4222 -node b
//
// An account belongs to one of eight shards, by the hash of its name. Each shard has one subject of
// the stream for its deposits. The owner of the shard begins to read where the last owner stopped.
// The number of the last message is an item of the shard, which the owner writes in the same fenced
// commit as the balances that the message changed. A process that was stopped and superseded in the
// middle of a message can no longer commit it, so its successor reads the message again.
package main
