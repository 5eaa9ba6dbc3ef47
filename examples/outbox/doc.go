// Command outbox publishes the decisions of a shard's owner in order to a broker, NATS JetStream,
// with the shard and its token.
//
//	go run ./outbox -db outbox.db -shard orders
//	go run ./outbox -db outbox.db -shard orders -nats nats://127.0.0.1:4222
//
// Without -nats it starts its own server, in this process.
//
// The owner commits a decision to its log and is done; it does not depend on the broker. The relay
// follows the log and publishes its entries. The broker itself keeps the relay's position: the last
// message of a shard's subject names its entry. Each message is published on the condition that it
// follows that one. So every decision is in the stream exactly once, even if the relay is killed or
// runs twice by mistake.
//
// Consumers get the token with each message. A consumer that writes elsewhere should pass the token
// on, as package fence describes.
package main
