//go:build !unix

package harness

import "syscall"

// There are no such signals here, and nothing is started.
const (
	stopSignal     = syscall.SIGTERM
	continueSignal = syscall.SIGTERM
)

func attributes() *syscall.SysProcAttr { return nil }
