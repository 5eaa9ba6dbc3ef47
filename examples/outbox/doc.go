// Command outbox publishes the decisions of a shard's owner to NATS JetStream, a broker, in order,
// with the shard and its token.
//
//	go run ./outbox -db outbox.db -shard orders
//	go run ./outbox -db outbox.db -shard orders -nats nats://127.0.0.1:4222
//
// Without -nats, the program runs its own NATS server.
//
// The owner only commits each decision to its log, so it does not depend on the broker. The relay
// follows the log and publishes its entries. The broker itself keeps the relay's position, because
// the last message of a shard's subject names its log entry. The broker accepts a message only if
// it follows that last message. Therefore, every decision is in the stream exactly once, even if
// the relay is killed or runs twice by mistake.
//
// Consumers get the token with each message. A consumer that writes elsewhere should pass the token
// on, as package fence describes.
package main
