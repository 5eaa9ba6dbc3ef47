//go:build unix && !linux

package main

const (
	runtimeIsLinux = false
	childVariable  = "TENURE_TEST_CHILD"
)

func child() {}
