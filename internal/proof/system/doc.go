// Package system is the system suite: real processes and real faults, with judges of their
// behaviour. conformance/system is its public API, and describes a run, its findings and its
// limits.
//
// A store that is a server has its faults in three lines. Store.Restart is the Restart of a server
// of package servers. [Pausing] makes a Store.Pause of the server's Stop and Cont. [Cutting] makes
// a Store.Cut of the faultproxy between the members and the server. Such a test has a TestMain that
// calls [Member] first, because members start no servers: see backends/sql/postgres.
package system
