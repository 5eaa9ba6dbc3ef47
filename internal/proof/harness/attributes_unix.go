//go:build unix && !linux

package harness

import "syscall"

// attributes puts a process into a separate group, so an interrupt from the terminal reaches only
// the parent.
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
