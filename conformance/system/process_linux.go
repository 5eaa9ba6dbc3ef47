package system

import "syscall"

// supported: processes share a clock, and can be stopped.
const supported = true

// The signals that stop a process and let it go on.
const (
	stopSignal     = syscall.SIGSTOP
	continueSignal = syscall.SIGCONT
)

// memberAttr puts a member into a process group of its own, so that an interrupt
// from the terminal reaches the supervisor only, and has the kernel kill it, even
// while it is stopped, when the supervisor dies.
func memberAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// onMainThread reports whether it is called on the process's first thread.
func onMainThread() bool { return syscall.Gettid() == syscall.Getpid() }
