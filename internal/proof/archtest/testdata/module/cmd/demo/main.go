package main

import (
	"fmt"

	_ "example.com/synthetic/backends/etcd"
	_ "example.com/synthetic/core"
	_ "example.com/synthetic/core/driver" // want `cmd/demo may not import example.com/synthetic/core/driver`
	_ "github.com/spf13/pflag"
)

var started int

func main() {
	started++
	fmt.Println("started")
}
