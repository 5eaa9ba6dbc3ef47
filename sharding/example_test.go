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
func ExampleMinimal() {
	c := &sharding.Cluster{
		Members: []sharding.Member{{ID: "1", Node: "a", Weight: 1}, {ID: "2", Node: "b", Weight: 1}},
		Shards:  []sharding.Shard{{Name: "eu", Owner: 0}, {Name: "us", Owner: 0, Moved: 1}, {Name: "asia", Owner: sharding.None}},
	}
	p := sharding.Minimal{}.Plan(c)
	for _, m := range p.Moves {
		fmt.Println(p.Explain(c, m))
	}
	// Output:
	// asia from nobody to b (share 1): nobody owned it
}

func ExampleKeyspace() {
	k := sharding.Keyspace{Name: "orders", Layouts: []int{8, 16}}
	fmt.Println(k.Specs(), k.Shard("customer-42"), k.Candidates("customer-45"))
	// Output:
	// [orders-0000..15] orders-0006 [orders-0012 orders-0004]
}
