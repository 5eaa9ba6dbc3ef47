package system

import "syscall"

// supported is true, because processes on Linux share a clock and can be stopped.
const supported = true

// onMainThread reports whether the caller runs on the first thread of the process.
func onMainThread() bool { return syscall.Gettid() == syscall.Getpid() }
