// Package tenurefx wires Tenure into an application that uses go.uber.org/fx.
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
// The other backends never connect. An application with its own core.Backend omits Backends. In
// this case, tenurefx uses that backend and does not close it.
//
// A start hook begins the run and returns immediately, since the store elects the leader in the
// background. The run never sees the context of the start hook. A stop hook ends the run. It asks
// the handlers to stop, gives each lease back when its handler has returned, and closes the backend
// last. The hook keeps to the deadline of its context. It leaves a tenth of the time, and if
// possible a second, for later hooks. If a handler takes longer, its shard stays with this session
// until the session is evicted, and the fence refuses the handler's later writes. If the drain
// budget does not fit into stop_timeout, a line of Config.Warnings is logged. If a run ends without
// having been asked to, the application shuts down with exit code 1.
//
// # Options of the application
//
// An application may provide *core.Options, *sharding.Options and *follower.Options for values that
// a file cannot express. *core.Options replaces the options of the configuration. For the other
// two, values in the configuration override the application's, so that an operator can change them.
//
// # What it does not do
//
// It starts no fx.App and reads no file. Its subpackage service makes a whole sharded service,
// with metrics and the board. If fx cannot build an application, it runs none of the stop
// hooks, so an open backend stays open until the process ends. Without fx, open the backend
// with package config, and make the rest with core, sharding and follower. For metrics, add
// tenureprom.Module. It is in package tenureprom so that other applications do not link
// Prometheus.
package tenurefx
