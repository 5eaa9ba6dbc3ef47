// Package system is the system suite: it runs real processes under real faults, and judges their
// behaviour. Package conformance/system is its public API, and describes a run, its findings and
// its limits.
//
// If the store is a server of package servers, its faults take three lines. Store.Restart is the
// server's Restart. [Pausing] makes Store.Pause from the server's Stop and Cont. [Cutting] makes
// Store.Cut from the faultproxy between the members and the server. The TestMain of this test calls
// [Member] first, because members start no servers. See backends/sql/postgres for an example.
package system
