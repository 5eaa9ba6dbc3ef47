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
// The backend that the configuration chooses is opened when something first needs
// it, within open_wait and open_timeout; the others never connect. An application that supplies
// its own core.Backend leaves Backends out; that one is used and not closed.
//
// A start hook begins the run and returns at once: the store elects the leader in the
// background. The context of a start hook never reaches the run. A stop hook ends it: handlers
// are asked to stop, each lease is given back when its handler returned, and then the backend
// is closed. It keeps to the deadline of its context, with a tenth and at least a second kept
// for later hooks; a handler that takes longer keeps its shard until its session is evicted,
// and the fence refuses its later writes. Config.Warnings, which are logged, say when the
// drain budget does not fit stop_timeout. A run that ends by itself shuts the application down
// with exit code 1.
//
// # What it does not do
//
// It starts no fx.App and reads no file. Fx runs no stop hook of an application that
// could not be made, so a backend that was opened by then is left to the end of the
// process. Without fx, package config opens the backend and core, sharding and follower make
// the rest. For metrics add tenureprom.Module; it is in package tenureprom, so that an
// application without Prometheus does not link it.
package tenurefx
