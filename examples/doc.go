// Package examples holds complete small applications, each in its own folder:
//
//   - rates: members that share state guarded by the fence, and follow its changes;
//   - outbox: decisions published to a broker in order, each exactly once;
//   - cron: a job that runs on one machine, wired with fx, on any backend;
//   - consumer: the partitions of a stream shared among members, wired with fx.
//
// They are a separate module: run the commands in this folder.
package examples
