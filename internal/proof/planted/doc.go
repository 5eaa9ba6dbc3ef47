// Package planted plants faults in the code of the machine, the runner and the adapters, has real
// Electors run with them, and asks package trace to find each one from the traces alone.
//
// It is for tests only.
package planted
