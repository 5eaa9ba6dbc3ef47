//go:build !unix

package sidecar

import "io/fs"

const withoutWaiting = 0

// checkOwner accepts every file, because a file's owner is not a number here, and its mode says
// little.
func checkOwner(string, fs.FileInfo) error { return nil }
