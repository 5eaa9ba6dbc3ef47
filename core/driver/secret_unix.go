//go:build unix

package driver

import "syscall"

// withoutWaiting makes opening a FIFO return without waiting for its writer.
const withoutWaiting = syscall.O_NONBLOCK
