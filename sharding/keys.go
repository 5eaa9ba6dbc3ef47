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
)

// Keyspace divides keys among shards: each shard serves a range of the keys' hashes. A Keyspace
// begins with equal ranges, which are split and merged while they are served. All processes
// that use the keys need the same Keyspace.
type Keyspace struct {
	// Name begins the names of its shards: "orders" has orders-0000, orders-0001 ...
	Name string `json:"name" yaml:"name"`
	// Shards is the number of equal ranges at the beginning, at most 199,999. After the first
	// plan it has no effect, and the map of ranges has the number.
	Shards int `json:"shards" yaml:"shards"`
	// Hash is "fnv1a-mixed", the default, or "fnv1a". It must never change. "fnv1a" is FNV-1a of 64
	// bits over the key's bytes, read as a big-endian number, like the shardSelector of Kubernetes
	// (KEP-5866). Keys that differ only in their last bytes then have hashes close together. The
	// default finishes it like SplitMix64, which spreads such keys.
	Hash string `json:"hash,omitempty" yaml:"hash,omitempty"`
	// Digits is the least width of a shard's number. 0 means 4. It must never change.
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

// maxNumbers is the largest number of a shard. Numbers are never used again.
const maxNumbers = 1<<31 - 1

// Of returns the hash of a key.
func (k Keyspace) Of(key string) uint64 {
	if k.Hash == keyspace.HashFNV {
		return fnv1a(key)
	}
	return rendezvous(fnv1a(key), 0)
}

func (k Keyspace) digits() int { return cmp.Or(k.Digits, 4) }

// same reports whether two keyspaces have the same keys in shards of the same names.
func (k Keyspace) same(o Keyspace) bool {
	return k.Name == o.Name && cmp.Or(k.Hash, keyspace.HashMixed) == cmp.Or(o.Hash, keyspace.HashMixed) && k.digits() == o.digits()
}

func (k Keyspace) shard(i int) string { return fmt.Sprintf("%s-%0*d", k.Name, k.digits(), i) }

// index returns the number of a shard of this keyspace.
func (k Keyspace) index(shard string) (int, error) {
	digits, ok := strings.CutPrefix(shard, k.Name+"-")
	i, err := strconv.Atoi(digits)
	if !ok || err != nil || i < 0 || i > maxNumbers || k.shard(i) != shard {
		return 0, fmt.Errorf("tenure: %w: shard %.60q does not belong to keyspace %.60q", core.ErrInvalid, shard, k.Name)
	}
	return i, nil
}

// equal returns the i-th of n equal ranges.
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

// Map is the map of a keyspace's ranges at one time: every hash is in the range of one shard. It
// does not change. A nil Map is empty.
type Map struct {
	// Number grows with each change of the map. It may also grow without a change.
	Number   int64
	Keyspace Keyspace
	from     []uint64 // ascending, the first is 0
	shards   []string // the shard that serves from there to the next
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

// ShardOf returns the shard of a hash, or "" if the map is empty.
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
