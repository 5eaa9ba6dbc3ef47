//go:build unix

package driver

import "syscall"

// withoutWaiting is the flag with which opening a FIFO does not wait for a writer.
const withoutWaiting = syscall.O_NONBLOCK
