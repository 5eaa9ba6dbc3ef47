// Package containers runs the conformance suite on container images of stores, for teams that have
// a Docker engine but no servers:
//
//	func TestConformance(t *testing.T) {
//		containers.Run(t, containers.Postgres("postgres:16"), nil)
//	}
//
// Run pulls the image if it is missing, and starts one container with testcontainers-go. Once Run
// can open the backend, Run executes the suite and then removes the container. Each case has its
// own namespace. If Docker or the image is unavailable, Run skips the test and gives the reason.
// With [Options.Required], Run fails the test instead.
//
// If the engine is on this machine, it publishes the store's port on loopback only. An engine on
// another machine, such as a CI job's Docker service, publishes the port on all addresses of its
// host during the test. Of the stores on such an engine, only PostgreSQL, MySQL and MariaDB have a
// password.
//
// # A test that dies
//
// After a panic, a timeout or SIGKILL, Ryuk removes the containers. Ryuk is a container that
// testcontainers-go starts for this purpose. If Ryuk's image cannot be pulled, set
// TESTCONTAINERS_RYUK_DISABLED=true. A shell process then removes the containers with the docker
// command. The shell process detects the end of the test because a pipe closes.
//
// # What it adds to an application
//
// An application that does not import this package has none of its dependencies in go.mod, go.sum
// or the binary. A test verifies this. If an application already requires one of the dependencies,
// the go command selects at least the version that this module requires.
//
// # What it does not do
//
// The package injects no faults. Run skips cases that need a cut network, a restart or a wiped
// store, and lists them in the report. The package runs a single server without TLS. To test a
// store that is already running, use package live.
package containers
