// Command outbox publishes a shard owner's decisions, in order, to the NATS JetStream broker. Each
// message contains the shard and the owner's fencing token.
//
//	go run ./outbox -db outbox.db -shard orders
//	go run ./outbox -db outbox.db -shard orders -nats nats://127.0.0.1:4222
//
// Without -nats, the program starts a NATS server in this process.
//
// The owner only commits each decision to the shard's log, which requires no broker. The relay
// follows the log and publishes the entries. The last message on a shard's subject identifies a log
// entry, so the broker keeps the relay's position. The broker accepts a message only if it follows
// the last message. Every decision is therefore in the stream exactly once, even if the relay is
// killed or accidentally runs twice.
//
// A consumer that writes to another system should send the message's token with the write, as
// described in package fence.
package main
