// Package engine is the shared part of Tenure's SQL backends: the driver's contract over
// database/sql, without any database driver.
//
// A backend consists of three parts:
//
//   - The tables, as versioned migrations.
//   - The statements, in one file of SQL that can be read and run by hand (see [Compile]).
//     Every flow locks, reads, decides in Go, and writes. A list is sent as one JSON array, so
//     that a batch of any length is one statement. Statements without an answer are queued, so
//     that a client library can send several together (see [Runner]). A dialect may have
//     another statement that decides and writes the most frequent kind of commit, which only
//     appends. If that statement writes nothing, Go decides. A database that shows commits
//     before they are durable needs the two statements of a barrier.
//   - A [Store], which runs transactions and classifies failures.
//
// # Tables
//
// Leases and commits write the data tables:
//
//   - namespaces: identity, base, revision, and the revision up to which rows of locks were
//     removed
//   - shards: owner and head
//   - items
//   - logs: the decision logs, a row per commit; the view entries shows each entry
//   - tails: counters that order the entries of many shards
//   - probes: rows of barriers, and of the probe when a namespace is opened
//
// The migrations keep their version in schema. Membership writes the roster's tables: rosters (a
// copy of the identity, and its own revision), nodes, members, beats and departures. No
// transaction writes both groups, so that a store may keep them in two databases. Claims and
// transfers write the data while they keep the roster from changing.
//
// A token is base + revision of the namespace. Each batch of ownership changes raises the
// revision once. Its row is never deleted, and is always locked last, so the revision is a
// cursor in commit order (rule A2). Commits and heartbeats do not touch it.
package engine
