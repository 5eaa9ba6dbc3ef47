//go:build !linux

package system

// supported is false, because the standard library offers no clock that processes on this system
// share.
const supported = false

func onMainThread() bool { return false }
