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
// open_timeout. Other backends never connect. An application that provides its own core.Backend
// does not call Backends. Tenurefx then uses that backend and does not close it.
//
// A start hook begins the run and returns immediately, because elections take place in the
// background. The run does not use the start hook's context. A stop hook ends the run. The hook
// asks the handlers to stop, gives up each lease when the lease's handler has returned, and closes
// the backend last. The stop hook returns before its context's deadline, to leave time for later
// hooks. The hook leaves a tenth of the remaining time, but at least 1 s, and never more than half
// of the remaining time. If a handler takes longer to return, its shard stays with this session
// until the session is evicted. The fence refuses the handler's later writes. If the drain budget
// does not fit into stop_timeout, Config.Warnings returns a warning, which tenurefx logs. If a run
// ends before the stop hook, the application shuts down with exit code 1.
//
// # Options of the application
//
// An application may provide *core.Options, *sharding.Options and *follower.Options for values that
// a file cannot express. *core.Options replaces the configuration's options. The configuration
// overrides values in *sharding.Options and *follower.Options, so that an operator can change them.
//
// # What it does not do
//
// The package starts no fx.App and reads no file. Its subpackage service provides a complete
// sharded service, with metrics and the board. If fx cannot build an application, fx runs no stop
// hook, so an open backend stays open until the process ends. Without fx, open the backend with
// package config, and use packages core, sharding and follower directly. For metrics, add
// tenureprom.Module. This module is part of package tenureprom, so that other applications do not
// link Prometheus.
package tenurefx
