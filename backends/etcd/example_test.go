package etcd_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/tenure-go/tenure/backends/etcd"
	"github.com/tenure-go/tenure/core"
)

func ExampleOpen() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	b, err := etcd.Open(ctx, clientv3.Config{
		Endpoints: []string{os.Getenv("ETCD_ENDPOINT")}, // such as http://127.0.0.1:2379
	}, "example", &etcd.Options{Create: true}) // the first time only
	if err != nil {
		log.Fatal(err)
	}
	defer b.Close()
	err = core.RunSingleton(ctx, b, "hello", func(ctx context.Context, lease *core.Lease) error {
		_, err := lease.Append(ctx, []byte("hello"))
		fmt.Println("wrote to the log of", lease.Shard())
		return err
	}, nil)
	fmt.Println("error:", err)
	// Output:
	// wrote to the log of hello
	// error: <nil>
}

// The leader writes its own key, in a transaction that etcd refuses once the lease has ended.
func ExampleBackend_Guard() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{os.Getenv("ETCD_ENDPOINT")}})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	b, err := etcd.OpenClient(ctx, client, "example", &etcd.Options{Create: true})
	if err != nil {
		log.Fatal(err)
	}
	defer b.Close()

	pay := func(fence core.Fence) error {
		resp, err := client.Txn(ctx).If(b.Guard(fence)...).Then(clientv3.OpPut("paid/42", "yes")).Commit()
		if err != nil {
			return err // it may have been paid
		}
		fmt.Println("paid:", resp.Succeeded)
		return nil
	}
	var fence core.Fence
	err = core.RunSingleton(ctx, b, "payments", func(_ context.Context, lease *core.Lease) error {
		fence = lease.Fence()
		return pay(fence)
	}, nil)
	if err != nil {
		log.Fatal(err)
	}
	if err := pay(fence); err != nil { // too late
		log.Fatal(err)
	}
	// Output:
	// paid: true
	// paid: false
}
