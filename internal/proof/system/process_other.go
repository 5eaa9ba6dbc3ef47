//go:build !linux

package system

// supported is false, because the standard library offers no clock here that processes share.
const supported = false

func onMainThread() bool { return false }
