package stores_test

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/tenure-go/tenure/config"
	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/internal/proof/ample"
	"github.com/tenure-go/tenure/internal/proof/fleet"
	"github.com/tenure-go/tenure/internal/proof/share"
	"github.com/tenure-go/tenure/sharding"
	"github.com/tenure-go/tenure/sharding/assign"
)

// TestLargeRange uses the Take in docs/sharding.md to split a range with more items than fit into
// one commit. The new shard gets all items of its range.
func TestLargeRange(t *testing.T) {
	for _, p := range fleet.Places() {
		t.Run(p.Name, func(t *testing.T) {
			text := "tenure:\n  ttl: 5s\n  lock_dir: none\n  backends:\n    " + p.New(t).Part("", "test") + "\n"
			c, err := config.Load(&config.LoadOptions{Path: "large", Data: []byte(text)})
			if err != nil {
				t.Fatal(err)
			}
			backend, err := c.Open(t.Context(), fleet.Openers()...)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = backend.Close() })
			keys := sharding.Keyspace{Name: "k", Shards: begun}
			d := &splitter{}
			m, open := member(t, backend, c.Options(), d, func(ctx context.Context, from string, r assign.Range) (ops []core.Op, err error) {
				items, err := backend.List(ctx, core.ShardID(from), "order/", 0, 0)
				for _, item := range items {
					if r.Has(keys.Of(strings.TrimPrefix(item.Key, "order/"))) {
						ops = append(ops, core.Put(item.Key, item.Value))
					}
				}
				return ops, err
			})
			limits := backend.Info().Limits
			n := share.Of(t, "items", 10_000, 1500)
			value := strings.Repeat("v", min(2*cmp.Or(limits.WriteBytes, 1<<20)/n, 4<<10))
			const at = 1 << 59 // in the first of the ranges
			given := assign.Range{From: at, To: 1 << 61}
			giver := open.of(m.Map(), keyOf(keys, given, new(int)))
			var names []string
			var ops []core.Op
			for i, left := 0, n; left > 0; left-- {
				name := keyOf(keys, given, &i)
				names = append(names, name)
				if ops = append(ops, core.Put("order/"+name, []byte(value))); len(ops) == 50 || left == 1 {
					if _, err := giver.Commit(t.Context(), name, ops...); err != nil {
						t.Fatal(err)
					}
					ops = nil
				}
			}
			d.at.Store(at)
			var taker *sharding.Slice
			ample.Wait(t, "nobody took the range", func() bool {
				taker = open.of(m.Map(), names[0])
				return taker != nil && taker != giver && taker.Check(names[0]) == nil
			})
			items, err := backend.List(t.Context(), core.ShardID(m.Map().Shard(names[0])), "order/", 0, 0)
			if err != nil {
				t.Fatal(err)
			}
			has := map[string]bool{}
			for _, item := range items {
				has[item.Key] = string(item.Value) == value
			}
			for _, name := range names {
				if !has["order/"+name] || taker.Check(name) != nil {
					t.Fatalf("the new shard has %d of %d items, and not %s: %v", len(items), n, name, taker.Check(name))
				}
			}
			t.Logf("%d items of %d bytes; one commit holds %d operations, %d bytes", n, len(value), limits.WriteOps, limits.WriteBytes)
		})
	}
}

func keyOf(k sharding.Keyspace, r assign.Range, i *int) string {
	for {
		*i++
		if name := fmt.Sprint("o", *i); r.Has(k.Of(name)) {
			return name
		}
	}
}
