//go:build plan9

package etcd

import (
	"fmt"
	"log/slog" // want `log/slog where nothing is logged`
	"os"

	clientv3 "go.etcd.io/etcd/client/v3"
	_ "go.uber.org/fx" // want `backends/etcd may not import go.uber.org/fx`

	_ "example.com/synthetic/backends/kv"
	_ "example.com/synthetic/backends/memory" // want `backends/etcd may not import example.com/synthetic/backends/memory`
	_ "example.com/synthetic/core"            // want `backends/etcd may not import example.com/synthetic/core`
	"example.com/synthetic/core/driver"
)

var Opener = driver.Opener{Name: "etcd"} // want `package-level state Opener`

func Open(c *clientv3.Client) error {
	slog.Info("open")
	fmt.Println("open")           // want `fmt.Println where nothing is printed`
	fmt.Fprintln(os.Stderr, "up") // want `os.Stderr where nothing is printed`
	return fmt.Errorf("tenure: %v", c)
}
