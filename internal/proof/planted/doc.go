// Package planted plants faults in the code of the state machine, the runner and the adapters. The
// tests run real Electors with these faults, and check that package trace finds each fault from the
// traces alone.
//
// The package is for tests only.
package planted
