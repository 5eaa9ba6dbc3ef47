// Package examples holds complete small applications, each in its own folder:
//
//   - rates: members that share state guarded by the fence, and follow its changes;
//   - outbox: decisions published to a broker in order, each exactly once;
//   - payments: payments through a provider that loses replies, each charged exactly once;
//   - toolproxy: calls of tools by AI agents, each made once or reported as in doubt;
//   - cron: a job that runs on one machine, wired with fx, on any backend;
//   - python: a leader without Go, through the sidecar tenure serve, and a client that sends
//     requests to the owner of their key, by the map of owners of any member;
//   - consumer: the partitions of a stream shared among members, wired with fx;
//   - orders: orders over HTTP, forwarded to the owner of their shard, with read models on every
//     member and a number of shards that changes while it serves, wired with fx.
//
// They are a separate module: run the commands in this folder.
package examples
