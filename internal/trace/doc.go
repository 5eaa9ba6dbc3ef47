// Package trace writes what a member's state machine was given and did ([Log]), reads it
// ([Reader]), and checks the traces of a fleet against the rules ([Check]): each step of each
// member against the machine of this version, and leases, tokens, evictions and commits of all
// members against each other. docs/tenure.md says what it finds and what it cannot see.
//
// # Format
//
// A file is gzip over lines of JSON. The first line is a [Header], each other one a [Record]; the
// names of fields and kinds are the format. What changes their meaning raises [Format]. A file of
// a process that was killed ends within a line.
package trace
