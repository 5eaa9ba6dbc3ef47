//go:build unix

package driver

import "syscall"

// withoutWaiting is the flag for opening a FIFO without waiting for a writer.
const withoutWaiting = syscall.O_NONBLOCK
