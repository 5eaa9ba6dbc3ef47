// Package containers runs the conformance suite on container images of stores, for
// teams that have a Docker engine and no servers:
//
//	func TestConformance(t *testing.T) {
//		containers.Run(t, containers.Postgres("postgres:16"), nil)
//	}
//
// Run pulls the image if the engine does not have it, starts one container with
// testcontainers-go, waits until the backend opens, runs the suite in it and
// removes the container. Each case has its own namespace. Without an engine, or
// without the image, the test is skipped with the reason; [Options.Required] makes
// that a failure.
//
// Where the engine is on this machine, the store's port is published on loopback
// only. Elsewhere, such as with Docker as a service of a CI job, it is published on
// all addresses of the engine's host, for the time of the test, and stores other
// than PostgreSQL, MySQL and MariaDB have no password.
//
// # A test that dies
//
// Containers are also removed after a panic, a time-out or SIGKILL: by Ryuk, the
// container that testcontainers-go starts for that purpose. Where its image cannot be
// pulled, set TESTCONTAINERS_RYUK_DISABLED=true: a shell then waits for the end of
// a pipe from the test, and removes the containers with the docker command.
//
// # What it adds to an application
//
// No module in its go.mod or go.sum, and no code in its binary, unless it imports this
// package; a test shows that. Of a module that the application requires anyway, the go
// command selects at least the version that this one names.
//
// # What it does not do
//
// It causes no faults: the cases that need a cut network, a restart or a wiped
// store are skipped, and the report lists them. It runs a single server, without
// TLS. Package live runs the suite on a store that is running already.
package containers
