// Package system is the system suite: real processes and real faults, with judges of what
// they did. conformance/system is its public face, and says what a run is, what it finds,
// and what not.
//
// A store that is a server offers its faults in three lines: Store.Restart takes the Restart
// of a server of package servers as it is, [Pausing] makes a Store.Pause of its Stop and Cont,
// and [Cutting] a Store.Cut of the proxy of package faultproxy that the members connect
// through. Such a test has a TestMain that calls [Member] first, because members start no
// servers; see backends/sql/postgres.
package system
