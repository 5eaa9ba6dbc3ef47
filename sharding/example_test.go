package sharding_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/tenure-go/tenure/backends/memory"
	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/sharding"
)

// A member serves its share of eight shards until its context ends, and hands them over before it
// leaves.
func Example() {
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	b, err := memory.Open(ctx, memory.New(), "orders", nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer b.Close()
	var served atomic.Int32
	serve := func(ctx context.Context, lease *core.Lease) error {
		if served.Add(1) == 8 {
			stop()
		}
		<-ctx.Done()
		return nil
	}
	err = sharding.Run(ctx, b, serve, &sharding.Options{Shards: []string{"orders-0..7"}})
	fmt.Println("served", served.Load(), "and stopped:", err)
	// Output:
	// served 8 and stopped: <nil>
}
