package sharding

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/tenure-go/tenure/core"
)

// MaxShards is the most shards of a set, those of a Keyspace among them: every member
// contends for all of them, and for the assigner's.
const MaxShards = core.MaxContended - 1

// Bounds of what is read from a plan, and of the names and ranges of a set.
const (
	maxShards  = 1 << 20
	maxMembers = 1 << 16
	maxSpecs   = 1 << 12
)

// Expand lists the shards that specs name, sorted: each a name, or a range such
// as "orders-0000..1023", whose numbers are written as wide as the first. Every
// name follows core's grammar, none is Tenure's own, and none occurs twice. There
// are at most MaxShards.
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
			return nil, fmt.Errorf("tenure: %w: shards %.60q: write a range as orders-0000..1023, the smaller number first", core.ErrInvalid, spec)
		}
		if to-from >= MaxShards {
			return nil, tooMany(spec)
		}
		if err := core.CheckShard(fmt.Sprintf("%s%0*d", prefix, len(digits), to)); err != nil {
			return nil, err // before a million of them are made
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
		if err := core.CheckShard(s); err != nil {
			return nil, err
		}
		if strings.HasPrefix(s, "_") {
			return nil, fmt.Errorf("tenure: %w: shard %q: names that start with %q are Tenure's own", core.ErrInvalid, s, "_")
		}
		if i > 0 && out[i-1] == s {
			return nil, fmt.Errorf("tenure: %w: shard %q is named twice", core.ErrInvalid, s)
		}
	}
	return out, nil
}

func tooMany(spec string) error {
	return fmt.Errorf("tenure: %w: shards %.60q: at most %d in all, for which a member can contend: use fewer, each for more keys", core.ErrInvalid, spec, MaxShards)
}
