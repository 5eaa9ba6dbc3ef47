package etcd_test

import (
	"context"
	"fmt"
	"log"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/tenure-go/tenure/backends/etcd"
	"github.com/tenure-go/tenure/core"
)

// It needs a server, so it is compiled only. The program of docs/backends/etcd.md is the same, and internal/doctest
// compares its output.
func ExampleOpenConfig() {
	ctx := context.Background()
	b, err := etcd.OpenConfig(ctx, clientv3.Config{Endpoints: []string{"http://127.0.0.1:2379"}}, "orders", nil)
	if err != nil {
		log.Fatal(err)
	}
	defer b.Close()
	err = core.RunSingleton(ctx, b, "hello", func(ctx context.Context, lease *core.Lease) error {
		n, err := lease.Append(ctx, []byte("hello"))
		fmt.Println("wrote entry", n)
		return err
	}, nil)
	if err != nil {
		log.Fatal(err)
	}
}
