//go:build !unix

package sidecar

import "io/fs"

const withoutWaiting = 0

// checkOwner accepts every file. On this system, a file's owner is not a number, and its mode says
// little about access.
func checkOwner(string, fs.FileInfo) error { return nil }
