//go:build !unix

// Command demo shows a flight board. The command stops processes with signals, so it runs only on
// Unix systems.
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
