//go:build !linux

package system

// supported is false, because on this system the standard library has no clock that processes
// share.
const supported = false

func onMainThread() bool { return false }
