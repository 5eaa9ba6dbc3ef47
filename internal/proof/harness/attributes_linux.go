package harness

import "syscall"

// attributes puts a process into its own group, so that an interrupt from the terminal reaches only
// its parent. When the thread that started the process ends, the kernel kills the process, even
// while it is stopped.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
