package harness

import "syscall"

// attributes puts a process into a separate group, so an interrupt from the terminal reaches only
// the parent. When the thread that started the process ends, the kernel kills the process, even if
// the process is stopped.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
