// Package planted plants faults in the code of the state machine, the runner and the adapters. It
// runs real Electors with these faults, and checks that package trace finds each of them from the
// traces alone.
//
// It is for tests only.
package planted
