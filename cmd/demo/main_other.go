//go:build !unix

// Command demo is the flight board. It needs signals that stop a process, so it runs only on Unix
// systems.
package main

import (
	"fmt"
	"os"
)

func main() {
	fmt.Fprintln(os.Stderr, "demo: it stops and kills processes by signals, which this system lacks: run it on Linux, "+
		"macOS or another Unix")
	os.Exit(2)
}
