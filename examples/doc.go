// Package examples holds complete small applications, each in its own folder:
//
//   - rates: members that share state guarded by the fence, and follow its changes;
//   - outbox: decisions published to a broker in order, each exactly once;
//   - payments: payments through a provider that loses replies, each charged exactly once;
//   - toolproxy: calls of tools by AI agents, each made once or reported as in doubt;
//   - cron: a job that runs on one machine, wired with fx, on any backend;
//   - python: a leader written in Python, which uses the sidecar "tenure serve", and a client that
//     asks any member for the owner of a key and sends the request there;
//   - consumer: the partitions of a stream shared among members, wired with fx;
//   - orders: orders over HTTP, forwarded to the owner of their shard, with read models on every
//     member, and a number of shards that changes under load, wired with fx.
//
// The examples are a separate module, so run their commands in this folder.
package examples
