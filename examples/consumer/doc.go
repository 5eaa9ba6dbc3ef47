// Command consumer divides the partitions of a stream of deposits among processes, and books each
// deposit exactly once. The program is wired with fx.
//
//	go run ./consumer -db consumer.db -nats nats://127.0.0.1:4222 -node a
//	go run ./consumer -db consumer.db -nats nats://127.0.0.1:4222 -node b
//
// The hash of an account's name assigns the account to one of eight shards. The stream has a
// subject for each shard's deposits. A shard's owner starts reading where the previous owner
// stopped. An item in the shard contains the number of the last booked message. The owner writes
// this number and the changed balances in one fenced commit. A process that was stopped and
// superseded while handling a message can no longer book that message. The successor therefore
// reads the message again.
package main
