// Package engine is the code that Tenure's SQL backends share. It implements the contract of
// package driver on database/sql, and imports no database driver.
//
// A backend consists of three parts:
//
//   - Versioned migrations create the tables.
//   - One SQL file contains the statements, which people can read and run by hand (see [Compile]).
//     Every operation locks and reads rows, decides in Go, and writes. Lists are sent as JSON
//     arrays, so that a batch of any length is one statement. Statements without a result are
//     queued, so that a client library can send several statements together (see [Runner]). A
//     dialect may define one more statement, which checks and writes the most frequent kind of
//     commit, an append. If that statement writes nothing, the engine decides in Go. If a database
//     shows commits before they are durable, its dialect needs the two statements of a barrier.
//   - A [Store] runs transactions and classifies failures.
//
// # Tables
//
// The data tables contain leases and commits:
//
//   - namespaces: identity, base, revision, and the revision up to which lock rows were removed
//   - shards: owner and head
//   - items
//   - logs: the decision logs, a row per commit; the view entries shows each entry
//   - tails: counters that order the entries of many shards
//   - probes: rows of barriers, and of the probe when a namespace is opened
//
// The table schema contains the version of the migrations. Changes of membership are written to the
// roster's tables: rosters (a copy of the identity, and its own revision), nodes, members, beats
// and departures. A transaction writes to both groups only to record a new incarnation (I2), so a
// store without incarnations may keep the groups in two databases. Claims and transfers lock the
// roster while they write to the data tables.
//
// A token is the sum of the namespace's base and revision. Each batch of ownership changes raises
// the revision once. The namespace's row is never deleted, and is always locked last, so the
// revision is a cursor in commit order (rule A2). Commits and heartbeats do not access this row.
package engine
