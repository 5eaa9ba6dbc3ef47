// Package harness is the code that the system suite and the demonstration share: this
// program started again as member processes, orders and events as lines of JSON,
// writes that are held while their process is stopped, and the control without the
// fence.
package harness
