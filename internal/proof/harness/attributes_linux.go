package harness

import "syscall"

// attributes puts a process into its own group, so that an interrupt from the
// terminal reaches its parent only, and has the kernel kill it, even while it is
// stopped, when the thread that started it ends.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
