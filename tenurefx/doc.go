// Package tenurefx wires Tenure into an application made with go.uber.org/fx.
//
//	fx.New(
//		fx.Provide(loadConfig),                              // *config.Config
//		tenurefx.Backends(sqlite.Opener(), postgres.Opener()),   // the choice
//		tenurefx.Module(),                                   // *core.Elector
//		fx.Provide(tenurefx.AsElection(newScheduler)),       // func(...) tenurefx.Election
//	)
//
// # Order of events
//
// The chosen backend is opened when something first needs it, within open_wait and open_timeout.
// The other backends never connect. An application with its own core.Backend leaves Backends out;
// tenurefx uses that backend and does not close it.
//
// A start hook begins the run and returns immediately: the store elects the leader in the
// background. The run never sees the context of the start hook. A stop hook ends the run: handlers
// are asked to stop, each lease is given back when its handler has returned, and the backend is
// closed last. The hook keeps to the deadline of its context. It leaves a tenth of the time, and if
// possible a second, to later hooks. If a handler takes longer, its shard stays with this session
// until the session is evicted, and the fence refuses the handler's later writes. If the drain
// budget does not fit stop_timeout, a line of Config.Warnings is logged. If a run ends unasked, the
// application shuts down with exit code 1.
//
// # Options of the application
//
// An application may provide *core.Options, *sharding.Options and *follower.Options for values that
// no file can have. *core.Options replace the options of the configuration. Of the other two, the
// values in the configuration replace the application's, so that an operator can change them.
//
// # What it does not do
//
// It starts no fx.App and reads no file: package service below it makes a whole sharded service,
// with metrics and the board. If an application cannot be made, fx runs none of its stop
// hooks, so an open backend stays open until the process ends. Without fx, open the backend with
// package config, and make the rest with core, sharding and follower. For metrics add
// tenureprom.Module, which is in package tenureprom so that other applications do not link
// Prometheus.
package tenurefx
