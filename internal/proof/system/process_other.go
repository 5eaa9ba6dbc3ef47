//go:build !linux

package system

// supported: the standard library reads no clock here that processes share.
const supported = false

func onMainThread() bool { return false }
