package keyspace

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/seam"
)

// MaxShards is the maximum number of shards in a set, including those of a Keyspace. Every member
// contends for all of these shards, and for the assigner's shard.
const MaxShards = seam.MaxContended - 1

// Expand returns the sorted names of the specified shards. Each spec is a name, or a range such as
// "orders-0000..1023". All numbers of a range have as many digits as the first one. Expand returns
// an error if a name is invalid, reserved for Tenure or given twice, or if there are more than
// MaxShards shards.
func Expand(specs ...string) ([]string, error) {
	var out []string
	for _, spec := range specs {
		first, last, isRange := strings.Cut(spec, "..")
		if !isRange {
			out = append(out, spec)
			continue
		}
		prefix := strings.TrimRight(first, "0123456789")
		digits := first[len(prefix):]
		from, err1 := strconv.ParseUint(digits, 10, 31)
		to, err2 := strconv.ParseUint(last, 10, 31)
		if err1 != nil || err2 != nil || to < from {
			return nil, fmt.Errorf("tenure: %w: shards %.60q: write a range as orders-0000..1023, the smaller number first", driver.ErrInvalid, spec)
		}
		if to-from >= MaxShards {
			return nil, tooMany(spec)
		}
		if err := driver.CheckShard(driver.ShardID(fmt.Sprintf("%s%0*d", prefix, len(digits), to))); err != nil {
			return nil, err // before building a million names
		}
		for i := from; i <= to; i++ {
			out = append(out, fmt.Sprintf("%s%0*d", prefix, len(digits), i))
		}
		if len(out) > MaxShards {
			return nil, tooMany(spec)
		}
	}
	if len(out) > MaxShards {
		return nil, tooMany(specs[len(specs)-1])
	}
	slices.SortFunc(out, cmp.Compare[string])
	for i, s := range out {
		if err := driver.CheckShard(driver.ShardID(s)); err != nil {
			return nil, err
		}
		if strings.HasPrefix(s, "_") {
			return nil, fmt.Errorf("tenure: %w: shard %q: names that start with %q are Tenure's own", driver.ErrInvalid, s, "_")
		}
		if i > 0 && out[i-1] == s {
			return nil, fmt.Errorf("tenure: %w: shard %q is named twice", driver.ErrInvalid, s)
		}
	}
	return out, nil
}

func tooMany(spec string) error {
	return fmt.Errorf("tenure: %w: shards %.60q: at most %d in all, for which a member can contend: use fewer, each for more keys", driver.ErrInvalid, spec, MaxShards)
}
