//go:build !unix

package driver

const withoutWaiting = 0
