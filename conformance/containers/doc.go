// Package containers runs the conformance suite on container images of stores, for teams that
// have a Docker engine but no servers:
//
//	func TestConformance(t *testing.T) {
//		containers.Run(t, containers.Postgres("postgres:16"), nil)
//	}
//
// Run pulls the image if it is missing, and starts one container with testcontainers-go. When the
// backend opens, Run runs the suite on it, and then removes the container. Each case has its own
// namespace. If there is no engine or no image, Run skips the test and gives the reason. With
// [Options.Required], the test fails instead.
//
// If the engine is on this machine, the store's port is published on loopback only. Otherwise, for
// example with Docker as a service of a CI job, it is published on all addresses of the engine's
// host during the test. Stores other than PostgreSQL, MySQL and MariaDB then have no password.
//
// # A test that dies
//
// After a panic, a time-out or SIGKILL, Ryuk removes the containers. Ryuk is a container that
// testcontainers-go starts for this purpose. If its image cannot be pulled, set
// TESTCONTAINERS_RYUK_DISABLED=true. A shell then waits until the test closes its end of a pipe,
// and removes the containers with the docker command.
//
// # What it adds to an application
//
// An application that does not import this package gets none of its dependencies in go.mod or
// go.sum, and no code in its binary. A test verifies this. If the application requires one of these
// dependencies for another reason, the go command selects at least the version that this module
// requires.
//
// # What it does not do
//
// The package causes no faults. It skips cases that need a cut network, a restart or a wiped store,
// and the report lists them. It runs a single server without TLS. Package live runs the suite on a
// running store.
package containers
