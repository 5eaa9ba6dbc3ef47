// Package harness contains the code that the system suite and the demonstration share. It starts
// copies of the running program as members, and exchanges orders and events with them as lines of
// JSON. It can also hold back a stopped process's write, and run a control without the fence.
package harness
