// Package planted plants faults in the code of the machine, the runner and the adapters. It runs
// real Electors with them, and checks that package trace finds each fault from the traces alone.
//
// It is for tests only.
package planted
