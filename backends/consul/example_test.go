package consul_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/hashicorp/consul/api"

	"github.com/tenure-go/tenure/backends/consul"
	"github.com/tenure-go/tenure/core"
)

// Each request carries the current ACL token, so the token may change while the process runs.
func ExampleOpen() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	b, err := consul.Open(ctx, consul.Config{
		Address: os.Getenv("CONSUL_ADDR"), // such as 127.0.0.1:8500
	}, "example", &consul.Options{
		Create: true, // the first time only
		Token:  func(context.Context) (string, error) { return os.Getenv("CONSUL_HTTP_TOKEN"), nil },
	})
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

// The leader writes its own key, in a transaction that Consul refuses once the lease has ended.
func ExampleBackend_GuardOps() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	client, err := api.NewClient(&api.Config{Address: os.Getenv("CONSUL_ADDR")})
	if err != nil {
		log.Fatal(err)
	}
	b, err := consul.OpenClient(ctx, client, "example", &consul.Options{Create: true})
	if err != nil {
		log.Fatal(err)
	}
	defer b.Close()

	pay := func(guard api.TxnOps) error {
		put := &api.TxnOp{KV: &api.KVTxnOp{Verb: api.KVSet, Key: "paid/42", Value: []byte("yes")}}
		ok, _, _, err := client.Txn().Txn(append(guard, put), (&api.QueryOptions{}).WithContext(ctx))
		if err != nil {
			return err // it may have been paid
		}
		fmt.Println("paid:", ok)
		return nil
	}
	var guard api.TxnOps
	err = core.RunSingleton(ctx, b, "payments", func(ctx context.Context, lease *core.Lease) error {
		var err error
		if guard, err = b.GuardOps(ctx, lease.Fence()); err != nil {
			return err // matches core.ErrLost if another process leads
		}
		return pay(guard)
	}, nil)
	if err != nil {
		log.Fatal(err)
	}
	if err := pay(guard); err != nil { // too late
		log.Fatal(err)
	}
	// Output:
	// paid: true
	// paid: false
}
