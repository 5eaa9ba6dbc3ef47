// Command outbox publishes the decisions of a shard's owner to a broker, NATS
// JetStream, in their order, with the shard and its token.
//
//	go run ./outbox -db outbox.db -shard orders
//	go run ./outbox -db outbox.db -shard orders -nats nats://127.0.0.1:4222
//
// Without -nats it starts its own server, in this process.
//
// The owner commits a decision to its log and is done: whether the broker is up is
// not its concern. The relay follows the log and publishes its entries. The broker
// itself keeps the relay's position: the last message of a shard's subject says
// which entry it is. And each message is published on the condition that it follows
// that one, so every decision is in the stream exactly once, whether the relay is
// killed or runs twice by mistake.
//
// Consumers get the token with each message. One that writes somewhere else should
// pass it on to there, as package fence describes.
package main
