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
// Tenurefx opens the chosen backend when a constructor first needs it, within open_wait and
// open_timeout. The other backends never connect. If an application provides its own core.Backend,
// it omits Backends. Tenurefx then uses that backend and does not close it.
//
// A start hook begins the run and returns immediately, because leaders are elected in the
// background. The run does not use the context of the start hook. A stop hook ends the run: it asks
// the handlers to stop, gives each lease back when the lease's handler has returned, and closes the
// backend last. The hook observes the deadline of its context, and leaves a tenth of the time, if
// possible a whole second, for later hooks. If a handler takes longer, its shard stays with this
// session until the session is evicted, and the fence refuses the handler's later writes. If the
// drain budget does not fit into stop_timeout, tenurefx logs a warning of Config.Warnings. If a run
// ends without being asked to, the application shuts down with exit code 1.
//
// # Options of the application
//
// An application may provide *core.Options, *sharding.Options and *follower.Options for values that
// a file cannot express. *core.Options replaces the options of the configuration. For the other
// two, values in the configuration override those of the application, so that an operator can
// change them.
//
// # What it does not do
//
// The package starts no fx.App and reads no file. Its subpackage service makes a whole sharded
// service, with metrics and the board. If fx cannot build an application, fx runs no stop hook, so
// an open backend stays open until the process ends. Without fx, open the backend with package
// config, and use packages core, sharding and follower directly. For metrics, add
// tenureprom.Module. It is in package tenureprom so that other applications do not link Prometheus.
package tenurefx
