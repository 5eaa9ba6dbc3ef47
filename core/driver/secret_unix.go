//go:build unix

package driver

import "syscall"

// withoutWaiting has the opening of a FIFO not wait for its writer.
const withoutWaiting = syscall.O_NONBLOCK
