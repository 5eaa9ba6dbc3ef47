// Package harness is shared by the system suite and the demonstration. It starts this program again
// as member processes, and exchanges orders and events as lines of JSON. It holds writes while
// their process is stopped, and has the control without the fence.
package harness
