package assign_test

import (
	"fmt"

	"github.com/tenure-go/tenure/sharding"
	"github.com/tenure-go/tenure/sharding/assign"
)

// A plan makes the fewest moves that lead to even shares, and gives a reason for each move.
func ExampleBalance() {
	c := &assign.Cluster{
		Members: []assign.Member{{ID: "1", Node: "a", Weight: 1}, {ID: "2", Node: "b", Weight: 1}},
		Shards:  []assign.Shard{{Name: "eu", Owner: 0}, {Name: "us", Owner: 0, Moved: 1}, {Name: "asia", Owner: assign.None}},
	}
	p := assign.Balance{}.Plan(c)
	for _, m := range p.Moves {
		fmt.Println(p.Explain(c, m))
	}
	// Output:
	// asia from nobody to b (share 1): nobody owned it
}

func ExampleRange() {
	k := sharding.Keyspace{Name: "pods", Shards: 4, Hash: "fnv1a"}
	half := assign.Range{From: 1 << 63}
	fmt.Printf("shardRange(object.metadata.uid, %v) %v\n", half, half.Has(k.Of("a")))
	// Output:
	// shardRange(object.metadata.uid, '0x8000000000000000', '0x10000000000000000') true
}
