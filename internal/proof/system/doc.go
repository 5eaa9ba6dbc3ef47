// Package system contains the system suite, which injects real faults into real processes and
// checks their behavior. The public entry point is conformance.TestSystem, whose documentation
// describes a run, its findings and its limits.
//
// If the store is a server of package servers, a test needs three lines of code to inject faults.
// Store.Restart is the server's Restart method. [Pausing] builds Store.Pause from the server's Stop
// and Cont methods. [Cutting] builds Store.Cut from the faultproxy between the members and the
// server. The test's TestMain must call [Member] first, because member processes must not start
// servers. See backends/sql/postgres for an example.
package system
