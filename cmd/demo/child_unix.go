//go:build unix && !linux

package main

import "syscall"

// childAttr puts a child into a process group of its own, so that an interrupt
// from the terminal reaches the director only.
func childAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
