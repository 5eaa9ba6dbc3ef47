// Package sql is what Tenure's SQL backends share: the driver's contract over
// database/sql, without any database driver. Applications use one of the
// packages below it, such as backends/sql/sqlite.
//
// A backend consists of three parts:
//
//   - The tables, as versioned migrations.
//   - The statements, one file of SQL that can be read and run by hand (see
//     [Compile]). Every flow is lock, read, decide in Go, write, and lists travel as
//     one JSON array, so that a batch is one statement whatever its length. What
//     needs no answer is queued, so that a client library that can send several
//     statements at once does (see [Runner]). A dialect may have one statement more,
//     which decides and writes what is most frequent, a commit that only appends; what
//     it does not write is decided in Go. A database that shows commits before they are
//     durable needs the two statements of a barrier.
//   - A [Store], which runs transactions and says what a failure means.
//
// # Tables
//
// The data tables hold what leases and commits write: namespaces (identity,
// base, revision, and up to which revision rows of locks were removed), shards (owner and head), items, logs (the decision logs, a
// row per commit; the view entries shows them one by one), tails (counters that
// order the entries of many shards) and probes (rows of the probe when a namespace is
// opened, and of barriers). The migrations keep their version in schema. The roster's
// tables hold what membership writes: rosters (a copy of the identity, and a
// revision of its own), nodes, members, beats and departures. No transaction
// writes both groups, so that a store may keep them in two databases; claims and
// transfers write the data while they keep the roster from changing.
//
// A token is base + revision of the namespace. The revision is raised once per
// batch of ownership changes, in a row that is never deleted and that is locked
// last, which makes it a cursor in commit order (rule A2). Commits and
// heartbeats do not touch it.
package sql
