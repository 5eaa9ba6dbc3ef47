package effect

import (
	"context"
	"strings"

	"github.com/tenure-go/tenure/core"
)

// Take returns the operations that bring the effects of a range along, for a sharding.Take: lease is that of the
// shard that gets the range, from is the shard that had it, and has reports whether an effect's key belongs to the
// range. What is open stays so: the next Do with its key decides, as after a takeover.
//
//	ops, err := effect.Take(ctx, backend, lease, from, func(key string) bool {
//		return r.Has(keys.Of(strings.TrimPrefix(key, "pay/")))
//	})
//
// Call Do in Slice.Do of the key, so that the shard keeps the range until Do returns.
func Take(ctx context.Context, b core.Backend, lease *core.Lease, from string, has func(key string) bool) ([]core.Op, error) {
	theirs, err := b.List(ctx, core.ShardID(from), Prefix, 0)
	if err != nil {
		return nil, err
	}
	ours, err := lease.List(ctx, Prefix, 0) // of a time when the range was here before
	var ops []core.Op
	taken := map[string]bool{}
	for _, item := range theirs {
		if taken[item.Key] = has(keyOf(item.Key)); taken[item.Key] {
			ops = append(ops, core.Put(item.Key, item.Value))
		}
	}
	for _, item := range ours {
		if !taken[item.Key] && has(keyOf(item.Key)) {
			ops = append(ops, core.Delete(item.Key))
		}
	}
	return ops, err
}

// keyOf is the effect's key in that of an item.
func keyOf(item string) string {
	key := item[min(len(recordPrefix), len(item)):] // the prefixes are as long as each other
	if strings.HasPrefix(item, endPrefix) {
		_, key, _ = strings.Cut(key, "/")
	}
	return key
}
