// Package trace writes the inputs and effects of a member's state machine to trace files ([Log]),
// and reads these files ([Reader]). [Check] checks the traces of a namespace's members against the
// rules. It compares each step with this version of the state machine, and compares the leases,
// tokens, evictions and commits of all members. See docs/internals/check.md for the breaches that
// Check finds, and docs/tenure.md for those that it cannot see.
//
// # Format
//
// A trace file contains gzip-compressed lines of JSON. The first line is a [Header]. Every other
// line is a [Record] or a checksum. A checksum has the form {"sum": N}, where N is the CRC-32 of
// all preceding headers and records, without line ends. Log writes a checksum at each flush. If the
// meaning of a field or kind changes, [Format] must be incremented. A killed process may leave an
// incomplete last line. A reader ignores the lines after the last checksum.
package trace
