package kv_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/tenure-go/tenure/backends/kv"
	"github.com/tenure-go/tenure/backends/memory"
	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/core/driver"
)

// openNamespace makes a backend from a store's client. This example uses a client of the store in
// memory. Use your own implementation of kv.Store instead.
func openNamespace(ctx context.Context, client kv.Store) (*kv.Backend, error) {
	b, err := kv.Open(ctx, client, kv.Options{
		Backend: "mystore", Namespace: "orders", Create: true,
		Limits: driver.Limits{BatchItems: 100, WriteOps: 100, WriteBytes: 1 << 20, MinTTL: time.Second},
	})
	if err != nil {
		return nil, errors.Join(err, client.Close())
	}
	return b, nil
}

// A backend needs only the five methods of a kv.Store.
func ExampleOpen() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	b, err := openNamespace(ctx, memory.New().Client())
	if err != nil {
		log.Fatal(err)
	}
	defer b.Close()
	err = core.RunSingleton(ctx, b, "invoices", func(ctx context.Context, lease *core.Lease) error {
		seq, err := lease.Append(ctx, []byte("paid"))
		fmt.Println("wrote entry", seq, "on", b.Info().Backend)
		return err
	}, nil)
	fmt.Println("error:", err)
	// Output:
	// wrote entry 1 on mystore
	// error: <nil>
}

// A backend fences a transaction on the application's own keys with one compare.
func ExampleGuard() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	store := memory.New()
	b, err := openNamespace(ctx, store.Client())
	if err != nil {
		log.Fatal(err)
	}
	defer b.Close()
	client := store.Client()
	defer client.Close()

	var guard []kv.Compare
	pay := func() {
		out, err := client.Apply(ctx, &kv.Batch{Txns: []kv.Txn{{
			If: guard, Ops: []kv.Op{{Key: "paid/42", Value: []byte("yes")}},
		}}})
		fmt.Println("paid:", err == nil && out.Results[0].OK)
	}
	err = core.RunSingleton(ctx, b, "invoices", func(ctx context.Context, lease *core.Lease) error {
		var err error
		if guard, err = kv.Guard(ctx, b, lease.Fence()); err != nil {
			return err
		}
		pay()
		return nil
	}, nil)
	if err != nil {
		log.Fatal(err)
	}
	pay() // the lease has ended
	// Output:
	// paid: true
	// paid: false
}
