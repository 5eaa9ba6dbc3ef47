// Package trace writes the inputs and effects of a member's state machine ([Log]) and reads
// them ([Reader]). It also checks the traces of a fleet against the rules ([Check]). Check
// compares each step of each member with the machine of this version, and the leases, tokens,
// evictions and commits of all members with each other. See docs/internals/check.md for what it
// finds, and docs/tenure.md for what it cannot see.
//
// # Format
//
// A file is gzip over lines of JSON. The first line is a [Header]. Every other line is a
// [Record] or a checksum. A checksum {"sum": N} is the CRC-32 of all headers and records before
// it, without line ends. Log writes a checksum with each flush. The names of fields and kinds
// are the format. A change of their meaning raises [Format]. The file of a killed process ends
// within a line. Lines after its last checksum do not count.
package trace
