//go:build unix && !linux

package harness

import "syscall"

// attributes puts a process into its own group, so that an interrupt from the terminal reaches only
// its parent.
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
