// Package containers runs the conformance suite on container images of stores, for teams that
// have a Docker engine but no servers:
//
//	func TestConformance(t *testing.T) {
//		containers.Run(t, containers.Postgres("postgres:16"), nil)
//	}
//
// Run pulls a missing image, and starts one container with testcontainers-go. When the backend
// opens, Run runs the suite on it, and then removes the container. Each case has its own
// namespace. If there is no engine or no image, the test is skipped and gives the reason. With
// [Options.Required], the test fails.
//
// If the engine is on this machine, the store's port is published on loopback only. Otherwise, for
// example with Docker as a service of a CI job, it is published on all addresses of the engine's
// host during the test. Stores other than PostgreSQL, MySQL and MariaDB then have no password.
//
// # A test that dies
//
// After a panic, a time-out or SIGKILL, Ryuk removes the containers. Ryuk is a container that
// testcontainers-go starts for this purpose. If its image cannot be pulled, set
// TESTCONTAINERS_RYUK_DISABLED=true. A shell then waits for the end of a pipe from the test, and
// removes the containers with the docker command.
//
// # What it adds to an application
//
// Unless an application imports this package, it gets no module in its go.mod or go.sum, and no
// code in its binary. A test verifies this. If the application requires one of the modules anyway,
// the go command selects at least this module's version of it.
//
// # What it does not do
//
// It causes no faults. Cases that need a cut network, a restart or a wiped store are skipped, and
// the report lists them. It runs a single server without TLS. Package live runs the suite on a
// running store.
package containers
