package system

import "syscall"

// supported is true, because processes share a clock and can be stopped.
const supported = true

// onMainThread reports whether it runs on the process's first thread.
func onMainThread() bool { return syscall.Gettid() == syscall.Getpid() }
