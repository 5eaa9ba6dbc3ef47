// Package trace writes the inputs and effects of a member's state machine ([Log]), reads them
// ([Reader]), and checks the traces of a fleet against the rules ([Check]). It compares each step
// of each member with the machine of this version, and the leases, tokens, evictions and commits of
// all members with each other. docs/internals/check.md lists what it finds, docs/tenure.md what it
// cannot see.
//
// # Format
//
// A file is gzip over lines of JSON. The first line is a [Header]. Every other line is a [Record]
// or a checksum: {"sum": N} is the CRC-32 of all headers and records before it, without line ends.
// Log writes a checksum with each flush. The names of fields and kinds are the format. A change of
// their meaning raises [Format]. The file of a killed process ends within a line. Lines after its
// last checksum do not count.
package trace
