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
)

// The hashes that a Keyspace can have. Both are permanent: golden values are tested.
const (
	// HashMixed is the default: FNV-1a of 64 bits over the key's bytes, finished as
	// SplitMix64 does, because the last bytes of FNV-1a alone mix poorly.
	HashMixed = "fnv1a-mixed"
	// HashFNV is plain FNV-1a of 64 bits, its value read as a number in big-endian order, as
	// the shardSelector of Kubernetes has it (KEP-5866). Keys that differ in their last
	// bytes only lie close together.
	HashFNV = "fnv1a"
)

// Keyspace divides keys among shards: each shard answers for a range of the keys' hashes. It
// begins with equal ranges, which are split and merged while they serve. It is a value; all
// processes that use the keys have the same.
type Keyspace struct {
	// Name begins the names of its shards: "orders" has orders-0000, orders-0001 ...
	Name string `json:"name" yaml:"name"`
	// Shards is how many equal ranges it begins with, at most MaxShards. Once the first plan
	// is written it has no effect, and the map of ranges says how many there are.
	Shards int `json:"shards" yaml:"shards"`
	// Hash is HashMixed, the default, or HashFNV. It never changes.
	Hash string `json:"hash,omitempty" yaml:"hash,omitempty"`
	// Digits is how wide a shard's number is written at least. 0 means 4. It never changes.
	Digits int `json:"digits,omitempty" yaml:"digits,omitempty"`
}

// Validate says what is wrong with the keyspace; the error matches core.ErrInvalid.
func (k Keyspace) Validate() error {
	if k.Shards < 1 || k.Shards > MaxShards {
		return fmt.Errorf("tenure: %w: keyspace %.60q begins with %d shards: use 1 to %d, each for any number of keys", core.ErrInvalid,
			k.Name, k.Shards, MaxShards)
	}
	if k.Hash != "" && k.Hash != HashMixed && k.Hash != HashFNV {
		return fmt.Errorf("tenure: %w: keyspace %.60q has the hash %.40q: use %s or %s", core.ErrInvalid, k.Name, k.Hash, HashMixed, HashFNV)
	}
	if k.Digits < 0 || k.Digits > 9 {
		return fmt.Errorf("tenure: %w: keyspace %.60q has numbers of %d digits: use 1 to 9, or 0 for 4", core.ErrInvalid, k.Name, k.Digits)
	}
	if strings.HasPrefix(k.Name, "_") || k.Name == "" {
		return fmt.Errorf("tenure: %w: keyspace %.60q: give it a name that does not begin with _", core.ErrInvalid, k.Name)
	}
	return core.CheckShard(k.shard(maxNumbers))
}

// maxNumbers bounds the numbers of shards, which are never used again.
const maxNumbers = 1<<31 - 1

// Of returns the hash of a key.
func (k Keyspace) Of(key string) uint64 {
	if k.Hash == HashFNV {
		return fnv1a(key)
	}
	return rendezvous(fnv1a(key), 0)
}

func (k Keyspace) digits() int { return cmp.Or(k.Digits, 4) }

// same reports whether two keyspaces have the same keys in the same shards' names.
func (k Keyspace) same(o Keyspace) bool {
	return k.Name == o.Name && cmp.Or(k.Hash, HashMixed) == cmp.Or(o.Hash, HashMixed) && k.digits() == o.digits()
}

func (k Keyspace) shard(i int) string { return fmt.Sprintf("%s-%0*d", k.Name, k.digits(), i) }

// index is the number of a shard of this keyspace.
func (k Keyspace) index(shard string) (int, error) {
	digits, ok := strings.CutPrefix(shard, k.Name+"-")
	i, err := strconv.Atoi(digits)
	if !ok || err != nil || i < 0 || i > maxNumbers || k.shard(i) != shard {
		return 0, fmt.Errorf("tenure: %w: shard %.60q does not belong to keyspace %.60q", core.ErrInvalid, shard, k.Name)
	}
	return i, nil
}

// equal is the i-th of n equal ranges.
func equal(i, n int) Range {
	at := func(i int) uint64 { // i * 2^64 / n; 0, which stands for 2^64, of the last end
		if i == n {
			return 0
		}
		q, _ := bits.Div64(uint64(i), 0, uint64(n))
		return q
	}
	return Range{at(i), at(i + 1)}
}

// Map is the map of a keyspace's ranges at one time: every hash is in the range of one shard.
// It does not change. A nil one is empty.
type Map struct {
	// Number grows with each change of the map, and may grow without one.
	Number   int64
	Keyspace Keyspace
	from     []uint64 // ascending, the first is 0
	shards   []string // that answers from there to the next
}

// newMap returns a map of the shards that have a range.
func newMap(number int64, k Keyspace, names []string, ranges []Range) *Map {
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

// Shard returns the shard of a key.
func (m *Map) Shard(key string) string {
	if m == nil {
		return ""
	}
	return m.ShardOf(m.Keyspace.Of(key))
}

// ShardOf returns the shard of a hash; empty if the map is.
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

// Len is the number of ranges.
func (m *Map) Len() int {
	if m == nil {
		return 0
	}
	return len(m.from)
}

// All yields every shard with its range, in the order of the ranges.
func (m *Map) All() iter.Seq2[string, Range] {
	return func(yield func(string, Range) bool) {
		for i := range m.Len() {
			r := Range{From: m.from[i]}
			if i+1 < len(m.from) {
				r.To = m.from[i+1]
			}
			if !yield(m.shards[i], r) {
				return
			}
		}
	}
}
