//go:build !unix

package harness

import "syscall"

// This system has no signals that stop and continue a process, so no process is started.
const (
	stopSignal     = syscall.SIGTERM
	continueSignal = syscall.SIGTERM
)

func attributes() *syscall.SysProcAttr { return nil }
