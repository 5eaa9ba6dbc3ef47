// Package system is the system suite: real processes and real faults, with judges of their
// behaviour. conformance.TestSystem is its public API, and describes a run, its findings and its
// limits.
//
// If the store is a server of package servers, three lines of code inject its faults. Store.Restart
// is the server's Restart. [Pausing] makes Store.Pause from the server's Stop and Cont. [Cutting]
// makes Store.Cut from the faultproxy between the members and the server. The TestMain of this test
// calls [Member] first, because members start no servers. See backends/sql/postgres for an example.
package system
