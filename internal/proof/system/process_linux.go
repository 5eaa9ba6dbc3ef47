package system

import "syscall"

// supported: processes share a clock, and can be stopped.
const supported = true

// onMainThread reports whether it is called on the process's first thread.
func onMainThread() bool { return syscall.Gettid() == syscall.Getpid() }
