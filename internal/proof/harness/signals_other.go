//go:build !unix

package harness

import "syscall"

// These systems have no such signals, and start no process.
const (
	stopSignal     = syscall.SIGTERM
	continueSignal = syscall.SIGTERM
)

func attributes() *syscall.SysProcAttr { return nil }
