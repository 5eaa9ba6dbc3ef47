//go:build unix

package harness

import "syscall"

// The signals that stop and continue a process.
const (
	stopSignal     = syscall.SIGSTOP
	continueSignal = syscall.SIGCONT
)
