// Package harness contains the code that the system suite and the demonstration share. It starts
// this program again as member processes, and exchanges orders and events with them as lines of
// JSON. It also holds writes while their process is stopped, and provides the control without the
// fence.
package harness
