package sharding

import (
	"cmp"
	"fmt"
	"iter"
	"math/bits"
	"slices"
	"strconv"
	"strings"

	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/keyspace"
	"github.com/tenure-go/tenure/sharding/assign"
)

// Keyspace divides keys among shards. Each shard serves a range of the keys' hashes. A Keyspace
// begins with equal ranges. Later, ranges are split and merged while they stay in service. All
// processes that use the keys need the same Keyspace.
type Keyspace struct {
	// Name is the first part of the names of the keyspace's shards: the shards of "orders" are
	// orders-0000, orders-0001 ...
	Name string `json:"name" yaml:"name"`
	// Shards is the initial number of ranges, which are equal. The maximum is 199,999. After the
	// first plan, Shards has no effect, because the map of ranges determines how many shards there
	// are.
	Shards int `json:"shards" yaml:"shards"`
	// Hash is "fnv1a-mixed", the default, or "fnv1a". Hash must never change. "fnv1a" is the 64-bit
	// FNV-1a hash of the key's bytes, read as a big-endian number, as in the shardSelector of
	// Kubernetes (KEP-5866). With "fnv1a", keys that differ only in their last bytes have
	// neighboring hashes. "fnv1a-mixed" adds the final mixing step of SplitMix64, which spreads
	// such keys.
	Hash string `json:"hash,omitempty" yaml:"hash,omitempty"`
	// Digits is the minimum number of digits in a shard's number. 0 means 4 digits. Digits must
	// never change.
	Digits int `json:"digits,omitempty" yaml:"digits,omitempty"`
}

// Validate returns an error that matches core.ErrInvalid if the keyspace is not valid.
func (k Keyspace) Validate() error {
	if k.Shards < 1 || k.Shards > keyspace.MaxShards {
		return fmt.Errorf("tenure: %w: keyspace %.60q begins with %d shards: use 1 to %d, each for any number of keys", core.ErrInvalid,
			k.Name, k.Shards, keyspace.MaxShards)
	}
	if k.Hash != "" && k.Hash != keyspace.HashMixed && k.Hash != keyspace.HashFNV {
		return fmt.Errorf("tenure: %w: keyspace %.60q has the hash %.40q: use %s or %s", core.ErrInvalid, k.Name, k.Hash, keyspace.HashMixed, keyspace.HashFNV)
	}
	if k.Digits < 0 || k.Digits > 9 {
		return fmt.Errorf("tenure: %w: keyspace %.60q has numbers of %d digits: use 1 to 9, or 0 for 4", core.ErrInvalid, k.Name, k.Digits)
	}
	if last := k.shard(maxNumbers); strings.HasPrefix(k.Name, "_") || core.CheckShard(last) != nil {
		return fmt.Errorf("tenure: %w: keyspace %.60q: use at most %d letters, digits, _, - and . in its name, and not "+
			"_ first", core.ErrInvalid, k.Name, driver.MaxNameLen+len(k.Name)-len(last))
	}
	return nil
}

// No shard's number exceeds maxNumbers. A number is never reused.
const maxNumbers = 1<<31 - 1

// Of returns a key's hash.
func (k Keyspace) Of(key string) uint64 {
	if k.Hash == keyspace.HashFNV {
		return keyspace.FNV(key)
	}
	return keyspace.Rank(keyspace.FNV(key), 0)
}

// A shard that serves no keys has this empty range.
var empty = assign.Range{From: 1, To: 1}

func (k Keyspace) digits() int { return cmp.Or(k.Digits, 4) }

// Two keyspaces are the same if they map every key to a shard of the same name.
func (k Keyspace) same(o Keyspace) bool {
	return k.Name == o.Name && cmp.Or(k.Hash, keyspace.HashMixed) == cmp.Or(o.Hash, keyspace.HashMixed) && k.digits() == o.digits()
}

func (k Keyspace) shard(i int) string { return fmt.Sprintf("%s-%0*d", k.Name, k.digits(), i) }

func (k Keyspace) index(shard string) (int, error) {
	digits, ok := strings.CutPrefix(shard, k.Name+"-")
	i, err := strconv.Atoi(digits)
	if !ok || err != nil || i < 0 || i > maxNumbers || k.shard(i) != shard {
		return 0, fmt.Errorf("tenure: %w: shard %.60q does not belong to keyspace %.60q", core.ErrInvalid, shard, k.Name)
	}
	return i, nil
}

func equal(i, n int) assign.Range {
	at := func(i int) uint64 { // i * 2^64 / n; for the last end, 0, which represents 2^64
		if i == n {
			return 0
		}
		q, _ := bits.Div64(uint64(i), 0, uint64(n))
		return q
	}
	return assign.Range{From: at(i), To: at(i + 1)}
}

// Map contains a keyspace's ranges at one point in time. Every hash belongs to exactly one range. A
// Map never changes. A nil Map is empty.
type Map struct {
	// Number increases whenever the map changes, and may also increase while the map stays the
	// same.
	Number   int64
	Keyspace Keyspace
	from     []uint64 // first hash of each range; ascending, from[0] is 0
	shards   []string // the shard of each range
}

// Only shards that have a range are in the map.
func newMap(number int64, k Keyspace, names []string, ranges []assign.Range) *Map {
	order := make([]int32, 0, len(names))
	for i, r := range ranges {
		if !r.Empty() {
			order = append(order, int32(i))
		}
	}
	slices.SortFunc(order, func(a, b int32) int { return cmp.Compare(ranges[a].From, ranges[b].From) })
	m := &Map{Number: number, Keyspace: k, from: make([]uint64, len(order)), shards: make([]string, len(order))}
	for i, s := range order {
		m.from[i], m.shards[i] = ranges[s].From, names[s]
	}
	return m
}

// Shard returns a key's shard.
func (m *Map) Shard(key string) string {
	if m == nil {
		return ""
	}
	return m.ShardOf(m.Keyspace.Of(key))
}

// ShardOf returns the shard that serves a hash, or "" if the map is empty.
func (m *Map) ShardOf(hash uint64) string {
	if m.Len() == 0 {
		return ""
	}
	i, found := slices.BinarySearch(m.from, hash)
	if !found {
		i--
	}
	if i < 0 {
		return ""
	}
	return m.shards[i]
}

// Len returns the number of ranges.
func (m *Map) Len() int {
	if m == nil {
		return 0
	}
	return len(m.from)
}

// All yields every shard with its range, in the order of the ranges.
func (m *Map) All() iter.Seq2[string, assign.Range] {
	return func(yield func(string, assign.Range) bool) {
		for i := range m.Len() {
			r := assign.Range{From: m.from[i]}
			if i+1 < len(m.from) {
				r.To = m.from[i+1]
			}
			if !yield(m.shards[i], r) {
				return
			}
		}
	}
}
