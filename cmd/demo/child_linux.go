package main

import "syscall"

// childAttr puts a child into a process group of its own, so that an interrupt
// from the terminal reaches the director only, and has the kernel kill it, even
// while it is stopped, when the director dies.
func childAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
