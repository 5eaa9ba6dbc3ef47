// Package examples contains small, complete applications, each in its own folder:
//
//   - rates: Members share state under the fence, and follow its changes.
//   - outbox: A relay publishes each decision to a broker exactly once, in order.
//   - payments: The leader charges each payment exactly once, although the provider loses replies.
//   - toolproxy: A proxy makes each tool call of an AI agent once, or reports the call as in doubt.
//   - cron: A job runs on only one machine, with any backend. The program is wired with fx.
//   - python: A leader in Python uses the sidecar "tenure serve", and a client sends each request
//     to the owner of the request's key.
//   - consumer: Members share the partitions of a stream. The program is wired with fx.
//   - orders: Members forward each HTTP order to the owner of the order's shard. Every member has a
//     read model, and the number of shards changes with the load. The program is wired with fx.
//
// The examples are a separate module, so run their commands in this folder.
package examples
