//go:build unix

package kubernetes

import (
	"fmt"
	"slices"
	"testing"

	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/internal/keyspace"
	"github.com/tenure-go/tenure/sharding/assign"
)

// TestMovesOfADeploy makes the assigner plan a rolling deploy of 3 members with 12 shards. The
// assigner has to give each new member a share immediately, because it does not know which member
// leaves next. In a frozen namespace, a new member gets exactly the shards that the next leaving
// member gives up. Each shard then moves once, which is the minimum.
func TestMovesOfADeploy(t *testing.T) {
	t.Parallel()
	for frozen, want := range map[bool]struct{ all, most int }{false: {18, 2}, true: {12, 1}} {
		names, err := keyspace.Expand(shards)
		if err != nil {
			t.Fatal(err)
		}
		member := func(n int) assign.Member {
			node := fmt.Sprintf("orders-%d", n)
			return assign.Member{ID: core.SessionID(node), Node: node, Weight: 1}
		}
		c := &assign.Cluster{Frozen: frozen}
		for i, name := range names {
			c.Shards = append(c.Shards, assign.Shard{Name: name, Owner: int32(i % 3)})
		}
		c.Members = []assign.Member{member(0), member(1), member(2)}
		moved, plans := make([]int, numShards), int64(0)
		plan := func() {
			plans++
			for _, m := range (assign.Balance{}).Plan(c).Moves {
				c.Shards[m.Shard].Owner, c.Shards[m.Shard].Moved = m.To, plans
				moved[m.Shard]++
			}
		}
		for next := 3; next < 6; next++ {
			c.Members = append(c.Members, member(next))
			plan()
			c.Members[0].Drain = true
			plan()
			c.Members = c.Members[1:]
			for i := range c.Shards {
				c.Shards[i].Owner--
			}
		}
		all := 0
		for _, n := range moved {
			all += n
		}
		if most := slices.Max(moved); all != want.all || most != want.most {
			t.Errorf("frozen %v: %d moves, at most %d of one shard, want %+v", frozen, all, most, want)
		}
	}
}
