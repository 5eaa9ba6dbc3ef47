// Package trace writes the inputs and effects of a member's state machine ([Log]), reads them
// ([Reader]), and checks the traces of a fleet against the rules ([Check]). Check compares each
// step of each member with this version of the state machine. It also compares the leases, tokens,
// evictions and commits of all members with each other. See docs/internals/check.md for what it
// finds, and docs/tenure.md for what it cannot see.
//
// # Format
//
// A file is gzip over lines of JSON. The first line is a [Header]. Every other line is a [Record]
// or a checksum. A checksum {"sum": N} is the CRC-32 of all headers and records before it, without
// line ends. Log writes a checksum with each flush. If the meaning of a field or kind changes,
// [Format] is raised. If the process was killed, its file may end within a line. A reader ignores
// lines after the last checksum.
package trace
