package sharding_test

import (
	"context"
	"fmt"
	"time"

	"github.com/tenure-go/tenure/backends/memory"
	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/sharding"
)

// A member serves its share of eight shards until its context ends, and is emptied
// before its elector stops.
func Example() {
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	b, err := memory.Open(ctx, memory.New(), "orders", nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer b.Close()
	e, err := core.NewElector(b, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	served := make(chan string)
	serve := func(ctx context.Context, lease *core.Lease) error {
		select {
		case served <- lease.Shard():
		case <-ctx.Done():
			return nil
		}
		<-ctx.Done()
		return nil
	}
	m, err := sharding.NewManager(b, e, serve, &sharding.Options{Shards: []string{"orders-0..7"}})
	if err != nil {
		fmt.Println(err)
		return
	}
	elect, stopElector := context.WithCancel(context.Background())
	manage, leave := context.WithCancel(ctx)
	ended, left := make(chan error, 1), make(chan error, 1)
	go func() { ended <- e.Run(elect) }()
	go func() { left <- m.Run(manage) }()
	for range 8 {
		<-served
	}
	leave()
	fmt.Println("left:", <-left)
	stopElector()
	fmt.Println("ended:", <-ended)
	// Output:
	// left: <nil>
	// ended: <nil>
}

// A plan moves the least that makes the shares even, and says why.
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
	k := sharding.Keyspace{Name: "pods", Shards: 4, Hash: sharding.HashFNV}
	half := sharding.Range{From: 1 << 63}
	fmt.Printf("shardRange(object.metadata.uid, %v) %v\n", half, half.Has(k.Of("a")))
	// Output:
	// shardRange(object.metadata.uid, '0x8000000000000000', '0x10000000000000000') true
}
