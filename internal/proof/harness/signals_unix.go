//go:build unix

package harness

import "syscall"

// These are the signals that stop and continue a process.
const (
	stopSignal     = syscall.SIGSTOP
	continueSignal = syscall.SIGCONT
)
