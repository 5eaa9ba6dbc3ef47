//go:build !linux

package system

import "syscall"

// supported: the standard library reads no clock here that processes share.
const supported = false

// There are no such signals everywhere; nothing is started here.
const (
	stopSignal     = syscall.SIGTERM
	continueSignal = syscall.SIGTERM
)

func memberAttr() *syscall.SysProcAttr { return nil }

func onMainThread() bool { return false }
