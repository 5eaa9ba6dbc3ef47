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

// A member serves its share of eight shards until its context ends, and is emptied before it goes.
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

// A plan makes the fewest moves to even shares, with a reason for each.
func ExampleBalance() {
	c := &sharding.Cluster{
		Members: []sharding.Member{{ID: "1", Node: "a", Weight: 1}, {ID: "2", Node: "b", Weight: 1}},
		Shards:  []sharding.Shard{{Name: "eu", Owner: 0}, {Name: "us", Owner: 0, Moved: 1}, {Name: "asia", Owner: sharding.None}},
	}
	p := sharding.Balance{}.Plan(c)
	for _, m := range p.Moves {
		fmt.Println(p.Explain(c, m))
	}
	// Output:
	// asia from nobody to b (share 1): nobody owned it
}

func ExampleRange() {
	k := sharding.Keyspace{Name: "pods", Shards: 4, Hash: "fnv1a"}
	half := sharding.Range{From: 1 << 63}
	fmt.Printf("shardRange(object.metadata.uid, %v) %v\n", half, half.Has(k.Of("a")))
	// Output:
	// shardRange(object.metadata.uid, '0x8000000000000000', '0x10000000000000000') true
}
